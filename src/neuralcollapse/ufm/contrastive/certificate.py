"""Certificates of the contrastive model.

The loss is convex in the similarities S = tau^2 X, X = H H' positive semidefinite with unit diagonal. With G its
(symmetric) gradient in S and any y (N,), f >= f(S) + <G, S' - S>, and for every such X'
<G, X'> >= sum y + N min(0, lambda_min(G - diag y)). At a critical point y_i = <h_i, (G H)_i> makes the bound tight
whenever G - diag y is semidefinite.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._support.numerics import eigh
from ..point import Point
from ..results import Certificate
from ..verdict import PointEvidence, judge_point
from .optimum import contrastive_value

if TYPE_CHECKING:
    from .model import ContrastiveUFM

__all__ = ["certify_contrastive"]

DENSE_LIMIT = 2500
"""Most samples for which the N x N dual matrix is built."""


def certify_contrastive(problem: "ContrastiveUFM", point: Point, tolerance: float) -> Certificate:
    """Semidefinite duality gap and escape direction at ``point``."""
    state = problem.linearize(point)
    counts = torch.tensor(problem.counts, dtype=torch.float64)
    # Dropping all negative pairs leaves log(n_k - 1) at the least.
    lower, source = float((counts * (counts - 1).log()).sum() / counts.sum()), "positive pairs alone"
    if problem.balanced and contrastive_value(problem) > lower:
        lower, source = contrastive_value(problem), "closed form"
    directions: Iterator[Point] = iter(())
    if problem.num_samples <= DENSE_LIMIT:
        pairs = state.loss.pair_gradient()
        shift = torch.linalg.vecdot(point.H, pairs @ point.H, dim=1)
        values, vectors = eigh(pairs - torch.diag(shift))
        slack = problem.num_samples * min(0.0, float(values[0]))
        dual = state.value + problem.temperature**2 * slack
        if dual > lower:
            lower, source = dual, "semidefinite dual"
        directions = _escape_directions(point, vectors[:, 0])
    evidence = PointEvidence(
        lower_bound=lower,
        bound_source=source,
        value_scale=problem.temperature**2,
        gradient_scale=problem.temperature**2 / math.sqrt(problem.num_samples),
        curvature_scale=problem.temperature**2 / problem.num_samples,
        spectral_ratio=None,
        directions=directions,
        doubt="" if problem.dim >= problem.num_classes - 1 else "dim < num_classes - 1 leaves no room for a simplex",
    )
    return judge_point(problem, point, state, evidence, tolerance)


def _escape_directions(point: Point, vector: Tensor) -> Iterator[Point]:
    """dH = v a' with H a = 0 and v the lowest eigenvector of G - diag y: curvature 2 tau^2 lambda_min."""
    values, vectors = eigh(point.H.T @ point.H)
    if float(values[0]) <= 1e-12 * float(values[-1]):
        yield Point(None, torch.outer(vector, vectors[:, 0]))
