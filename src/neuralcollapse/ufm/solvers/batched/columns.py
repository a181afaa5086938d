"""What histories of many trials hold, for all trials at once where that is quick."""

from collections.abc import Sequence

import torch

from ...normalized import NormalizedUFM
from ...regularized import RegularizedUFM
from ..history import COLUMNS, Snapshot
from .model import Points

__all__ = ["Columns"]

CLEAR = 1e-6
"""Singular values of the class means above this share of the largest are no rounding: all trials at once will do."""

Column = list[float | int | None]


class Columns:
    """The columns of a record at many points."""

    def __init__(self, problem: RegularizedUFM | NormalizedUFM, record: Sequence[str], minimum: float | None):
        self._problem, self._record, self._minimum = problem, record, minimum
        self._objective = problem.objective()
        self.need_points = bool(set(record) - {"value", "gradient_norm", "gap"})

    def at(self, points: Points | None, values: list[float], norms: list[float]) -> dict[str, Column]:
        """One entry a point in each column; ``values`` and ``norms`` (of the gradient) are known.

        ``points`` may be None where the columns do not need them.
        """
        found: dict[str, Column] = {}
        for name in self._record:
            if name == "value":
                found[name] = list(values)
            elif name == "gradient_norm":
                found[name] = list(norms)
            elif name == "gap":
                found[name] = [None if self._minimum is None else value - self._minimum for value in values]
            elif points is None:
                raise ValueError(f"the column {name!r} needs points")
            elif name == "accuracy":
                found[name] = self._accuracies(points)
            elif name == "nc1":
                found[name] = self._nc1(points)
            else:
                found[name] = [self._single(name, points, trial) for trial in range(len(values))]
        return found

    def _single(self, name: str, points: Points, trial: int) -> float | None:
        state = self._objective.state(self._objective.flatten(points[trial]))
        return COLUMNS[name].measure(Snapshot(self._objective, state, self._minimum))

    def _accuracies(self, points: Points) -> Column:
        logits = torch.bmm(points.H, points.W.mT)
        if points.b is not None:
            logits += points.b[:, None]
        hits = (logits.argmax(2) == self._problem.labels).sum(1)
        return [count / self._problem.num_samples for count in hits.tolist()]

    def _nc1(self, points: Points) -> Column:
        """sum_i var(v_i'h) / s_i^2 with s_i, v_i of the centred class means, where their rank is clear."""
        features = points.H
        counts = torch.tensor(self._problem.counts, dtype=torch.float64)
        averaging = torch.nn.functional.one_hot(self._problem.labels, len(counts)).T / counts[:, None]
        means = averaging @ features
        centre = (counts / counts.sum()) @ means
        directions, sizes, _ = torch.linalg.svd((means - centre[:, None]).mT, full_matrices=False)
        rank = min(len(counts) - 1, self._problem.dim)
        residuals = features - means[:, self._problem.labels]
        along = torch.bmm(residuals, directions[:, :, :rank]).square().mean(1)
        numbers = (along / sizes[:, :rank].square()).sum(1).tolist()
        largest = torch.maximum(sizes[:, 0], centre.abs().amax(1))
        clear = (sizes[:, rank - 1] > CLEAR * largest) & (max(self._problem.counts) > 1)
        return [
            number if safe else self._single("nc1", points, trial)
            for trial, (number, safe) in enumerate(zip(numbers, clear.tolist(), strict=True))
        ]
