"""Classes of unequal counts, beyond the four papers: the statements are those of docs/theory.md."""
