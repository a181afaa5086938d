"""What commands show: text and tables on the terminal, progress, and what a study says."""
