"""How collapsed a point is: the measures of :mod:`neuralcollapse.metrics`, on features sorted by class.

A name means the same number in a history and in a report; where a report has a reason, a history has ``None``.
"""

from collections.abc import Sequence

import torch

from ...metrics import METRICS, ClassStatistics, NotApplicableError, SampleResults, geometry_of
from ...metrics.accumulators.second_pass import SecondPass, Task
from ..point import Point

__all__ = ["MEASURES", "PointCollapse"]

SPREAD = frozenset({"within", "projection"})
MEASURES = tuple(name for name, metric in METRICS.items() if metric.needs <= SPREAD | {"weight"})
"""What the means, the spread within classes and the classifier give."""


class PointCollapse:
    """The geometry of a point's class means, as a report has it, and the measures that it gives.

    Nothing is checked and nothing sorted: the features of a point are finite, and stand class by class.
    """

    def __init__(self, point: Point, counts: Sequence[int]):
        self._features = point.H
        self._sizes = sizes = torch.tensor(counts)
        if len(set(counts)) == 1:
            means = point.H.view(len(counts), counts[0], -1).mean(1)
        else:
            means = torch.stack([rows.mean(0) for rows in torch.split(point.H, list(counts))])
        self._geometry = geometry_of(ClassStatistics.from_moments(sizes, means), point.W, point.b, SampleResults())
        self._complete = False

    def measure(self, name: str) -> float | None:
        """The measure ``name``, or ``None`` where it does not apply."""
        metric = METRICS[name]
        if metric.needs & SPREAD and not self._complete:
            self._add_spread()
        try:
            return metric.compute(self._geometry)
        except NotApplicableError:
            return None

    def _add_spread(self) -> None:
        """A second look at the features, by the accumulators of every report."""
        second = SecondPass(Task(self._geometry, (), SPREAD, len(self._sizes)))
        second.add(self._features, torch.repeat_interleave(torch.arange(len(self._sizes)), self._sizes))
        variances = second.class_squares() / self._sizes
        self._geometry = self._geometry.with_samples(second.results(), variances, None, {})
        self._complete = True
