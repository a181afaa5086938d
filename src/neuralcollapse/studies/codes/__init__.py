"""More classes than dimensions, beyond the four papers: the statements are those of docs/theory.md."""
