"""Variances within classes along the span of the class means."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..._support.machine import sum_in_float64
from ..processes import Group, sum_over
from .look import Chunk, Look

__all__ = ["Projection"]


class Projection:
    """sum over samples of (v_i'(h - m_y))^2 for each direction v_i of the spectrum of the means."""

    def __init__(self, look: Look):
        width = 0 if look.spans is None else look.spans.shape[1]
        self.sums = torch.zeros(width, dtype=torch.float64, device=look.home)

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        if self.sums.shape[0]:
            self.sums += sum_in_float64(chunk.projections.square())

    def merge(self, other: "Projection") -> None:
        """Add another's sums."""
        self.sums += other.sums.to(self.sums.device)

    def all_reduce(self, group: Group = None) -> None:
        """Sum over processes."""
        (self.sums,) = sum_over([self.sums], group)

    def result(self, look: Look, seen: Tensor, spread: float) -> Float[Tensor, " r"] | None:
        """The variances; ``None`` where the means have no spectrum. ``spread`` is the sum of squared distances."""
        if look.spans is None:
            return None
        sums = (self.sums - look.span_errors(seen, spread)).clamp(min=0)
        return sums / max(int(seen.sum()), 1) * look.scale**2

    def state(self) -> dict[str, Tensor]:
        """The sums by name."""
        return {"along": self.sums}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Take over sums."""
        self.sums = state["along"]
