"""The normalised unconstrained feature model: classifier and features on unit spheres."""

from typing import ClassVar

import torch
from torch import Generator, Tensor

from ..._support.model_fields import fields_of
from ...losses import LossLike, logit_loss
from ..certificate import Certificate
from ..optimum import Optimum
from ..point import Point
from ..problem import Counts, Problem, ProblemLinearization, problems

__all__ = ["NormalizedLinearization", "NormalizedUFM", "SphereProblem"]

UNIT_TOLERANCE = 1e-8


class SphereProblem(Problem):
    """A model whose rows all lie on unit spheres (an oblique manifold)."""

    def project(self, point: Point, direction: Point) -> Point:
        """``direction`` less its radial part, row by row."""
        return direction.map(lambda rows, base: rows - base * _inner(base, rows), point)

    def retract(self, point: Point, direction: Point) -> Point:
        """Rows of ``point + direction``, scaled back to unit norm (a retraction of second order)."""
        return (point + direction).map(_unit)

    def _freedom(self, point: Point) -> int:
        """Each row loses its radial direction."""
        return sum(block.numel() - block.shape[0] for block in point.blocks)

    def random_point(self, seed: int | Generator) -> Point:
        """Rows uniform on the sphere."""
        generator = self._generator(seed)

        def rows(count: int) -> Tensor:
            return _unit(torch.randn(count, self.dim, dtype=torch.float64, generator=generator))

        classifier = rows(self.num_classes) if self.has_classifier else None
        return Point(classifier, rows(self.num_samples))

    def check(self, point: Point) -> Point:
        """``point`` if its blocks have this model's shapes, are float64, finite and have unit rows."""
        super().check(point)
        for name in ("W", "H"):
            block = getattr(point, name)
            if block is not None:
                deviation = float((block.norm(dim=1) - 1).abs().max())
                if deviation > UNIT_TOLERANCE:
                    raise ValueError(f"point.{name} must have rows of unit norm, but one is off by {deviation:.1e}")
        return point


@problems.add("normalized")
class NormalizedUFM(SphereProblem):
    """min g(tau H W') over unit rows of W and H, g the mean loss (normalized, eq. (4); no bias).

    ``per_class`` may be a list of K counts.
    """

    kind: ClassVar[str] = "normalized"

    def __init__(
        self,
        loss: LossLike,
        num_classes: int,
        per_class: Counts,
        dim: int,
        temperature: float = 1.0,
    ):
        super().__init__(num_classes, per_class, dim)
        self.loss = logit_loss(loss)
        self.temperature: float = fields_of(self.kind)["temperature"].check(temperature)

    def linearize(self, point: Point) -> "NormalizedLinearization":
        """Value and Riemannian derivatives at ``point``, sharing the softmax."""
        return NormalizedLinearization(self, point)

    def optimum(self) -> Optimum:
        """The global minimum in closed form (balanced classes); see docs/theory.md for each regime."""
        from .optimum import normalized_optimum

        return normalized_optimum(self)

    def certify(self, point: Point, tolerance: float = 1e-8) -> Certificate:
        """A rigorous duality gap, the weighted spectral test, and an escape direction at a strict saddle."""
        from .certificate import certify_normalized

        return certify_normalized(self, self.check(point), tolerance)


class NormalizedLinearization(ProblemLinearization):
    """The normalised model around one point; with G the gradient of the mean loss in the logits tau H W':

    alpha_k = <w_k, (G'H)_k>, beta_i = <h_i, (GW)_i>; the gradient is tau (G'H - alpha W, GW - beta H) and the
    Hessian the projection of the Euclidean one less tau (alpha dW, beta dH) (normalized (7), (8), corrected).
    """

    def __init__(self, problem: NormalizedUFM, point: Point):
        self.problem, self.point = problem, point
        self.temperature = problem.temperature
        self.loss = problem.loss.linearize(self.temperature * (point.H @ point.classifier.T), problem.labels)
        self.value = self.loss.value
        self.logit_gradient = self.loss.gradient
        self._pull_W = self.logit_gradient.T @ point.H
        self._pull_H = self.logit_gradient @ point.classifier
        self.alpha = _inner(point.classifier, self._pull_W)
        self.beta = _inner(point.H, self._pull_H)

    @property
    def gradient(self) -> Point:
        """The Riemannian gradient."""
        point, tau = self.point, self.temperature
        return Point(tau * (self._pull_W - self.alpha * point.classifier), tau * (self._pull_H - self.beta * point.H))

    def hessian_vector(self, direction: Point) -> Point:
        """The Riemannian Hessian times a tangent ``direction``."""
        point, tau, slope = self.point, self.temperature, self.logit_gradient
        change = direction.H @ point.classifier.T
        change.addmm_(point.H, direction.classifier.T)
        change *= tau
        bend = self.loss.hessian_vector(change)
        classifier = bend.T @ point.H
        classifier.addmm_(slope.T, direction.H)
        classifier -= self.alpha * direction.classifier
        classifier -= point.classifier * _inner(point.classifier, classifier)
        features = bend @ point.classifier
        features.addmm_(slope, direction.classifier)
        features -= self.beta * direction.H
        features -= point.H * _inner(point.H, features)
        return Point(classifier.mul_(tau), features.mul_(tau))


def _inner(left: Tensor, right: Tensor) -> Tensor:
    """Row-wise inner products, as a column."""
    return torch.linalg.vecdot(left, right, dim=1)[:, None]


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True)
