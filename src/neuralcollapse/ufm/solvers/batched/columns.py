"""What histories of many trials hold, for all trials at once where that is quick."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...._support.files import json_number
from ...normalized import NormalizedUFM
from ...regularized import RegularizedUFM
from ...results import HistoryColumn
from ..history import OF_STATE, Snapshot
from .model import Points

__all__ = ["Columns"]

CLEAR = 1e-6
"""Singular values of the class means above this share of the largest are no rounding: all trials at once will do."""


class Columns:
    """The columns of a record at many points."""

    def __init__(self, problem: RegularizedUFM | NormalizedUFM, record: Sequence[str], minimum: float | None):
        self._problem, self._record, self._minimum = problem, record, minimum
        self._objective = problem.objective()
        counts = np.array(problem.counts, dtype=np.float64)
        self._weights = counts / counts.sum()
        self._averages = np.equal.outer(np.arange(len(counts)), problem.labels.numpy()) / counts[:, None]
        self._basis = np.linalg.qr(counts[:, None], mode="complete").Q[:, 1:]
        self.need_points = bool(set(record) - OF_STATE)

    def at(self, points: Points | None, values: list[float], norms: list[float]) -> dict[str, HistoryColumn]:
        """One entry a point in each column; ``values`` and ``norms`` (of the gradient) are known.

        ``points`` may be None where the columns do not need them.
        """
        found: dict[str, HistoryColumn] = {}
        finite = all(math.isfinite(value + norm) for value, norm in zip(values, norms, strict=True))
        for name in self._record:
            if name == "value":
                found[name] = [json_number(value) for value in values]
            elif name == "gradient_norm":
                found[name] = [json_number(norm) for norm in norms]
            elif name == "gap":
                found[name] = [
                    None if self._minimum is None else json_number(value - self._minimum) for value in values
                ]
            elif points is None:
                raise ValueError(f"the column {name!r} needs points")
            elif name == "accuracy" and finite:
                found[name] = self._accuracies(points)
            elif name == "nc1" and finite:
                found[name] = self._nc1(points)
            else:
                found[name] = [self._single(name, points, trial) for trial in range(len(values))]
        return found

    def _single(self, name: str, points: Points, trial: int) -> float | None:
        state = self._objective.state(self._objective.flatten(points[trial]))
        return Snapshot(self._objective, state, self._minimum).entry(name)

    def _accuracies(self, points: Points) -> HistoryColumn:
        logits = np.matmul(points.H.numpy(), points.W.mT.numpy())
        if points.b is not None:
            logits += points.b[:, None].numpy()
        hits = (logits.argmax(2) == self._problem.labels.numpy()).sum(1)
        return [count / self._problem.num_samples for count in hits.tolist()]

    def _nc1(self, points: Points) -> HistoryColumn:
        """The mean of |M^+ r|^2 over the samples' residuals r, M (d, K) the centred class means of clear rank.

        The columns of M add up to nothing when they are weighted by the counts: with an orthonormal basis Q of all that
        is orthogonal to the counts, |M^+ r| = |(M Q)^+ r|, and M Q has full rank: its QR decomposition gives the rest.
        """
        features = points.H.numpy()
        means = np.matmul(self._averages, features)
        centre = np.matmul(self._weights, means)
        spanning = torch.from_numpy(np.matmul((means - centre[:, None]).mT, self._basis))
        if self._problem.dim >= spanning.shape[2]:
            directions, triangle = torch.linalg.qr(spanning)
            inverse = _inverted(triangle)
            solution = np.matmul(directions.numpy(), inverse.mT)
        else:
            triangle = torch.linalg.qr(spanning.mT).R
            solution = inverse = _inverted(triangle)
        solved = np.matmul(features, solution)
        solved -= np.matmul(self._averages, solved).take(self._problem.labels.numpy(), 1)
        numbers = np.square(solved).sum((1, 2)) / self._problem.num_samples
        largest = np.maximum(np.sqrt(np.square(triangle.numpy()).sum((1, 2))), abs(centre).max(1))
        clear = (np.sqrt(np.square(inverse).sum((1, 2))) * largest < 1 / CLEAR) & (max(self._problem.counts) > 1)
        return [
            number if safe else self._single("nc1", points, trial)
            for trial, (number, safe) in enumerate(zip(numbers.tolist(), clear.tolist(), strict=True))
        ]


def _inverted(triangles: Tensor) -> np.ndarray:
    unit = torch.eye(triangles.shape[1], dtype=torch.float64).expand_as(triangles)
    return torch.linalg.solve_triangular(triangles, unit, upper=True).numpy()
