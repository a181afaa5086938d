"""Cross-entropy against smoothed labels."""

from dataclasses import dataclass
from typing import ClassVar

from .._support.checks import real
from ._base import losses
from ._softmax import SmoothedCrossEntropy

__all__ = ["LabelSmoothing"]


@losses.add("label-smoothing", "ls")
@dataclass(frozen=True)
class LabelSmoothing(SmoothedCrossEntropy):
    """Cross-entropy against (1-alpha) e_y + alpha/K, 0 <= alpha < 1 (losses, eq. (5)).

    >>> import torch
    >>> logits = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    >>> round(LabelSmoothing(alpha=0.5)(logits, torch.tensor([0])).item(), 12)  # log(1 + 1/e) + 1/4
    0.563261687518
    """

    alpha: float = 0.1

    name: ClassVar[str] = "label-smoothing"
    summary: ClassVar[str] = "-sum_j t_j log p_j, t = (1-alpha) e_y + alpha/K"

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", real("alpha", self.alpha, minimum=0, below=1))

    @property
    def _alpha(self) -> float:
        return self.alpha
