"""Closed-form global minima, one file a model; see docs/theory.md for the derivations."""
