"""Squared error against any targets Y (N, t): mse Lemma B.2; regression: Andriopoulos et al. (2024).

In Z = H W' the model is min |Z + 1b' - Y|^2/(2N) + mu |Z|_*, rank Z <= d, mu = sqrt(lW lH). With Y = sum_i s_i u_i v_i'
(centred by its mean row if the bias is free) every critical point keeps a set S of at most d singular pairs with
s_i > N mu and shrinks them: Z = sum_{i in S} (s_i - N mu) u_i v_i'. The global minima keep the largest.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ..._support.checks import describe, integer
from ..._support.ranges import positive_scale
from ..._support.tensor_checks import finite_tensor
from ..duality import best_on_ray, levelled, spectral_norm, top_singular_pair
from ..point import Point
from ..problem import Problem, ProblemLinearization, problems
from ..results import Certificate, Optimum
from ..verdict import Evidence, judge

__all__ = ["CriticalPoint", "RegressionUFM"]

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


@problems.add("regression")
class RegressionUFM(Problem):
    """min |H W' + 1b' - Y|^2/(2N) + lW/2 |W|^2 + lH/2 |H|^2 + lb/2 |b|^2 over W (t, d), H (N, d), b (t,).

    One-hot targets are the squared error of :class:`RegularizedUFM` with any counts.

    >>> model = RegressionUFM([[2.0, 0.0], [0.0, 1.0]], dim=2, weight_decay=0.1, feature_decay=0.1)
    >>> round(model.optimum().value, 12)  # (2*0.1)^2/2 + 0.1*(1.8 + 0.8), with N mu = 0.2
    0.28

    Args:
        targets: Y, N rows of t numbers (a list of lists, an array or a tensor).
        dim: feature dimension d.
        weight_decay: lW > 0.
        feature_decay: lH > 0.
        bias_decay: None for no bias, 0.0 for a free one.

    """

    kind: ClassVar[str] = "regression"
    has_classes: ClassVar[bool] = False

    def __init__(
        self,
        targets: Any,
        dim: int,
        weight_decay: float,
        feature_decay: float,
        bias_decay: float | None = None,
    ):
        self.targets = _checked_targets(targets)
        samples, outputs = self.targets.shape
        # A classifier row an output; all samples belong to one group, since there are no classes.
        self.num_classes, self.num_samples = int(outputs), int(samples)
        self.dim = integer("dim", dim, minimum=1)
        self.counts = (self.num_samples,)
        self._labels = None
        self.weight_decay = positive_scale("weight_decay", weight_decay)
        self.feature_decay = positive_scale("feature_decay", feature_decay)
        self.bias_decay = None if bias_decay is None else positive_scale("bias_decay", bias_decay, or_zero=True)

    @property
    def labels(self) -> Tensor:
        """Zeros: one group."""
        if self._labels is None:
            with torch.inference_mode(False):
                self._labels = torch.zeros(self.num_samples, dtype=torch.int64)
        return self._labels

    @property
    def has_bias(self) -> bool:
        """Whether there is a bias."""
        return self.bias_decay is not None

    @property
    def mu(self) -> float:
        """sqrt(lW lH)."""
        return math.sqrt(self.weight_decay) * math.sqrt(self.feature_decay)

    @property
    def balance(self) -> float:
        """(lH/lW)^(1/4): the scale of W against H at critical points."""
        return (self.feature_decay / self.weight_decay) ** 0.25

    def linearize(self, point: Point) -> "RegressionLinearization":
        """Value and derivatives."""
        return RegressionLinearization(self, point)

    def random_point(self, seed: int | Generator) -> Point:
        """Gaussian entries of variance 1/d."""
        generator = self._generator(seed)

        def gaussian(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator) / math.sqrt(self.dim)

        weight, features = gaussian(self.num_classes, self.dim), gaussian(self.num_samples, self.dim)
        return Point(weight, features, gaussian(self.num_classes) if self.has_bias else None)

    # Critical points --------------------------------------------------------------------------------------------

    @cached_property
    def _pairs(self) -> tuple[Float[Tensor, "N r"], Float[Tensor, " r"], Float[Tensor, "r t"], Tensor | None]:
        """Singular pairs of the (centred) targets, and their mean row where the bias is free."""
        if self.bias_decay:
            raise NotImplementedError("no closed form is known for a bias with a decay: bias_decay must be None or 0")
        mean = self.targets.mean(0) if self.has_bias else None
        centred = self.targets if mean is None else self.targets - mean
        return *torch.linalg.svd(centred, full_matrices=False), mean

    @property
    def singular_values(self) -> Float[Tensor, " r"]:
        """s_i of the targets (centred if the bias is free), falling."""
        return self._pairs[1]

    def _value(self, kept: tuple[int, ...]) -> float:
        total, shrink = self.num_samples, self.num_samples * self.mu
        terms = []
        for index, s in enumerate(self.singular_values.tolist()):
            x = s - shrink if index in kept else 0.0
            terms.append((s - x) ** 2 / (2 * total) + self.mu * x)
        return math.fsum(terms)

    def _point(self, kept: tuple[int, ...]) -> Point:
        left, singular, right, mean = self._pairs
        index = list(kept)
        root = (singular[index] - self.num_samples * self.mu).clamp(min=0).sqrt()
        weight = torch.zeros(self.num_classes, self.dim, dtype=torch.float64)
        features = torch.zeros(self.num_samples, self.dim, dtype=torch.float64)
        weight[:, : len(index)] = self.balance * right[index].T * root
        features[:, : len(index)] = left[:, index] * root / self.balance
        return Point(weight, features, mean)

    def _reachable(self) -> int:
        """How many singular values are above N mu."""
        return int((self.singular_values > self.num_samples * self.mu).sum())

    def optimum(self) -> Optimum:
        """f* = sum_i [(s_i - x_i)^2/(2N) + mu x_i], x_i = max(0, s_i - N mu) for i <= d; no bias or a free one."""
        rank = min(self._reachable(), self.dim)
        kept = tuple(range(rank))
        shrunk = (self.singular_values[:rank] - self.num_samples * self.mu).sum()
        nuclear = float(shrunk)

        def build_grams() -> tuple[Tensor, Tensor]:
            point = self._point(kept)
            return point.classifier @ point.classifier.T, point.H @ point.H.T

        tied = rank < len(self.singular_values) and rank == self.dim and rank > 0
        tied = tied and float(self.singular_values[rank]) == float(self.singular_values[rank - 1])
        return Optimum(
            value=self._value(kept),
            regime="zero" if rank == 0 else "low rank" if rank < self._reachable() else "shrunken targets",
            logit_scale=nuclear / max(rank, 1),
            weight_norm=self.balance * math.sqrt(nuclear / self.num_classes),
            feature_norm=math.sqrt(nuclear / self.num_samples) / self.balance,
            note="one of many minimisers: singular values are tied" if tied else "",
            build_point=lambda: self._point(kept),
            build_grams=build_grams,
        )

    def critical_points(self) -> list[CriticalPoint]:
        """All subsets of at most d of the singular pairs above N mu, the lowest value first.

        With repeated singular values each stands for all rotations within the repeated ones.
        """
        usable = self._reachable()
        if usable > MOST_PAIRS:
            raise ValueError(f"targets have {usable} singular values above N mu: more than 2^{MOST_PAIRS} subsets")
        subsets = itertools.chain.from_iterable(
            itertools.combinations(range(usable), size) for size in range(min(usable, self.dim) + 1)
        )
        return sorted((self._critical(kept) for kept in subsets), key=lambda one: one.value)

    def _critical(self, kept: tuple[int, ...]) -> CriticalPoint:
        left, singular, right, _ = self._pairs
        usable = range(self._reachable())
        unused = next((j for j in usable if j not in kept), None)
        point, case = self._point(kept), ""
        escape = curvature = None
        if unused is not None:
            column, bend = None, 0.0
            if len(kept) < self.dim:
                column, case = len(kept), "Case I"
                bend = -2 * (float(singular[unused]) / self.num_samples - self.mu)
            elif float(singular[kept[-1]]) < float(singular[unused]):
                column, case = len(kept) - 1, "Case II"
                bend = -2 * float(singular[unused] - singular[kept[-1]]) / self.num_samples
            if column is not None:
                weight, features = torch.zeros_like(point.classifier), torch.zeros_like(point.H)
                weight[:, column] = self.balance * right[unused]
                features[:, column] = left[:, unused] / self.balance
                size = math.sqrt(self.balance**2 + self.balance**-2)
                bias = None if point.b is None else torch.zeros_like(point.b)
                escape = Point(weight, features, bias) * (1 / size)
                curvature = bend / size**2
        return CriticalPoint(kept, self._value(kept), escape is None, point, case, escape, curvature)

    # Certificate ------------------------------------------------------------------------------------------------

    def certify(self, point: Point, tolerance: float = 1e-8) -> Certificate:
        """The closed form as bound (a dual bound for a bias with a decay), and the lemma's escape directions."""
        state = self.linearize(self.check(point))
        closed = self.closed_form()
        lower, source = (self._dual_bound(point), "Fenchel dual") if closed is None else (closed.value, "closed form")
        slope = state.slope
        norm, left, right = top_singular_pair(slope)
        size = max(1.0, *(float(block.norm()) for block in point.blocks))
        evidence = Evidence(
            lower_bound=lower,
            bound_source=source,
            value_scale=float(self.targets.square().sum()) / (2 * self.num_samples),
            gradient_scale=(float(slope.norm()) + max(self.weight_decay, self.feature_decay)) * size,
            curvature_scale=norm + self.mu,
            spectral_ratio=norm / self.mu,
            directions=self._directions(point, left, right),
            doubt="" if self.dim >= self.num_classes else "dim < the number of outputs restricts the rank",
        )
        return judge(self, point, state, evidence, tolerance)

    def _directions(self, point: Point, left: Tensor, right: Tensor) -> Iterator[Point]:
        """A new pair along the weakest direction a of W and H: a null vector (Case I) or the least used (Case II)."""
        gram = point.classifier.T @ point.classifier + point.H.T @ point.H
        weakest = torch.linalg.eigh(gram)[1][:, 0]
        bias = None if point.b is None else torch.zeros_like(point.b)
        yield Point(self.balance * torch.outer(right, weakest), -torch.outer(left, weakest) / self.balance, bias)

    def _dual_bound(self, point: Point) -> float:
        """-<L, Y> - N/2 |L|^2 - |L'1|^2/(2 lb) for L = c G, |L| <= mu, with the best bias for these logits."""
        decay, count = self.bias_decay or 0.0, self.num_samples
        residual = point.H @ point.classifier.T - self.targets
        slope = (residual - residual.mean(0) / (1 + decay)) / count

        def bound(dual: Tensor) -> float:
            sums = float(dual.sum(0).square().sum())
            return -float((dual * self.targets).sum()) - count / 2 * float(dual.square().sum()) - sums / (2 * decay)

        norm = spectral_norm(slope)
        best = best_on_ray(lambda c: bound(c * slope), self.mu / norm if norm > 0 else math.inf)
        return max(best, *(bound(dual) for dual, _ in levelled(slope, self.mu)), -math.inf)

    def parameters(self) -> dict[str, Any]:
        """The keyword arguments that rebuild this model."""
        return {
            "targets": self.targets.tolist(),
            "dim": self.dim,
            "weight_decay": self.weight_decay,
            "feature_decay": self.feature_decay,
            "bias_decay": self.bias_decay,
        }

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in self.targets.shape)
        rest = ", ".join(f"{key}={value!r}" for key, value in self.parameters().items() if key != "targets")
        return f"RegressionUFM(targets {shape}, {rest})"


