"""Points whose class logits are x (I - 11'/K) + w 11'/K, or x times a low-rank projector."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ... import frames
from ..._support.memory import check_room
from ..point import Point

__all__ = ["ClassFrame"]


@dataclass(frozen=True)
class ClassFrame:
    """A (K, d) array A with A A' = x P_r + w J: P_r the projector on r <= K-1 directions perpendicular to 1, J = 11'/K.

    ``anywhere`` lets the r <= K directions lie anywhere in R^K (the squared error without bias).
    """

    num_classes: int
    dim: int
    x: float
    w: float = 0.0
    anywhere: bool = False

    @property
    def rank(self) -> int:
        """How many directions carry x."""
        return min(self.dim, self.num_classes if self.anywhere else self.num_classes - 1)

    @property
    def mean_square(self) -> float:
        """The mean of the squared row norms."""
        return (self.x * self.rank + self.w) / self.num_classes

    def rows(self) -> Tensor:
        """A itself."""
        count, dim = self.num_classes, self.dim
        check_room("a minimiser of this model", 8 * count * dim)
        if self.anywhere:
            root = torch.zeros(count, dim, dtype=torch.float64)
            root[:, : self.rank] = math.sqrt(self.x) * torch.eye(count, self.rank, dtype=torch.float64)
            return root
        directions = min(dim, count - 1)
        scale = math.sqrt(self.x * (count - 1) / count)
        rows = torch.zeros(count, dim, dtype=torch.float64)
        rows[:, :directions] = scale * frames.low_rank_etf(count, directions)
        if self.w > 0:
            rows[:, count - 1] = math.sqrt(self.w / count)
        return rows

    def gram(self) -> Tensor:
        """A A', without A where the rank is full."""
        count = self.num_classes
        if self.rank < count - 1 or self.anywhere:
            rows = self.rows()
            return rows @ rows.T
        gram = torch.full((count, count), (self.w - self.x) / count, dtype=torch.float64)
        return gram.fill_diagonal_((self.x * (count - 1) + self.w) / count)

    def point(self, weight_scale: float, feature_scale: float, labels: Tensor, bias: float | None) -> Point:
        """W = weight_scale A, every h of class k the k-th row of feature_scale A, constant bias."""
        rows = self.rows()
        shift = None if bias is None else torch.full((self.num_classes,), bias, dtype=torch.float64)
        return Point(weight_scale * rows, (feature_scale * rows)[labels], shift)
