"""The supervised contrastive model: features on unit spheres, no classifier."""

from .model import ContrastiveUFM

__all__ = ["ContrastiveUFM"]
