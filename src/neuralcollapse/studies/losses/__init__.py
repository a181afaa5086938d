"""Zhou et al. 2022, "Are all losses created equal: a neural collapse perspective"."""
