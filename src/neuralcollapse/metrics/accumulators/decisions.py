"""The classifier's decisions against the nearest class mean, and against the labels."""

import torch
from jaxtyping import Int
from torch import Tensor

from ..processes import Group, sum_over
from .look import Chunk, Look

__all__ = ["Decisions"]


class Decisions:
    """For each class: samples decided, mismatches of the two ways, and how often each way was right."""

    def __init__(self, look: Look):
        self.numbers = torch.zeros(4, look.centre.shape[0], dtype=torch.int64, device=look.centre.device)

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        decided, nearest, labels = chunk.decided, chunk.nearest, chunk.labels
        found = [torch.ones_like(labels), decided != nearest, decided == labels, nearest == labels]
        self.numbers.index_add_(1, labels, torch.stack([part.to(torch.int64) for part in found]))

    def merge(self, other: "Decisions") -> None:
        """Add another's counts."""
        self.numbers += other.numbers.to(self.numbers.device)

    def all_reduce(self, group: Group = None) -> None:
        """Sum over processes."""
        (self.numbers,) = sum_over([self.numbers], group)

    def result(self) -> Int[Tensor, "4 K"]:
        """Samples, mismatches, right decisions of the classifier and of the nearest mean, by class."""
        return self.numbers.to("cpu")

    def state(self) -> dict[str, Tensor]:
        """The counts by name."""
        return {"decisions": self.numbers}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Take over counts."""
        self.numbers = state["decisions"]
