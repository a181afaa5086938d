"""The regularised and the normalised model at many points at once.

x (T, D) has a trial a row: W, then H, then b, each block divided by the root of its scale in the block metric, so that
the metric is the plain one and a method needs none. The scales are first divided by tau sqrt(s_W s_H), which leaves the
metric what it is but for a factor: so the logits are W H' + sqrt(s_b) b 1', (T, K, N), classes before samples.

Everything is numpy's, whose small operations, inner products, copies of rows and products of small matrices take half
of torch's time; torch adds multiples of vectors in one pass, and has the losses.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ....losses import LossStack
from ...normalized import NormalizedUFM
from ...point import Point
from ...regularized import RegularizedUFM

__all__ = ["BatchModel", "BatchState", "Numbers", "Points", "Survivors", "Vectors", "add_multiples", "places"]

Numbers = np.ndarray
"""One float64, or one truth value, a trial."""
Vectors = np.ndarray
"""One vector a trial (T, D), float64."""


def places(which: Numbers) -> np.ndarray:
    """The indices of trials for which it is true (np.flatnonzero takes three times as long)."""
    return which.nonzero()[0]


def add_multiples(
    vectors: np.ndarray, others: np.ndarray, factors: np.ndarray, out: np.ndarray | None = None
) -> np.ndarray:
    """u + t v in one pass, with a number t a row; in new memory, or in ``out``."""
    given = [torch.from_numpy(array) for array in (vectors, others, factors[..., None])]
    return torch.addcmul(*given, out=None if out is None else torch.from_numpy(out)).numpy()


class Survivors:
    """The trials that go on, moved to the front: the last ones take the places of those that have ended.

    >>> survivors = Survivors(np.array([True, False, True, True]))
    >>> survivors.of(np.array([0, 1, 2, 3]))
    array([0, 3, 2])
    """

    def __init__(self, going: Numbers):
        self._count = np.count_nonzero(going)
        self._free = places(~going[: self._count])
        self._last = self._count + places(going[self._count :])

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Their rows, as a view into ``rows``, some of which are overwritten."""
        if len(self._free):
            rows[self._free] = rows[self._last]
        return rows[: self._count]


@dataclass(frozen=True)
class Points:
    """The points of many trials, block by block."""

    W: Float[Tensor, "T K d"]
    H: Float[Tensor, "T N d"]
    b: Float[Tensor, "T K"] | None

    def __getitem__(self, trial: int) -> Point:
        return Point(self.W[trial], self.H[trial], None if self.b is None else self.b[trial])

    def __iter__(self) -> Iterator[Point]:
        blocks = [block.unbind() for block in (self.W, self.H, self.b) if block is not None]
        return (Point(*each) for each in zip(*blocks, strict=True))


@dataclass
class BatchState:
    """Trials at their points, with values and gradients."""

    x: Vectors
    values: Numbers
    gradient: Vectors
    squares: np.ndarray
    """|gradient|^2 of each block (T, blocks)."""
    radial: np.ndarray | None
    """On spheres: the radial part of the pull on each row (T, R), for the curvature."""
    loss: LossStack

    @property
    def square(self) -> Numbers:
        """|gradient|^2."""
        return self.squares.sum(1)

    def pick(self, index: np.ndarray) -> "BatchState":
        """Copies of these trials."""
        return self._map(lambda rows: rows.take(index, 0))

    def keep(self, survivors: Survivors) -> "BatchState":
        """Only the trials that go on; this state is used up."""
        return self._map(survivors.of)

    def _map(self, rows: Callable[[np.ndarray], np.ndarray]) -> "BatchState":
        radial = None if self.radial is None else rows(self.radial)
        return BatchState(
            rows(self.x), rows(self.values), rows(self.gradient), rows(self.squares), radial, self.loss.map(rows)
        )

    def put_(self, index: np.ndarray, other: "BatchState") -> None:
        """These trials as in ``other``."""
        self.x[index], self.gradient[index] = other.x, other.gradient
        self.values[index], self.squares[index] = other.values, other.squares
        if self.radial is not None:
            self.radial[index] = other.radial
        self.loss.put_(index, other.loss)


