"""Logit adjustment: logits are raised by the logarithm of a prior."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from .._support.checks import describe, real
from ._affine import AffineLoss
from ._base import LogitLoss, Loss, losses, per_class_numbers

__all__ = ["LogitAdjusted"]


@losses.add("logit-adjusted", listed=False)
@dataclass(frozen=True)
class LogitAdjusted(AffineLoss):
    """loss(z + strength log(prior), y): the classes' prior is in the training loss, not in z (Menon et al. 2021).

    ``prior`` may be counts or shares; it is scaled to sum to one.

    >>> import torch
    >>> loss = LogitAdjusted("ce", prior=[3, 1])
    >>> loss(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([1])).item()  # log 4: -log of the prior
    1.3862943611198906
    """

    loss: LogitLoss | str
    prior: Sequence[float] | np.ndarray | Tensor
    strength: float = 1.0

    name: ClassVar[str] = "logit-adjusted"
    summary: ClassVar[str] = "loss(z + strength log prior)"

    def __post_init__(self) -> None:
        inner = losses.create(self.loss) if isinstance(self.loss, str) else self.loss
        if not isinstance(inner, LogitLoss):
            raise TypeError(f"loss must be a loss on logits (or its name), got {describe(inner)}")
        object.__setattr__(self, "loss", inner)
        prior = per_class_numbers("prior", self.prior, above=0)
        if prior is None:
            raise TypeError("prior must name one number a class, got None")
        object.__setattr__(self, "prior", tuple(share / math.fsum(prior) for share in prior))
        object.__setattr__(self, "strength", real("strength", self.strength))

    @property
    def _inner(self) -> LogitLoss:
        assert isinstance(self.loss, LogitLoss)
        return self.loss

    @property
    def _shift(self) -> tuple[float, ...]:
        return tuple(self.strength * math.log(float(share)) for share in self.prior)

    @property
    def inner(self) -> Loss:
        """The loss that the adjusted logits go to."""
        return self._inner
