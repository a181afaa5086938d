"""Vector scaling: cross-entropy of logits that are scaled and shifted class by class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ._affine import AffineLoss
from ._base import LogitLoss, losses, per_class_numbers
from .cross_entropy import CrossEntropy

__all__ = ["VectorScaling"]


@losses.add("vector-scaling", "vs", listed=False)
@dataclass(frozen=True)
class VectorScaling(AffineLoss):
    """-log softmax(delta z + iota)_y, delta = ``multiplicative`` > 0, iota = ``additive`` (Kini et al. 2021).

    delta alone is the class-dependent temperature of Ye et al. (2020); iota alone is logit adjustment.

    >>> import torch
    >>> loss = VectorScaling([1.0, 2.0], [0.0, 0.0])
    >>> loss(torch.tensor([[1.0, 0.5]], dtype=torch.float64), torch.tensor([0])).item()  # log 2: 1*1 = 2*0.5
    0.6931471805599453
    """

    multiplicative: Sequence[float] | np.ndarray | Tensor
    additive: Sequence[float] | np.ndarray | Tensor

    name: ClassVar[str] = "vector-scaling"
    summary: ClassVar[str] = "-log softmax(multiplicative z + additive)_y"

    def __post_init__(self) -> None:
        scale = per_class_numbers("multiplicative", self.multiplicative, above=0)
        shift = per_class_numbers("additive", self.additive)
        if scale is None or shift is None or len(scale) != len(shift):
            raise ValueError("multiplicative and additive must each name one number a class, and as many of them")
        object.__setattr__(self, "multiplicative", scale)
        object.__setattr__(self, "additive", shift)

    @property
    def _inner(self) -> LogitLoss:
        return CrossEntropy()

    @property
    def _scale(self) -> tuple[float, ...]:
        return tuple(float(number) for number in self.multiplicative)

    @property
    def _shift(self) -> tuple[float, ...]:
        return tuple(float(number) for number in self.additive)
