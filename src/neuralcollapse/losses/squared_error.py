"""The (rescaled) squared error."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._support.checks import integer, positive_scale
from ._base import Linearization, LogitLoss, losses
from ._stack import LossStack, one_hot

__all__ = ["SquaredError"]


class SquaredErrorLinearization(Linearization):
    """The squared error around one array of logits: a quadratic."""

    def __init__(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"], alpha: float, target: float):
        self.labels = labels[:, None]
        self.alpha = alpha
        self.residual = logits.clone()
        self.residual.scatter_add_(1, self.labels, torch.full_like(self.labels, -target, dtype=logits.dtype))

    @property
    def value(self) -> float:
        """Half the weighted sum of squares, averaged."""
        squares = self.residual.square()
        if self.alpha != 1:
            # Weighted entry by entry: alpha - 1 times their sum would cancel where alpha is small.
            squares.scatter_(1, self.labels, self.alpha * squares.gather(1, self.labels))
        return float(squares.sum()) / (2 * len(self.residual))

    @property
    def gradient(self) -> Float[Tensor, "N K"]:
        """(z - M e_y) / N, with weight alpha on the true class."""
        return self._weighted(self.residual.clone())

    def hessian_vector(self, direction: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """v / N, with weight alpha on the true class."""
        return self._weighted(direction)

    def _weighted(self, rows: Tensor) -> Tensor:
        if self.alpha != 1:
            rows.scatter_(1, self.labels, self.alpha * rows.gather(1, self.labels))
        rows /= rows.shape[0]
        return rows


class SquaredErrorStack(LossStack):
    """The squared error of many trials; ``arrays`` is the residual z - M e_y."""

    def __init__(self, labels: Int[Tensor, " N"], num_classes: int, alpha: float, target: float):
        true = one_hot(labels, num_classes)
        self._target = target * true
        self._weights = torch.ones_like(true).masked_fill_(true > 0, alpha) / len(labels)
        self.arrays = []

    def at(self, logits: Float[Tensor, "T K N"]) -> LossStack:
        """The residuals."""
        return self._with([logits - self._target])

    @property
    def values(self) -> Float[Tensor, " T"]:
        """Half the weighted sum of squares over N."""
        return self.curvature(self.arrays[0]) / 2

    @property
    def gradient(self) -> Float[Tensor, "T K N"]:
        """(z - M e_y) / N, with weight alpha on the true class."""
        return self.arrays[0] * self._weights

    def curvature(self, direction: Float[Tensor, "T K N"]) -> Float[Tensor, " T"]:
        """|v|^2 / N, with weight alpha on the true class."""
        return direction.square().mul_(self._weights).flatten(1).sum(1)


@losses.add("squared-error", "mse")
@dataclass(frozen=True)
class SquaredError(LogitLoss):
    """1/2 [ alpha (z_y - target)^2 + sum_{j != y} z_j^2 ] (mse, eq. (4), with M = target).

    The losses paper's eq. (6) with (kappa, beta) is twice this loss with (alpha, target) = (kappa, beta).

    >>> SquaredError(alpha=5, target=2)(torch.tensor([[1.0, 1.0]]), torch.tensor([0])).item()  # (5 (1 - 2)^2 + 1)/2
    3.0
    """

    alpha: float = 1.0
    target: float = 1.0

    name: ClassVar[str] = "squared-error"
    summary: ClassVar[str] = "1/2 [alpha (z_y - target)^2 + sum_{j != y} z_j^2]"

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", positive_scale("alpha", self.alpha))
        object.__setattr__(self, "target", positive_scale("target", self.target))

    @property
    def depends_on_margins(self) -> bool:
        """False: the logits themselves are compared with targets."""
        return False

    @property
    def convex_from(self) -> float:
        """0: convex everywhere."""
        return 0.0

    def _values(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        true = logits.gather(1, labels[:, None]).squeeze(1)
        wrong = logits.scatter(1, labels[:, None], 0.0)
        return 0.5 * (self.alpha * (true - self.target).square() + wrong.square().sum(1))

    def linearize(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> SquaredErrorLinearization:
        """Value and derivatives."""
        return SquaredErrorLinearization(logits, labels, self.alpha, self.target)

    def stack(self, labels: Int[Tensor, " N"], num_classes: int) -> SquaredErrorStack:
        """The loss for many trials at once."""
        return SquaredErrorStack(labels, num_classes, self.alpha, self.target)

    def conjugate(self, dual: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """target u_y + 1/2 [ u_y^2 / alpha + sum_{j != y} u_j^2 ], finite everywhere."""
        true = dual.gather(1, labels[:, None]).squeeze(1)
        wrong = dual.scatter(1, labels[:, None], 0.0)
        return self.target * true + 0.5 * (wrong.square().sum(1) + true.square() / self.alpha)

    def dual_centre(self, labels: Int[Tensor, " N"], num_classes: int) -> Float[Tensor, "N K"]:
        """Zero: the conjugate is finite everywhere."""
        return torch.zeros(len(labels), integer("num_classes", num_classes, minimum=2), dtype=torch.float64)

    def dual_reach(self, rows: Float[Tensor, "N K"]) -> float:
        """Infinite: the conjugate is finite everywhere."""
        return math.inf
