"""How collapsed a point is: the measures of :mod:`neuralcollapse.metrics`, on features sorted by class.

A name means the same number in a history and in a report; where a report has a reason, a history has ``None``.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ...metrics import METRICS, Geometry, NotApplicableError, SampleResults
from ..point import Point

__all__ = ["MEASURES", "PointCollapse"]

MEASURES = tuple(name for name, metric in METRICS.items() if metric.needs <= {"within", "projection", "weight"})
"""What the means, the spread within classes and the classifier give."""


class PointCollapse:
    """Class means of the features of a point, and the measures that they give."""

    def __init__(self, point: Point, counts: Sequence[int]):
        self._features = point.H
        self._sizes = torch.tensor(counts)
        balanced = len(set(counts)) == 1
        if balanced:
            means = point.H.view(len(counts), counts[0], -1).mean(1)
        else:
            means = torch.stack([rows.mean(0) for rows in torch.split(point.H, list(counts))])
        # The sample mean: that of the means where classes are equally large.
        centre = (self._sizes.to(torch.float64) / sum(counts)) @ means
        self._means = means
        self._geometry = Geometry(
            self._sizes,
            means - centre,
            centre,
            torch.zeros(len(counts), dtype=torch.float64),
            None,
            point.W,
            point.b,
            SampleResults(),
        )
        self._complete = False

    def measure(self, name: str) -> float | None:
        """The measure ``name``, or ``None`` where it does not apply."""
        metric = METRICS[name]
        if metric.needs & {"within", "projection"} and not self._complete:
            self._add_spread()
        try:
            return metric.compute(self._geometry)
        except NotApplicableError:
            return None

    def _add_spread(self) -> None:
        residuals: Float[Tensor, "N d"] = self._features - torch.repeat_interleave(self._means, self._sizes, dim=0)
        squares = residuals.square().sum(1)
        labels = torch.repeat_interleave(torch.arange(len(self._sizes)), self._sizes)
        variances = torch.zeros(len(self._sizes), dtype=torch.float64).index_add_(0, labels, squares) / self._sizes
        along = (residuals @ self._geometry.full_spectrum.directions).square().mean(0)
        self._geometry = self._geometry.with_samples(SampleResults(along=along), variances, None, {})
        self._complete = True
