"""The steps of gradient descent, conjugate gradients and L-BFGS for many trials at once.

Each does what the single method of its name does; the metric is plain, since :class:`BatchModel` has scaled its blocks.
"""

from abc import ABC, abstractmethod
from collections import deque
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..methods import gradient_descent, lbfgs
from .model import BatchModel, BatchState, Numbers, column, dots
from .search import backtrack, search

__all__ = ["BatchConjugateGradient", "BatchGradientDescent", "BatchLBFGS", "BatchMethod"]


class BatchMethod(ABC):
    """What a method keeps from one step of all trials to the next."""

    def __init__(self, model: BatchModel):
        self.model = model

    @abstractmethod
    def step(self, state: BatchState, live: Numbers) -> tuple[BatchState, Numbers]:
        """The next states, and which live trials can go no further (their new state is arbitrary)."""

    @abstractmethod
    def keep(self, index: np.ndarray) -> None:
        """Only these trials go on."""

    def rounding(self, state: BatchState) -> Numbers:
        """Changes of the values below these may be rounding."""
        return np.maximum(1e-15 * abs(state.values), self.model.noise)

    def steepest(self, state: BatchState, live: Numbers) -> tuple[BatchState, Numbers, Numbers]:
        """A nearly exact step along the gradient."""
        slope = -dots(state.gradient, state.gradient)
        return search(self.model, state, -state.gradient, slope, np.ones(len(slope)), self.rounding(state), live)


class BatchGradientDescent(BatchMethod):
    """Barzilai and Borwein's trial step, shortened until the value falls below the largest of the last ones."""

    def __init__(self, model: BatchModel, window: int):
        super().__init__(model)
        self._recent: deque[Numbers] = deque(maxlen=window)
        self._last: tuple[Tensor, Numbers, Numbers] | None = None

    def step(self, state: BatchState, live: Numbers) -> tuple[BatchState, Numbers]:
        """A step along the gradient for all."""
        self._recent.append(state.values)
        square = dots(state.gradient, state.gradient)
        if self._last is None:
            after, lengths, failed = self.steepest(state, live)
        else:
            before, length, old_square = self._last
            # s = -length grad, y = grad' - grad: <s, s> / <s, y>.
            turned = old_square - dots(before, state.gradient)
            trial = np.where(turned > 0, length * old_square / turned, 2 * length)
            lengths = np.clip(trial, 1e-3 * length, 1e3 * length)
            bound = np.max(self._recent, axis=0) + self.rounding(state)
            downhill = -state.gradient
            after, failed = backtrack(
                self.model, state, downhill, -square, lengths, bound, live, gradient_descent.TRIALS
            )
        self._last = state.gradient, lengths, square
        return after, failed

    def keep(self, index: np.ndarray) -> None:
        """Only these trials go on."""
        self._recent = deque((values[index] for values in self._recent), maxlen=self._recent.maxlen)
        if self._last is not None:
            gradient, lengths, square = self._last
            self._last = gradient[torch.from_numpy(index)], lengths[index], square[index]


class BatchConjugateGradient(BatchMethod):
    """Polak and Ribiere's directions with a nearly exact search along each."""

    def __init__(self, model: BatchModel):
        super().__init__(model)
        self._carried: tuple[Tensor, Tensor, Numbers] | None = None
        self._guess = np.ones(0)

    def step(self, state: BatchState, live: Numbers) -> tuple[BatchState, Numbers]:
        """A search along each direction; along the gradient where that fails."""
        size = dots(state.gradient, state.gradient)
        if self._carried is None:
            direction, slope = -state.gradient, -size
            self._guess = np.ones(len(size))
        else:
            old, before, old_size = self._carried
            beta = np.maximum((size - dots(state.gradient, before)) / old_size, 0.0)
            direction = self.model.project_(state.x, old).mul_(column(beta)).sub_(state.gradient)
            slope = dots(state.gradient, direction)
            weak = np.flatnonzero(live & ~(slope < -1e-8 * size))
            if len(weak):
                direction[torch.from_numpy(weak)] = -state.gradient[torch.from_numpy(weak)]
                slope[weak] = -size[weak]
        after, lengths, failed = search(self.model, state, direction, slope, self._guess, self.rounding(state), live)
        again = np.flatnonzero(failed & (slope != -size))
        if len(again):
            part = state.pick(again)
            found, lengths[again], failed[again] = self.steepest(part, np.ones(len(again), dtype=bool))
            after.put_(again, found)
            direction[torch.from_numpy(again)] = -part.gradient
        self._carried = direction, state.gradient, size
        self._guess = 2 * lengths
        return after, failed

    def keep(self, index: np.ndarray) -> None:
        """Only these trials go on."""
        self._guess = self._guess[index]
        if self._carried is not None:
            direction, gradient, size = self._carried
            places = torch.from_numpy(index)
            self._carried = direction[places], gradient[places], size[index]