class RegressionLinearization(ProblemLinearization):
    """The regression model around one point; ``slope`` is the gradient in H W'."""

    def __init__(self, problem: RegressionUFM, point: Point):
        self.problem, self.point = problem, point
        residual = point.H @ point.classifier.T - problem.targets
        decay = problem.weight_decay * float(point.classifier.square().sum())
        decay += problem.feature_decay * float(point.H.square().sum())
        if point.b is not None:
            residual += point.b
            decay += (problem.bias_decay or 0.0) * float(point.b.square().sum())
        self.value = float(residual.square().sum()) / (2 * problem.num_samples) + decay / 2
        self.slope: Float[Tensor, "N t"] = residual / problem.num_samples

    @property
    def gradient(self) -> Point:
        """(G'H + lW W, G W + lH H, G'1 + lb b)."""
        return self._pull(self.slope, self.point)

    def hessian_vector(self, direction: Point) -> Point:
        """The Gauss-Newton part of the quadratic, and G's."""
        point = self.point
        change = direction.H @ point.classifier.T + point.H @ direction.classifier.T
        if direction.b is not None:
            change += direction.b
        bend = self._pull(change / self.problem.num_samples, direction)
        cross = Point(self.slope.T @ direction.H, self.slope @ direction.classifier)
        return Point(bend.classifier + cross.classifier, bend.H + cross.H, bend.b)

    def _pull(self, rows: Tensor, decayed: Point) -> Point:
        problem, point = self.problem, self.point
        bias = None if decayed.b is None else rows.sum(0) + (problem.bias_decay or 0.0) * decayed.b
        weight = rows.T @ point.H + problem.weight_decay * decayed.classifier
        return Point(weight, rows @ point.classifier + problem.feature_decay * decayed.H, bias)


def _checked_targets(targets: object) -> Float[Tensor, "N t"]:
    if isinstance(targets, Tensor):
        array = targets.detach().to("cpu", torch.float64, copy=True)
    else:
        try:
            array = torch.from_numpy(np.array(targets, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise TypeError(f"targets must be a matrix of numbers, got {describe(targets)}") from error
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"targets must have shape (N, t) with N, t >= 1, got shape {tuple(array.shape)}")
    return finite_tensor("targets", array, (None, None))
