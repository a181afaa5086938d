"""The flat form of the model with non-negative features: H = V * V entrywise, V free."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ..objectives.pointwise import PointwiseObjective
from ..point import Point
from ..problem import ProblemLinearization

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["SquaredFeatures"]


class SquaredFeatures(PointwiseObjective):
    """Methods move (W, V, b); points are (W, V * V, b).

    Every minimum of the constrained model is one in V, and no new local minima arise (entries that stay at zero are
    left by any step that a start in general position allows).
    """

    def __init__(self, problem: "RegularizedUFM"):
        super().__init__(problem)
        self._model = problem

    def flatten(self, point: Point) -> Float[Tensor, " D"]:
        """W, sqrt(H), b as a new vector."""
        return Point(point.W, point.H.clamp(min=0).sqrt(), point.b).flatten()

    def point(self, x: Float[Tensor, " D"]) -> Point:
        """(W, V * V, b)."""
        raw = self.template.like(x)
        return Point(raw.W, raw.H.square(), raw.b)

    def linearize(self, x: Float[Tensor, " D"]) -> ProblemLinearization:
        """By the chain rule."""
        return SquaredLinearization(self._model, self.template.like(x))

    def retract(self, x: Float[Tensor, " D"], direction: Float[Tensor, " D"], length: float) -> Float[Tensor, " D"]:
        """A straight step."""
        return torch.add(x, direction, alpha=length)

    def project_(self, x: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """There is no constraint on V."""
        return vector

    def direction(self, vector: Float[Tensor, " D"]) -> Point:
        """A change of (W, V, b)."""
        return self.template.like(vector)


class SquaredLinearization(ProblemLinearization):
    """The model in (W, V, b): dH = 2 V dV."""

    def __init__(self, problem: "RegularizedUFM", raw: Point):
        self._raw = raw
        self._inner = problem.linearize(Point(raw.W, raw.H.square(), raw.b))
        self._slope = self._inner.gradient
        self.value = self._inner.value

    @property
    def gradient(self) -> Point:
        """(G_W, 2 V G_H, G_b)."""
        return Point(self._slope.W, 2 * self._raw.H * self._slope.H, self._slope.b)

    def hessian_vector(self, direction: Point) -> Point:
        """2 V (Hessian d)_H + 2 dV G_H in the features, with d = (dW, 2 V dV, db)."""
        bend = self._inner.hessian_vector(Point(direction.W, 2 * self._raw.H * direction.H, direction.b))
        features = 2 * self._raw.H * bend.H + 2 * direction.H * self._slope.H
        return Point(bend.W, features, bend.b)