class BatchModel:
    """Values, gradients, curvatures and feasible steps of T trials."""

    def __init__(self, problem: RegularizedUFM | NormalizedUFM, loss: LossStack, scales: tuple[float, ...]):
        self.classes, self.rows, self.dim = problem.num_classes, problem.num_classes + problem.num_samples, problem.dim
        self.has_bias = problem.has_bias
        temperature = problem.temperature if isinstance(problem, NormalizedUFM) else 1.0
        self.noise = 1e-15 * max(1.0, temperature)
        self.unit_step = temperature * math.sqrt(scales[0]) * math.sqrt(scales[1])
        """The length of a step that has length 1 in the block metric."""
        self.scales = scales = tuple(scale / self.unit_step for scale in scales)
        self._loss, self._inverse_scales = loss, 1 / np.array(scales)
        self._bias_gain = math.sqrt(scales[2]) if problem.has_bias else 0.0
        self._ends = (problem.num_classes * problem.dim, self.rows * problem.dim)
        decays = (0.0, 0.0, 0.0)
        if isinstance(problem, RegularizedUFM):
            decays = (problem.weight_decay, problem.feature_decay, problem.bias_decay or 0.0)
        self._decays = tuple(decay * scale for decay, scale in zip(decays, scales, strict=False))
        self._common_decay = len(set(self._decays)) == 1
        self._row_scales: np.ndarray | None = None
        if isinstance(problem, NormalizedUFM):
            self._row_scales = np.repeat(scales, (problem.num_classes, problem.num_samples))
            self._negative_row_scales = -self._row_scales
            self._row_roots = torch.from_numpy(np.sqrt(self._row_scales)[:, None])

    def _split(self, x: Vectors) -> tuple[np.ndarray, ...]:
        """The blocks, flat, as views."""
        first, second = self._ends
        blocks = x[:, :first], x[:, first:second]
        return (*blocks, x[:, second:]) if self.has_bias else blocks

    def _blocks(self, x: Vectors) -> tuple[np.ndarray, ...]:
        """W (T, K, d), H (T, N, d) and, if there is one, b (T, K), as views."""
        W, H, *bias = self._split(x)
        return W.reshape(len(x), -1, self.dim), H.reshape(len(x), -1, self.dim), *bias

    def gather(self, points: Sequence[Point]) -> Vectors:
        """The points as rows."""
        x = np.empty((len(points), self._ends[1] + (self.classes if self.has_bias else 0)))
        blocks = zip(*(point.blocks for point in points), strict=True)
        for block, given, scale in zip(self._blocks(x), blocks, self.scales, strict=True):
            np.divide(torch.stack(given).numpy(), math.sqrt(scale), out=block)
        return x

    def points(self, x: Vectors) -> Points:
        """The points that rows stand for, in memory of their own; on spheres with rows of exactly unit norm."""
        blocks = zip(self._blocks(x), self.scales, strict=True)
        made = [torch.from_numpy(block * math.sqrt(scale)) for block, scale in blocks]
        if self._row_scales is not None:
            made = [block.div_(torch.linalg.vector_norm(block, dim=2, keepdim=True)) for block in made]
        return Points(made[0], made[1], made[2] if self.has_bias else None)

    def norms(self, state: BatchState) -> Numbers:
        """The gradients' Euclidean norms in the point's own entries."""
        return np.sqrt(state.squares @ self._inverse_scales)

    def at(self, x: Vectors) -> BatchState:
        """Values and gradients: three products of order K N d a trial."""
        W, H, *bias = self._blocks(x)
        logits = torch.from_numpy(np.matmul(W, H.mT))
        if bias:
            logits += torch.from_numpy(self._bias_gain * bias[0][:, :, None])
        loss = self._loss.at(logits)
        slope = loss.gradient.numpy()
        gradient = np.empty_like(x)
        pull_W, pull_H, *pull_bias = self._blocks(gradient)
        if bias:
            np.multiply(slope.sum(2), self._bias_gain, out=pull_bias[0])
        np.matmul(slope, H, out=pull_W)
        np.matmul(slope.mT, W, out=pull_H)
        values, radial = loss.values.numpy(), None
        if self._row_scales is None:
            values = values + self._decay_(x, gradient)
        else:
            radial = self._take_radial_(x, gradient)
        squares = np.empty((len(x), len(self.scales)))
        for index, block in enumerate(self._split(gradient)):
            np.vecdot(block, block, out=squares[:, index])
        return BatchState(x, values, gradient, squares, radial, loss)

    def _decay_(self, x: Vectors, gradient: Vectors) -> Numbers:
        """The decays' values; their gradient is added to ``gradient``."""
        if self._common_decay:
            torch.from_numpy(gradient).add_(torch.from_numpy(x), alpha=self._decays[0])
            return self._decays[0] / 2 * np.vecdot(x, x)
        total = np.zeros(len(x))
        for block, target, decay in zip(self._split(x), self._split(gradient), self._decays, strict=True):
            if decay:
                torch.from_numpy(target).add_(torch.from_numpy(block), alpha=decay)
                total += decay / 2 * np.vecdot(block, block)
        return total

    def curvature(self, state: BatchState, direction: Vectors) -> Numbers:
        """d^2/dt^2 of the value along each retracted ray at t = 0.

        <Z1, L Z1> + 2 <G, Z2> with logits Z0 + t Z1 + t^2 Z2, and the decays' or the spheres' part.
        """
        W, H, *_ = self._blocks(state.x)
        dW, dH, *turn = self._blocks(direction)
        first, second = np.matmul(dW, H.mT), np.matmul(dW, dH.mT)
        first += np.matmul(W, dH.mT)
        if turn:
            first += self._bias_gain * turn[0][:, :, None]
        slope = state.loss.gradient.numpy()
        total = 2 * np.vecdot(slope.reshape(len(slope), -1), second.reshape(len(slope), -1))
        total += state.loss.curvature(torch.from_numpy(first)).numpy()
        if state.radial is not None:
            rows = self._rows(direction)
            total -= np.vecdot(np.vecdot(rows, rows) * self._row_scales, state.radial)
        for block, decay in zip(self._split(direction), self._decays, strict=True):
            if decay:
                total += decay * np.vecdot(block, block)
        return total

    def step(self, x: Vectors, direction: Vectors, lengths: Numbers) -> BatchState:
        """The states at x + t d, with rows scaled back to spheres."""
        moved = add_multiples(x, direction, lengths)
        if self._row_scales is not None:
            rows = torch.from_numpy(self._rows(moved))
            sizes = torch.linalg.vector_norm(rows, dim=2, keepdim=True)
            rows *= sizes.mul_(self._row_roots).reciprocal_()
        return self.at(moved)

    def project_(self, x: Vectors, vectors: Vectors) -> Vectors:
        """Replace ``vectors`` by their tangent parts."""
        if self._row_scales is not None:
            self._take_radial_(x, vectors)
        return vectors

    def _rows(self, x: Vectors) -> np.ndarray:
        """W above H (T, R, d), where there is no bias."""
        return x.reshape(len(x), self.rows, self.dim)

    def _take_radial_(self, x: Vectors, vectors: Vectors) -> np.ndarray:
        """Subtract the radial part of each row of ``vectors``, and return <x_r, v_r>, on spheres."""
        base, rows = self._rows(x), self._rows(vectors)
        radial = np.vecdot(base, rows)
        add_multiples(rows, base, radial * self._negative_row_scales, out=rows)
        return radial
