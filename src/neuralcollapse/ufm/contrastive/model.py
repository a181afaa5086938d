"""The supervised contrastive model: features on the unit sphere, no classifier."""

from typing import ClassVar

import torch

from ..._support.model_fields import fields_of
from ...losses import SupervisedContrastive
from ..certificate import Certificate
from ..normalized import SphereProblem
from ..optimum import Optimum
from ..point import Point
from ..problem import Counts, ProblemLinearization, problems

__all__ = ["ContrastiveLinearization", "ContrastiveUFM"]


@problems.add("contrastive")
class ContrastiveUFM(SphereProblem):
    """min over unit rows h_i of the supervised contrastive loss with exponents tau^2 <h_i, h_j> (normalized, eq. (40)).

    Every class needs at least two samples: the loss is about pairs.
    """

    kind: ClassVar[str] = "contrastive"
    has_classifier: ClassVar[bool] = False

    def __init__(self, num_classes: int, per_class: Counts, dim: int, temperature: float = 1.0):
        super().__init__(num_classes, per_class, dim)
        self.loss = SupervisedContrastive(fields_of(self.kind)["temperature"].check(temperature))
        if min(self.counts) < 2:
            raise ValueError(f"per_class must be at least 2 in the contrastive model, got {min(self.counts)}")

    @property
    def temperature(self) -> float:
        """Tau."""
        return self.loss.temperature

    def linearize(self, point: Point) -> "ContrastiveLinearization":
        """Value and Riemannian derivatives at ``point``."""
        return ContrastiveLinearization(self, point)

    def optimum(self) -> Optimum:
        """The global minimum in closed form (balanced classes, d >= K-1)."""
        from .optimum import contrastive_optimum

        return contrastive_optimum(self)

    def certify(self, point: Point, tolerance: float = 1e-8) -> Certificate:
        """A rigorous lower bound by semidefinite duality, and an escape direction at a strict saddle."""
        from .certificate import certify_contrastive

        return certify_contrastive(self, self.check(point), tolerance)


class ContrastiveLinearization(ProblemLinearization):
    """The contrastive model around one point."""

    def __init__(self, problem: ContrastiveUFM, point: Point):
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
        bend = self.loss.hessian_vector(direction.H) - self.radial * direction.H
        return Point(None, bend - features * torch.linalg.vecdot(features, bend, dim=1)[:, None])
