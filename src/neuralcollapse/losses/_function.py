"""A user's function as a loss: enough to train, to evaluate and to solve by autograd."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._support.checks import describe
from ._base import LogitLoss

__all__ = ["FunctionLoss"]


@dataclass(frozen=True)
class FunctionLoss(LogitLoss):
    """``function(logits, labels)``, the mean over samples or one value a sample; nothing else is known of it.

    >>> hinge = FunctionLoss(lambda z, y: torch.nn.functional.multi_margin_loss(z, y))
    >>> hinge(torch.zeros(1, 4), torch.tensor([2])).item()
    0.75
    """

    function: Callable[[Tensor, Tensor], Tensor]

    name: ClassVar[str] = "function"
    summary: ClassVar[str] = "a user's function of logits and labels"

    @property
    def spec(self) -> str:
        """The function's own name; it cannot be rebuilt from it."""
        return f"function {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def _outcome(self, logits: Tensor, labels: Tensor) -> Tensor:
        found = self.function(logits, labels)
        if not isinstance(found, Tensor) or found.shape not in ((), (len(labels),)):
            raise ValueError(
                f"{self.spec} must return the mean loss or {len(labels)} values, one a sample, got {describe(found)}"
            )
        return found

    def _mean(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, ""]:
        return self._outcome(logits, labels).mean()

    def _values(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        found = self._outcome(logits, labels)
        if found.ndim == 1:
            return found
        pairs = zip(logits.split(1), labels.split(1), strict=True)
        return torch.stack([self._outcome(row, label) for row, label in pairs])
