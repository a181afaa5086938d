"""Yaras et al. 2022, "Neural collapse with normalized features"."""
