"""What a history holds, and how often it can hold it at little cost."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from ..._support.checks import describe
from ..._support.files import json_number
from ..._support.registry import unknown_name
from ..objectives.base import Objective, State
from ..point import Point
from ..results import HistoryColumn, HistoryRow
from .collapse import MEASURES, PointCollapse
from .method import Method

__all__ = ["COLUMNS", "HistoryRecorder", "check_record", "sparing_interval"]

CALL = 75_000.0
"""The price of a small tensor operation, in multiplications."""
SHARE = 0.04
"""The share of an iteration that recording may cost; the first and the last row come on top."""


class Snapshot:
    """A state, with what several columns share computed once."""

    def __init__(self, objective: Objective, state: State, minimum: float | None):
        self.objective, self.state, self.minimum = objective, state, minimum

    @cached_property
    def point(self) -> Point:
        """The point, as views."""
        return self.objective.point(self.state.x)

    @cached_property
    def collapse(self) -> PointCollapse:
        """The class means of the features."""
        return PointCollapse(self.point, self.objective.problem.counts)

    def collapse_measure(self, name: str) -> float | None:
        """A measure of collapse; None where samples have no classes."""
        return self.collapse.measure(name) if self.objective.problem.has_classes else None

    def accuracy(self) -> float | None:
        """The share of samples whose largest logit is that of their class; None without a classifier."""
        logits = self.state.logits
        if logits is None:
            return None
        return int((logits.argmax(1) == self.objective.problem.labels).sum()) / len(logits)

    def certified_gap(self) -> float | None:
        """The value less a rigorous lower bound on the minimum."""
        return self.objective.problem.certify(self.point).gap

    def entry(self, name: str) -> float | None:
        """What the column ``name`` holds here; None for no finite value, and for all that a diverged point has not."""
        diverged = not math.isfinite(self.state.value + self.state.gradient_norm)
        return None if diverged and name not in OF_STATE else json_number(COLUMNS[name].measure(self))


@dataclass(frozen=True)
class PricedColumn:
    """How a measure is computed, and what it costs: products of order N K d, small operations, decompositions."""

    measure: Callable[[Snapshot], float | None]
    products: float = 0.0
    calls: int = 2
    decompositions: int = 0


COLUMNS: dict[str, PricedColumn] = {
    "value": PricedColumn(lambda shot: shot.state.value, calls=0),
    "gradient_norm": PricedColumn(lambda shot: shot.state.gradient_norm, calls=1),
    "gap": PricedColumn(lambda shot: None if shot.minimum is None else shot.state.value - shot.minimum, calls=0),
    "certified_gap": PricedColumn(Snapshot.certified_gap, products=12, calls=300, decompositions=2),
    "accuracy": PricedColumn(Snapshot.accuracy, products=0.1, calls=4),
}
OF_STATE = frozenset({"value", "gradient_norm", "gap"})
"""Columns that a state gives without its point."""
PRICES = {"nc1": {"products": 1.5, "calls": 30, "decompositions": 1}, "nc2": {"calls": 10}, "nc3": {"calls": 20}}
PROJECTED = {"products": 1.0, "calls": 60, "decompositions": 2}


def _collapse_column(name: str) -> PricedColumn:
    price = PRICES.get(name, PROJECTED if name.endswith("_projected") else {"products": 1.0, "calls": 30})
    return PricedColumn(lambda shot: shot.collapse_measure(name), **price)  # pyright: ignore[reportArgumentType]


COLUMNS |= {name: _collapse_column(name) for name in MEASURES}


USUAL = ("value", "nc1", "accuracy")
POINTS = "points"
"""Not a column: keeps the point of each row."""


def check_record(record: Sequence[str]) -> tuple[str, ...]:
    """The columns asked for, once each; the word "points" alone is the usual ones with the points."""
    if record == POINTS:
        return *USUAL, POINTS
    if isinstance(record, str) or not all(isinstance(name, str) for name in record):
        raise TypeError(f"record must be a sequence of names, got {describe(record)}")
    for name in record:
        if name not in COLUMNS and name != POINTS:
            raise unknown_name("measure to record", name, [*COLUMNS, POINTS])
    return tuple(dict.fromkeys(record))


def sparing_interval(objective: Objective, method: Method, record: Sequence[str]) -> int:
    """Every how many iterations the columns can be recorded for at most SHARE of the iterations' cost.

    By count of operations, not by the clock: a history does not depend on how busy the machine was.
    """
    problem = objective.problem
    decomposition = 12.0 * problem.num_classes * problem.num_classes * min(problem.dim, problem.num_samples)
    price = 0.0
    for name in (name for name in record if name != POINTS):
        column = COLUMNS[name]
        price += column.products * objective.work + column.calls * CALL + column.decompositions * decomposition
    # A product comes with the softmax's passes over the logits, and with some ten small operations.
    iteration = method.products * (2.2 * objective.work + 10 * CALL)
    return max(1, math.ceil(price / (SHARE * iteration)))


class HistoryRecorder:
    """A growing history: columns of equal length, with the iteration and the seconds since the start."""

    def __init__(self, objective: Objective, record: Sequence[str], every: int, minimum: float | None):
        self._objective, self._minimum = objective, minimum
        self._record = [name for name in record if name != POINTS]
        self.points: list[Point] | None = [] if POINTS in record else None
        self.every = every
        self.columns: dict[str, HistoryColumn] = {n: [] for n in ("iteration", "seconds", *self._record)}
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    def add(self, iteration: int, state: State, last: bool = False) -> HistoryRow | None:
        """Record ``state`` if it is due (the first and the last always are); the new row."""
        seen = self.columns["iteration"]
        if (iteration % self.every and not last) or (seen and seen[-1] == iteration):
            return None
        shot = Snapshot(self._objective, state, self._minimum)
        row: HistoryRow = {"iteration": iteration, "seconds": self.seconds}
        row.update({name: shot.entry(name) for name in self._record})
        for name, entry in row.items():
            self.columns[name].append(entry)
        if self.points is not None:
            self.points.append(shot.point.map(torch.clone))
        return row
