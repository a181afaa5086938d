"""The normalised model: classifier and features on unit spheres."""

from .model import NormalizedUFM, SphereProblem

__all__ = ["NormalizedUFM", "SphereProblem"]
