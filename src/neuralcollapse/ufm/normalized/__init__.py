"""The normalised model: classifier and features on unit spheres."""

from ..spheres import SphereProblem
from .model import NormalizedUFM

__all__ = ["NormalizedUFM", "SphereProblem"]
