"""What models and plans are made of, each declared once: name, type, range, default and words, without torch."""
