"""From the logits of the class means to a whole optimum: what a collapsed minimiser looks like.

Where all classes are treated alike the class logits are x (I - 11'/K) + w 11'/K, or x times a low-rank projector
(:class:`ClassFrame`). In general Z (K, K) has the logits of class k's mean, less the bias, in row k. With D the counts
and D^(1/2) Z = U S V', the least lW/2 |W|^2 + lH/2 sum_k n_k |h_k|^2 over W, H with H W' = Z is mu tr S, attained by
W = (lH/lW)^(1/4) V S^(1/2) and D^(1/2) H = (lW/lH)^(1/4) U S^(1/2).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ... import frames
from ..._support.machine import check_room
from ..._support.numerics import svd
from ..point import Point
from ..results import Optimum, Regime, one_feature_a_class

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["ClassFrame", "factored", "from_class_logits"]


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


def factored(
    problem: "RegularizedUFM", logits: Float[Tensor, "K K"], rank: int | None = None
) -> tuple[Float[Tensor, "K d"], Float[Tensor, "K d"]]:
    """(W, class means) of least penalty with these class logits; at most ``rank`` (default d) directions are kept."""
    roots = torch.tensor(problem.counts, dtype=torch.float64).sqrt()[:, None]
    left, singular, right = svd(roots * logits)
    kept = min(problem.dim, problem.num_classes, problem.dim if rank is None else rank)
    balance = (problem.feature_decay / problem.weight_decay) ** 0.25
    root = singular[:kept].sqrt()
    weight, means = (torch.zeros(problem.num_classes, problem.dim, dtype=torch.float64) for _ in range(2))
    weight[:, :kept] = balance * right[:kept].T * root
    means[:, :kept] = left[:, :kept] * root / (roots * balance)
    return weight, means


def from_class_logits(
    problem: "RegularizedUFM",
    value: float,
    regime: Regime,
    logits: Callable[[], tuple[Float[Tensor, "K K"], Float[Tensor, " K"] | None]],
    sizes: tuple[float, float, float],
    bias: float | None = None,
    note: str = "",
    proved: bool = True,
) -> Optimum:
    """The optimum whose class logits (and bias) ``logits`` gives when they are asked for.

    ``sizes`` are the mean margin, the nuclear norm of D^(1/2) Z, and N, from which the norms of one row follow.
    """
    margin, nuclear, samples = sizes
    ratio = math.sqrt(problem.feature_decay / problem.weight_decay)

    def arrays() -> tuple[Tensor, Tensor, Tensor | None]:
        array, shift = logits()
        return *factored(problem, array), shift if problem.has_bias else None

    return Optimum(
        value=value,
        regime=regime,
        logit_scale=margin,
        weight_norm=math.sqrt(ratio * nuclear / problem.num_classes),
        feature_norm=math.sqrt(nuclear / ratio / samples),
        bias=bias,
        proved=proved,
        note=note,
        **one_feature_a_class(arrays, lambda: problem.labels),
    )
