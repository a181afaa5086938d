"""The steps of L-BFGS for many trials at once."""

import numpy as np

from ..methods import lbfgs
from .model import BatchModel, BatchState, Numbers, Survivors, Vectors, places
from .search import backtrack
from .steps import BatchMethod

__all__ = ["BatchLBFGS", "Pairs"]

CLEAR_TURN = 0.1
"""|y|/|g| above which differences of products with gradients in single precision have the digits that matter."""


class BatchLBFGS(BatchMethod):
    """A whole step along -B grad, B built from the last pairs; along the gradient where that does not descend."""

    def __init__(self, model: BatchModel, memory: int):
        super().__init__(model)
        self._memory = memory
        self._pairs: Pairs | None = None
        self._before: tuple[Vectors, Vectors] | None = None

    def step(self, state: BatchState) -> tuple[BatchState, Numbers]:
        """A step of each trial; where it fails along -B grad its pairs are forgotten."""
        if self._pairs is None or self._before is None:
            self._pairs = Pairs(len(state.x), state.x.shape[1], self._memory)
            after, _, failed = self.steepest(state)
        else:
            # The old points and gradients are used no more: their memory holds the differences.
            x, gradient = self._before
            change, turn = np.subtract(state.x, x, out=x), np.subtract(state.gradient, gradient, out=gradient)
            self._pairs.add(change, turn, state.gradient, np.sqrt(state.square))
            after, failed = self._whole_step(state, self._pairs)
        self._before = state.x, state.gradient
        return after, failed

    def _whole_step(self, state: BatchState, pairs: "Pairs") -> tuple[BatchState, Numbers]:
        """-B grad, shortened if need be; a direction that does not descend is tried once, and has failed."""
        direction, slope = pairs.direction()
        self.model.project_(state.x, direction)
        downhill = slope < 0
        bound = np.where(downhill, state.values + self.rounding(state), np.inf)
        lengths = np.ones(len(slope))
        after, failed = backtrack(self.model, state, direction, slope, lengths, bound, lbfgs.TRIALS)
        failed |= ~downhill
        index = places(failed)
        if len(index):
            pairs.forget(index)
            found, _, failed[index] = self.steepest(state.pick(index))
            after.put_(index, found)
        return after, failed

    def keep(self, survivors: Survivors) -> None:
        """Only these trials go on."""
        if self._pairs is not None and self._before is not None:
            self._pairs.keep(survivors)
            x, gradient = self._before
            self._before = survivors.of(x), survivors.of(gradient)


