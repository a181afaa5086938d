"""The steps of gradient descent and conjugate gradients for many trials at once.

Each does what the single method of its name does; the metric is plain, since :class:`BatchModel` has scaled its blocks.
"""

from abc import ABC, abstractmethod
from collections import deque

import numpy as np

from ..methods import gradient_descent
from .model import BatchModel, BatchState, Numbers, Survivors, Vectors, places
from .search import backtrack, search

__all__ = ["BatchConjugateGradient", "BatchGradientDescent", "BatchMethod"]


class BatchMethod(ABC):
    """What a method keeps from one step of all trials to the next."""

    def __init__(self, model: BatchModel):
        self.model = model

    @abstractmethod
    def step(self, state: BatchState) -> tuple[BatchState, Numbers]:
        """The next states, and which trials can go no further (their new state is arbitrary)."""

    @abstractmethod
    def keep(self, survivors: Survivors) -> None:
        """Only these trials go on."""

    def rounding(self, state: BatchState) -> Numbers:
        """Changes of the values below these may be rounding."""
        return np.maximum(1e-15 * abs(state.values), self.model.noise)

    def steepest(self, state: BatchState) -> tuple[BatchState, Numbers, Numbers]:
        """A nearly exact step along the gradient, its length, and which trials found no decrease."""
        guess = np.full(len(state.values), self.model.unit_step)
        return search(self.model, state, -state.gradient, -state.square, guess, self.rounding(state))


class BatchGradientDescent(BatchMethod):
    """Barzilai and Borwein's trial step, shortened until the value falls below the largest of the last ones."""

    def __init__(self, model: BatchModel, window: int):
        super().__init__(model)
        self._recent: deque[Numbers] = deque(maxlen=window)
        self._last: tuple[Vectors, Numbers, Numbers] | None = None

    def step(self, state: BatchState) -> tuple[BatchState, Numbers]:
        """A step along the gradient for all."""
        self._recent.append(state.values)
        square = state.square
        if self._last is None:
            after, lengths, failed = self.steepest(state)
        else:
            before, length, old_square = self._last
            # s = -length grad, y = grad' - grad: <s, s> / <s, y>.
            turned = old_square - np.vecdot(before, state.gradient)
            trial = np.where(turned > 0, length * old_square / turned, 2 * length)
            # Backwards along the gradient: no vector is made of its negative.
            lengths = -np.clip(trial, 1e-3 * length, 1e3 * length)
            bound = np.max(self._recent, axis=0) + self.rounding(state)
            after, failed = backtrack(
                self.model, state, state.gradient, square, lengths, bound, gradient_descent.TRIALS
            )
            lengths = -lengths
        self._last = state.gradient, lengths, square
        return after, failed

    def keep(self, survivors: Survivors) -> None:
        """Only these trials go on."""
        self._recent = deque((survivors.of(values) for values in self._recent), maxlen=self._recent.maxlen)
        if self._last is not None:
            gradient, lengths, square = self._last
            self._last = survivors.of(gradient), survivors.of(lengths), survivors.of(square)


class BatchConjugateGradient(BatchMethod):
    """Polak and Ribiere's directions with a nearly exact search along each."""

    def __init__(self, model: BatchModel):
        super().__init__(model)
        self._carried: tuple[Vectors, Vectors, Numbers] | None = None
        self._guess = np.ones(0)

    def step(self, state: BatchState) -> tuple[BatchState, Numbers]:
        """A search along each direction; along the gradient where that fails."""
        size = state.square
        if self._carried is None:
            direction, slope = -state.gradient, -size
            self._guess = np.full(len(size), self.model.unit_step)
        else:
            old, before, old_size = self._carried
            beta = np.maximum((size - np.vecdot(state.gradient, before)) / old_size, 0.0)
            direction = self.model.project_(state.x, old)
            direction *= beta[:, None]
            direction -= state.gradient
            slope = np.vecdot(state.gradient, direction)
            weak = places(~(slope < -1e-8 * size))
            if len(weak):
                direction[weak] = -state.gradient[weak]
                slope[weak] = -size[weak]
        after, lengths, failed = search(self.model, state, direction, slope, self._guess, self.rounding(state))
        again = places(failed & (slope != -size))
        if len(again):
            part = state.pick(again)
            found, lengths[again], failed[again] = self.steepest(part)
            after.put_(again, found)
            direction[again] = -part.gradient
        self._carried = direction, state.gradient, size
        self._guess = 2 * lengths
        return after, failed

    def keep(self, survivors: Survivors) -> None:
        """Only these trials go on."""
        if self._carried is not None:
            direction, gradient, size = self._carried
            self._carried = survivors.of(direction), survivors.of(gradient), survivors.of(size)
            self._guess = survivors.of(self._guess)
