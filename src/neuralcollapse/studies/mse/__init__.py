"""Zhou et al. 2022, "On the optimization landscape of neural collapse under MSE loss"."""
