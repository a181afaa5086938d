"""Cross-entropy, with a weight for each class if wanted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

from .._support.checks import integer
from ._base import Curve, MarginOptimum, losses, per_class_numbers, spread_over
from ._softmax import SmoothedCrossEntropy, SoftmaxLinearization, SoftmaxStack

__all__ = ["CrossEntropy"]


@losses.add("cross-entropy", "ce")
@dataclass(frozen=True)
class CrossEntropy(SmoothedCrossEntropy):
    """-omega_y log p_y, averaged over all samples; omega = 1 by default.

    With ``class_weights`` the mean is (1/N) sum_i omega_{y_i} (-log p_{y_i}), so that a weight of 1 changes nothing
    (``torch.nn.functional.cross_entropy`` divides by the sum of the samples' weights instead).

    >>> CrossEntropy()(torch.zeros(3, 4), torch.tensor([0, 1, 2])).item()  # log 4
    1.3862943649291992
    >>> CrossEntropy(class_weights=[2, 1])(torch.zeros(2, 2, dtype=torch.float64), torch.tensor([0, 1])).item()
    1.0397207708399179
    """

    class_weights: Sequence[float] | np.ndarray | Tensor | None = None

    name: ClassVar[str] = "cross-entropy"
    summary: ClassVar[str] = "-log p_y"

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_weights", per_class_numbers("class_weights", self.class_weights, above=0))

    def __repr__(self) -> str:
        return f"CrossEntropy({'' if self.class_weights is None else f'class_weights={self.class_weights}'})"

    @property
    def depends_on_margins(self) -> bool:
        """True where no class weighs more than another by being named."""
        return self.class_weights is None

    def _weights(self, labels: Tensor, like: Tensor) -> Tensor | None:
        if self.class_weights is None:
            return None
        return spread_over("class_weights", self.class_weights, like)[labels]

    def _values(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        values, weights = super()._values(logits, labels), self._weights(labels, logits)
        return values if weights is None else values * weights

    def _mean(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, ""]:
        return super()._mean(logits, labels) if self.class_weights is None else self._values(logits, labels).mean()

    def linearize(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> SoftmaxLinearization:
        """Value and derivatives, sharing the softmax."""
        return SoftmaxLinearization(logits, labels, 0.0, self._weights(labels, logits))

    def stack(self, labels: Int[Tensor, " N"], num_classes: int) -> SoftmaxStack:
        """The loss for many trials at once."""
        weights = self._weights(labels, torch.empty(1, num_classes, dtype=torch.float64))
        if weights is None:
            return super().stack(labels, num_classes)
        return SoftmaxStack(labels, num_classes, 0.0, weights)

    def conjugate(self, dual: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """-omega H(u/omega + e_y) where that is a probability vector, infinity elsewhere."""
        weights = self._weights(labels, dual)
        if weights is None:
            return super().conjugate(dual, labels)
        return weights * super().conjugate(dual / weights[:, None], labels)

    def dual_centre(self, labels: Int[Tensor, " N"], num_classes: int) -> Float[Tensor, "N K"]:
        """omega_y (pi - e_y) with pi the class shares, weighted."""
        count = integer("num_classes", num_classes, minimum=2)
        weights = self._weights(labels, torch.empty(1, count, dtype=torch.float64))
        if weights is None:
            return super().dual_centre(labels, num_classes)
        shares = torch.zeros(num_classes, dtype=torch.float64).index_add_(0, labels, weights)
        rows = (shares / shares.sum()).repeat(len(labels), 1)
        rows.scatter_add_(1, labels[:, None], torch.full((len(labels), 1), -1.0, dtype=torch.float64))
        return rows * weights[:, None]

    def dual_reach(self, rows: Float[Tensor, "N K"]) -> float:
        """As without weights, in units of the largest."""
        return super().dual_reach(rows) * max((float(weight) for weight in self.class_weights or ()), default=1.0)

    def margin_value(self, margin: ArrayLike, num_classes: int) -> Curve:
        """log(1 + (K-1) e^{-a}); refused with class weights."""
        self._refuse_weights()
        return super().margin_value(margin, num_classes)

    def margin_derivative(self, margin: ArrayLike, num_classes: int) -> Curve:
        """-(1 - p); refused with class weights."""
        self._refuse_weights()
        return super().margin_derivative(margin, num_classes)

    def optimal_margin(self, slope: float, num_classes: int) -> MarginOptimum:
        """p_other = slope/(K-1); refused with class weights."""
        self._refuse_weights()
        return super().optimal_margin(slope, num_classes)

    def _refuse_weights(self) -> None:
        if self.class_weights is not None:
            raise TypeError(f"{self.name} with class weights does not treat classes alike, so it has no margin form")
