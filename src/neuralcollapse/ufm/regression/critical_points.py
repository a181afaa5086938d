"""All critical points of the regression model: subsets of the targets' singular pairs (mse, Lemma B.2).

With Y = sum_i s_i u_i v_i' (centred by its mean row if the bias is free) every critical point keeps a set S of at most
d singular pairs with s_i > N mu and shrinks them: Z = sum_{i in S} (s_i - N mu) u_i v_i'. The global minima keep the
largest; each other one is a strict saddle.
"""

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ..._support.numerics import svd
from ..point import Point
from ..results import Optimum

if TYPE_CHECKING:
    from .model import RegressionUFM

__all__ = ["CriticalPoint", "SingularPairs"]

MOST_PAIRS = 16
"""Singular pairs above the threshold up to which all their subsets are listed."""


@dataclass(frozen=True, eq=False)
class CriticalPoint:
    """A critical point of the regression model: which singular pairs it keeps, and how it is left.

    ``kept`` are indices into the singular values in falling order. At a strict saddle ``escape`` is a unit direction
    and ``curvature`` the second derivative along it: Case I of the lemma adds a pair in a null direction of W
    (-2 (s_j/N - mu) before scaling), Case II, where no dimension is left, turns a kept pair towards a larger one that
    is not kept (-2 (s_j - s_i)/N before scaling).
    """

    kept: tuple[int, ...]
    value: float
    is_global: bool
    point: Point
    case: str
    escape: Point | None
    curvature: float | None

    def __repr__(self) -> str:
        kind = "global minimum" if self.is_global else f"strict saddle, {self.case}"
        return f"CriticalPoint(kept={self.kept}, value={self.value:.6g}, {kind})"


class SingularPairs:
    """The singular pairs of the (centred) targets, and what keeping some of them gives."""

    def __init__(self, problem: "RegressionUFM"):
        if problem.bias_decay:
            raise NotImplementedError("no closed form is known for a bias with a decay: bias_decay must be None or 0")
        self._problem = problem
        self._mean = problem.targets.mean(0) if problem.has_bias else None
        centred = problem.targets if self._mean is None else problem.targets - self._mean
        self._left, self.values, self._right = svd(centred, full_matrices=False)
        self._shrink = problem.num_samples * problem.mu

    values: Float[Tensor, " r"]
    """s_i, falling."""

    @cached_property
    def reachable(self) -> int:
        """How many singular values are above N mu."""
        return int((self.values > self._shrink).sum())

    def value(self, kept: tuple[int, ...]) -> float:
        """sum_i [(s_i - x_i)^2/(2N) + mu x_i], x_i = s_i - N mu for those that are kept, else 0."""
        total, mu = self._problem.num_samples, self._problem.mu
        terms: list[float] = []
        for index, s in enumerate(self.values.tolist()):
            x = s - self._shrink if index in kept else 0.0
            terms.append((s - x) ** 2 / (2 * total) + mu * x)
        return math.fsum(terms)

    def point(self, kept: tuple[int, ...]) -> Point:
        """The balanced factorisation of the shrunken pairs, a dimension each."""
        problem, index = self._problem, list(kept)
        root = (self.values[index] - self._shrink).clamp(min=0).sqrt()
        weight = torch.zeros(problem.num_classes, problem.dim, dtype=torch.float64)
        features = torch.zeros(problem.num_samples, problem.dim, dtype=torch.float64)
        weight[:, : len(index)] = problem.balance * self._right[index].T * root
        features[:, : len(index)] = self._left[:, index] * root / problem.balance
        return Point(weight, features, self._mean)

    def optimum(self) -> Optimum:
        """The largest d of the reachable pairs."""
        problem = self._problem
        rank = min(self.reachable, problem.dim)
        kept = tuple(range(rank))
        nuclear = float((self.values[:rank] - self._shrink).sum())

        def build_grams() -> tuple[Tensor, Tensor]:
            point = self.point(kept)
            return point.classifier @ point.classifier.T, point.H @ point.H.T

        tied = 0 < rank == problem.dim < len(self.values) and float(self.values[rank]) == float(self.values[rank - 1])
        return Optimum(
            value=self.value(kept),
            regime="zero" if rank == 0 else "low rank" if rank < self.reachable else "shrunken targets",
            logit_scale=nuclear / max(rank, 1),
            weight_norm=problem.balance * math.sqrt(nuclear / problem.num_classes),
            feature_norm=math.sqrt(nuclear / problem.num_samples) / problem.balance,
            note="one of many minimisers: singular values are tied" if tied else "",
            build_point=lambda: self.point(kept),
            build_grams=build_grams,
        )

    def critical_points(self) -> list[CriticalPoint]:
        """All subsets of at most d of the reachable pairs, the lowest value first."""
        if self.reachable > MOST_PAIRS:
            raise ValueError(
                f"targets have {self.reachable} singular values above N mu: more than 2^{MOST_PAIRS} subsets"
            )
        subsets = itertools.chain.from_iterable(
            itertools.combinations(range(self.reachable), size)
            for size in range(min(self.reachable, self._problem.dim) + 1)
        )
        return sorted((self._critical(kept) for kept in subsets), key=lambda one: one.value)

    def _critical(self, kept: tuple[int, ...]) -> CriticalPoint:
        point, (case, column, unused, unscaled) = self.point(kept), self._way_out(kept)
        if not case:
            return CriticalPoint(kept, self.value(kept), True, point, "", None, None)
        balance = self._problem.balance
        weight, features = torch.zeros_like(point.classifier), torch.zeros_like(point.H)
        weight[:, column] = balance * self._right[unused]
        features[:, column] = self._left[:, unused] / balance
        square = balance**2 + balance**-2
        bias = None if point.b is None else torch.zeros_like(point.b)
        escape = Point(weight, features, bias) * (1 / math.sqrt(square))
        return CriticalPoint(kept, self.value(kept), False, point, case, escape, unscaled / square)

    def _way_out(self, kept: tuple[int, ...]) -> tuple[str, int, int, float]:
        """The lemma's case (empty at a minimum), the column that changes, the pair it turns to, and the curvature."""
        unused = next((j for j in range(self.reachable) if j not in kept), None)
        total = self._problem.num_samples
        if unused is not None:
            larger = float(self.values[unused])
            if len(kept) < self._problem.dim:
                return "Case I", len(kept), unused, -2 * (larger / total - self._problem.mu)
            least = float(self.values[kept[-1]])
            if least < larger:
                return "Case II", len(kept) - 1, unused, -2 * (larger - least) / total
        return "", 0, 0, 0.0
