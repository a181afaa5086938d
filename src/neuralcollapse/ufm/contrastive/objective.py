"""The objective of the contrastive model, on spheres."""

from typing import TYPE_CHECKING

import torch

from ..point import Point
from ..problem import ProblemLinearization

if TYPE_CHECKING:
    from .model import ContrastiveUFM

__all__ = ["SphereContrast"]


class SphereContrast(ProblemLinearization):
    """The supervised contrastive loss around one point.

    With E its gradient in H and r_i = <h_i, e_i>, the Riemannian gradient is E - r H, and the Hessian the projection of
    the Euclidean one less r dH.
    """

    def __init__(self, problem: "ContrastiveUFM", point: Point):
        self.point = point
        self.loss = problem.loss.linearize(point.H, problem.labels)
        self.value = self.loss.value
        self.radial = torch.linalg.vecdot(point.H, self.loss.gradient, dim=1)[:, None]

    @property
    def gradient(self) -> Point:
        """The Riemannian gradient."""
        return Point(None, self.loss.gradient - self.radial * self.point.H)

    def hessian_vector(self, direction: Point) -> Point:
        """The Riemannian Hessian times a tangent ``direction``."""
        features = self.point.H
        product = self.loss.hessian_vector(direction.H) - self.radial * direction.H
        return Point(None, product - features * torch.linalg.vecdot(features, product, dim=1)[:, None])
