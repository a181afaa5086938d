"""Zhu et al. 2021, "A geometric analysis of neural collapse with unconstrained features"."""
