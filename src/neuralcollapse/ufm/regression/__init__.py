"""The unconstrained feature model of any target matrix: objective, critical points, optimum, certificate."""

from .model import CriticalPoint, RegressionUFM

__all__ = ["CriticalPoint", "RegressionUFM"]
