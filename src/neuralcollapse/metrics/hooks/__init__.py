"""Looking into a model while it runs: its batches and labels, its layers, and which of them is the classifier."""
