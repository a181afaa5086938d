"""The regression model around one point."""

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from ..point import Point
from ..problem import ProblemLinearization

if TYPE_CHECKING:
    from .model import RegressionUFM

__all__ = ["RegressionLinearization"]


class RegressionLinearization(ProblemLinearization):
    """|H W' + 1b' - Y|^2/(2N) and the decays; ``slope`` is the gradient in H W'."""

    def __init__(self, problem: "RegressionUFM", point: Point):
        self.problem, self.point = problem, point
        residual = point.H @ point.classifier.T - problem.targets
        decay = problem.weight_decay * float(point.classifier.square().sum())
        decay += problem.feature_decay * float(point.H.square().sum())
        if point.b is not None:
            residual += point.b
            decay += (problem.bias_decay or 0.0) * float(point.b.square().sum())
        self.value = float(residual.square().sum()) / (2 * problem.num_samples) + decay / 2
        self.slope: Float[Tensor, "N t"] = residual / problem.num_samples

    @property
    def gradient(self) -> Point:
        """(G'H + lW W, G W + lH H, G'1 + lb b)."""
        return self._pull(self.slope, self.point)

    def hessian_vector(self, direction: Point) -> Point:
        """The Gauss-Newton part of the quadratic, and G's."""
        point = self.point
        change = direction.H @ point.classifier.T + point.H @ direction.classifier.T
        if direction.b is not None:
            change += direction.b
        gauss_newton = self._pull(change / self.problem.num_samples, direction)
        cross = Point(self.slope.T @ direction.H, self.slope @ direction.classifier)
        return Point(gauss_newton.classifier + cross.classifier, gauss_newton.H + cross.H, gauss_newton.b)

    def _pull(self, rows: Tensor, decayed: Point) -> Point:
        """Rows of a gradient in the logits, pulled back to W, H and b, with the decays of ``decayed``."""
        problem, point = self.problem, self.point
        bias = None if decayed.b is None else rows.sum(0) + (problem.bias_decay or 0.0) * decayed.b
        weight = rows.T @ point.H + problem.weight_decay * decayed.classifier
        return Point(weight, rows @ point.classifier + problem.feature_decay * decayed.H, bias)
