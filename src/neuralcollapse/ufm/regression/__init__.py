"""The unconstrained feature model of any target matrix: objective, critical points, optimum, certificate."""

from .critical_points import CriticalPoint
from .model import RegressionUFM

__all__ = ["CriticalPoint", "RegressionUFM"]
