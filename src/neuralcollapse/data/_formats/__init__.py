"""Readers of public file formats; each refuses what it does not understand, and executes nothing."""
