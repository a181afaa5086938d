"""Cross-entropy."""

from dataclasses import dataclass
from typing import ClassVar

from ._base import registry
from ._softmax import SmoothedCrossEntropy

__all__ = ["CrossEntropy"]


@registry.add("cross-entropy", "ce")
@dataclass(frozen=True)
class CrossEntropy(SmoothedCrossEntropy):
    """-log p_y.

    >>> import torch
    >>> CrossEntropy()(torch.zeros(3, 4), torch.tensor([0, 1, 2])).item()  # log 4
    1.3862943649291992
    """

    name: ClassVar[str] = "cross-entropy"
    summary: ClassVar[str] = "-log p_y"
