"""Sums of squared distances to the class means, on a second look."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..._support.machine import in_float64
from ..processes import Group, sum_over
from .look import Chunk, Look

__all__ = ["Spread"]


class Spread:
    """sum over the samples of class k of |h - m_k|^2, and how many there were."""

    def __init__(self, look: Look, distances: bool):
        classes, device = look.centre.shape[0], look.home
        self._distances = distances
        self.seen = torch.zeros(classes, dtype=torch.int64, device=device)
        self.squares = torch.zeros(classes, dtype=torch.float64, device=device)

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        labels = chunk.labels.to(self.seen.device)
        self.seen += torch.bincount(labels, minlength=self.seen.shape[0])
        if self._distances:
            norms = in_float64(torch.linalg.vector_norm(chunk.difference, dim=1))
            self.squares.index_add_(0, labels, norms.square_())

    def merge(self, other: "Spread") -> None:
        """Add another's sums."""
        self.seen += other.seen.to(self.seen.device)
        self.squares += other.squares.to(self.squares.device)

    def all_reduce(self, group: Group = None) -> None:
        """Sum over processes."""
        self.seen, self.squares = sum_over([self.seen, self.squares], group)

    def result(self, look: Look) -> Float[Tensor, " K"]:
        """The sums, corrected for the rounding of the centres."""
        return (self.squares - self.seen * look.centre_errors()).clamp(min=0)

    def state(self) -> dict[str, Tensor]:
        """The sums by name."""
        return {"seen": self.seen, "squares": self.squares}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Take over sums."""
        self.seen, self.squares = state["seen"], state["squares"]