class BatchLBFGS(BatchMethod):
    """The two-loop recursion over the last pairs; a pair without positive curvature has weight zero.

    Pairs are most of what a step reads: they are scaled to unit length, s = |s| u and y = |y| v, kept in single
    precision in one array, and read twice a step, once for all inner products and once for the sum. The recursion
    itself runs on inner products: r -= a v with a = <u, r>/<u, v>, then r += (a |s|/|y| - <v, r>/<u, v>) u. A direction
    that is off by 1e-7 of its length is as good; values, gradients and steps are in double precision.
    """

    def __init__(self, model: BatchModel, memory: int):
        super().__init__(model)
        self._memory = memory
        self._order: deque[int] = deque(maxlen=memory)
        self._pairs: _Pairs | None = None

    def step(self, state: BatchState, live: Numbers) -> tuple[BatchState, Numbers]:
        """A whole step where it descends; along the gradient where it does not."""
        pairs = self._pairs
        if pairs is None:
            self._pairs = pairs = _Pairs.of(len(state.x), state.x.shape[1], self._memory)
            after, _, failed = self.steepest(state, live)
        else:
            direction = self.model.project_(state.x, self._direction(pairs, state.gradient))
            slope = dots(state.gradient, direction)
            bound = state.values + self.rounding(state)
            downhill = slope < 0
            after, failed = backtrack(
                self.model, state, direction, slope, np.ones(len(slope)), bound, live & downhill, lbfgs.TRIALS
            )
            failed |= live & ~downhill
            index = np.flatnonzero(failed)
            if len(index):
                pairs.inverses[index], pairs.scales[index] = 0.0, 1.0
                found, _, failed[index] = self.steepest(state.pick(index), np.ones(len(index), dtype=bool))
                after.put_(index, found)
        self._remember(pairs, after.x - state.x, after.gradient - state.gradient)
        return after, failed

    def _remember(self, pairs: "_Pairs", change: Tensor, turn: Tensor) -> None:
        """The new pair, in the place of the oldest."""
        slot = self._order[0] if len(self._order) == self._memory else len(self._order)
        self._order.append(slot)
        inner, square, turned = dots(change, turn), dots(change, change), dots(turn, turn)
        good = inner > 1e-10 * np.sqrt(square * turned)
        size, turned_size = np.sqrt(square), np.sqrt(turned)
        pairs.vectors[:, slot, 0] = change.mul_(column(np.where(good, 1 / size, 0.0)))
        pairs.vectors[:, slot, 1] = turn.mul_(column(np.where(good, 1 / turned_size, 0.0)))
        pairs.inverses[:, slot] = np.where(good, size * turned_size / inner, 0.0)
        pairs.ratios[:, slot] = np.where(good, size / turned_size, 0.0)
        pairs.scales[:] = np.where(good, inner / turned, pairs.scales)

    def _direction(self, pairs: "_Pairs", gradient: Tensor) -> Tensor:
        newest, used = self._order[-1], len(self._order)
        length = np.sqrt(dots(gradient, gradient))
        probes = torch.empty(len(length), 2, gradient.shape[1])
        probes[:, 0] = gradient * column(-1 / length)
        probes[:, 1] = pairs.vectors[:, newest, 1]
        vectors = pairs.vectors[:, :used].flatten(1, 2).numpy()
        products = np.matmul(probes.numpy(), vectors.mT).astype(np.float64).reshape(-1, 2, used, 2)
        pairs.crossed[:, :used, newest] = products[:, 1, :, 0]
        pairs.turned[:, :used, newest] = pairs.turned[:, newest, :used] = products[:, 1, :, 1]
        first, second = np.zeros((2, len(length), used))
        for slot in reversed(self._order):
            rest = products[:, 0, slot, 0] - np.vecdot(pairs.crossed[:, slot, :used], first)
            first[:, slot] = rest * pairs.inverses[:, slot]
        scales = pairs.scales[:, None]
        turns = np.matmul(pairs.turned[:, :used, :used], first[:, :, None])[:, :, 0]
        rest = scales * (products[:, 0, :, 1] - turns)
        for slot in self._order:
            inner = rest[:, slot] + np.vecdot(pairs.crossed[:, :used, slot], second)
            second[:, slot] = first[:, slot] * pairs.ratios[:, slot] - inner * pairs.inverses[:, slot]
        shares = np.stack([second, -scales * first], 2).reshape(-1, 1, 2 * used).astype(np.float32)
        moves = torch.from_numpy(np.matmul(shares, vectors)[:, 0])
        moves.addcmul_(probes[:, 0], column(pairs.scales.astype(np.float32)))
        return moves.double().mul_(column(length))

    def keep(self, index: np.ndarray) -> None:
        """Only these trials go on."""
        if self._pairs is not None:
            self._pairs = self._pairs.pick(index)


class _Pairs(NamedTuple):
    """What L-BFGS remembers of each trial, in ``memory`` slots."""

    vectors: Float[Tensor, "T m 2 D"]
    """U and v of each slot, in single precision."""
    crossed: np.ndarray
    """<u_i, v_j> where j is not older than i (T, m, m); the rest means nothing."""
    turned: np.ndarray
    """<v_i, v_j> (T, m, m)."""
    inverses: np.ndarray
    """1/<u, v> (T, m); 0 for no pair."""
    ratios: np.ndarray
    """|s|/|y| (T, m)."""
    scales: Numbers
    """<s, y>/<y, y> of the last pair (T,)."""

    @staticmethod
    def of(trials: int, entries: int, memory: int) -> "_Pairs":
        """No pairs."""
        vectors = torch.zeros(trials, memory, 2, entries)
        crossed, turned = np.zeros((2, trials, memory, memory))
        inverses, ratios = np.zeros((2, trials, memory))
        return _Pairs(vectors, crossed, turned, inverses, ratios, np.ones(trials))

    def pick(self, index: np.ndarray) -> "_Pairs":
        """Only these trials."""
        return _Pairs(
            self.vectors[torch.from_numpy(index)],
            self.crossed[index],
            self.turned[index],
            self.inverses[index],
            self.ratios[index],
            self.scales[index],
        )