class Pairs:
    """The last ``memory`` pairs s, y of each trial, and the direction -B g that they give, in coefficients.

    With R = (<s_i, y_j>) for i not newer than j, and 0 for the rest, D its diagonal and c = <s, y>/<y, y> of the newest
    pair, Byrd, Nocedal and Schnabel (1994, theorem 2.2) write what the two loops compute as

        B g = c g - c Y a + S R^-T (D a - c (Y'g - Y'Y a)),    a = R^-1 S'g.

    R is never formed: a new pair adds a column to R^-1, and the oldest one takes its row and column along. A pair
    without positive curvature, or one that is forgotten, has zeros there.

    Vectors are most of what a step reads. They are kept in single precision, and read twice a step: for the products
    with g, and for the sum; products with a new y are differences of those with g. A direction that is off by 1e-6 of
    its length is as good; values, gradients and steps are in double precision.
    """

    def __init__(self, trials: int, entries: int, memory: int):
        self._memory, self._added = memory, 0
        self._vectors = np.empty((trials, 1 + 2 * memory, entries), dtype=np.float32)
        """g, then s and y of each slot: the pair k is in slot k modulo ``memory``."""
        self._slopes = np.zeros((trials, 1 + 2 * memory))
        """<g, u> of all vectors u."""
        self._inverse, self._turns = np.zeros((2, trials, memory, memory))
        """R^-1 and Y'Y, by slots."""
        self._inner = np.zeros((trials, memory))
        """D, by slots."""
        self._scale = np.ones(trials)
        """c; 1 where there is no pair."""

    def add(self, change: Vectors, turn: Vectors, gradient: Vectors, length: Numbers) -> None:
        """The pair of the last step, in the place of the oldest, and the gradient that it led to; ``length`` is |g|."""
        slot = self._added % self._memory
        self._added += 1
        s, y = 1 + 2 * slot, 2 + 2 * slot
        vectors = self._used(self._vectors)
        vectors[:, 0], vectors[:, s], vectors[:, y] = gradient, change, turn
        inner, square = np.vecdot(change, turn), np.vecdot(turn, turn)
        crossed = self._crossed(y, square < (CLEAR_TURN * length) ** 2)
        crossed[:, y] = square
        pivot, scale = 1 / inner, inner / square
        bad = places(~(inner > 1e-10 * np.sqrt(square * np.vecdot(vectors[:, s], vectors[:, s]))))
        if len(bad):
            crossed[bad], inner[bad], pivot[bad], scale[bad] = 0.0, 0.0, 0.0, self._scale[bad]
        pairs = crossed.shape[1] // 2
        self._scale, self._inner[:, slot] = scale, inner
        self._turns[:, :pairs, slot] = self._turns[:, slot, :pairs] = crossed[:, 2::2]
        # [[R, r], [0, p]] has the inverse [[R^-1, -R^-1 r/p], [0, 1/p]]; what the oldest pair had is in the slot's row.
        self._inverse[:, slot] = 0.0
        solved = np.matmul(self._inverse[:, :, :pairs], crossed[:, 1::2, None])[:, :, 0]
        self._inverse[:, :, slot] = solved * -pivot[:, None]
        self._inverse[:, slot, slot] = pivot

    def _used(self, arrays: np.ndarray) -> np.ndarray:
        """The part of g and of the pairs that there are."""
        return arrays[:, : 1 + 2 * min(self._added, self._memory)]

    def _crossed(self, newest: int, poor: Numbers) -> np.ndarray:
        """<u, y> of all vectors u and the newest y (T, n), as differences of <u, g>; where these are poor anew."""
        vectors, before = self._used(self._vectors), self._used(self._slopes)
        slopes = _products(vectors, vectors[:, 0])
        crossed = slopes - before
        before[:] = slopes
        index = places(poor)
        if len(index):
            again = vectors.take(index, 0)
            crossed[index] = _products(again, again[:, newest])
        return crossed

    def direction(self) -> tuple[Vectors, Numbers]:
        """-B g and -<g, B g>."""
        vectors, slopes = self._used(self._vectors), self._used(self._slopes)
        pairs, scale = slopes.shape[1] // 2, self._scale[:, None]
        inverse, turns = self._inverse[:, :pairs, :pairs], self._turns[:, :pairs, :pairs]
        along = np.matmul(inverse, slopes[:, 1::2, None])
        rest = slopes[:, 2::2] - np.matmul(turns, along)[:, :, 0]
        along = along[:, :, 0]
        shares = np.empty_like(slopes)
        shares[:, :1], shares[:, 2::2] = -scale, scale * along
        shares[:, 1::2] = np.matmul((scale * rest - self._inner[:, :pairs] * along)[:, None], inverse)[:, 0]
        total = np.matmul(shares[:, None].astype(np.float32), vectors)[:, 0]
        return total.astype(np.float64), np.vecdot(shares, slopes)

    def forget(self, index: np.ndarray) -> None:
        """These trials have no pairs any more."""
        self._inverse[index] = 0.0
        self._scale[index] = 1.0

    def keep(self, survivors: Survivors) -> None:
        """Only these trials go on."""
        self._vectors, self._slopes = survivors.of(self._vectors), survivors.of(self._slopes)
        self._inverse, self._turns = survivors.of(self._inverse), survivors.of(self._turns)
        self._inner, self._scale = survivors.of(self._inner), survivors.of(self._scale)


def _products(vectors: np.ndarray, probe: np.ndarray) -> np.ndarray:
    """<u, probe> of all vectors u (T, n)."""
    return np.matmul(vectors, probe[:, :, None])[:, :, 0].astype(np.float64)
