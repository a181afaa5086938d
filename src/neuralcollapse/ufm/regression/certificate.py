"""Certificates of the regression model: the closed form as bound, or a dual one where a bias has a decay."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._support.numerics import eigh
from ..duality import best_on_ray, levelled, spectral_norm, top_singular_pair
from ..point import Point
from ..results import Certificate
from ..verdict import PointEvidence, judge_point

if TYPE_CHECKING:
    from .model import RegressionUFM

__all__ = ["certify_regression"]


def certify_regression(problem: "RegressionUFM", point: Point, tolerance: float) -> Certificate:
    """Gap, spectral ratio and the lemma's escape directions at ``point``."""
    state = problem.linearize(point)
    closed = problem.closed_form()
    lower, source = (_dual_bound(problem, point), "Fenchel dual") if closed is None else (closed.value, "closed form")
    slope = state.slope
    norm, left, right = top_singular_pair(slope)
    size = max(1.0, *(float(block.norm()) for block in point.blocks))
    evidence = PointEvidence(
        lower_bound=lower,
        bound_source=source,
        value_scale=float(problem.targets.square().sum()) / (2 * problem.num_samples),
        gradient_scale=(float(slope.norm()) + max(problem.weight_decay, problem.feature_decay)) * size,
        curvature_scale=norm + problem.mu,
        spectral_ratio=norm / problem.mu,
        directions=_escape_directions(problem, point, left, right),
        doubt="" if problem.dim >= problem.num_classes else "dim < the number of outputs restricts the rank",
    )
    return judge_point(problem, point, state, evidence, tolerance)


def _escape_directions(problem: "RegressionUFM", point: Point, left: Tensor, right: Tensor) -> Iterator[Point]:
    """A new pair along the weakest direction a of W and H: a null vector (Case I) or the least used (Case II)."""
    gram = point.classifier.T @ point.classifier + point.H.T @ point.H
    weakest = eigh(gram)[1][:, 0]
    bias = None if point.b is None else torch.zeros_like(point.b)
    balance = problem.balance
    yield Point(balance * torch.outer(right, weakest), -torch.outer(left, weakest) / balance, bias)


def _dual_bound(problem: "RegressionUFM", point: Point) -> float:
    """-<L, Y> - N/2 |L|^2 - |L'1|^2/(2 lb) for L = c G, |L| <= mu, with the best bias for these logits."""
    decay, count = problem.bias_decay or 0.0, problem.num_samples
    residual = point.H @ point.classifier.T - problem.targets
    slope = (residual - residual.mean(0) / (1 + decay)) / count

    def bound(dual: Tensor) -> float:
        sums = float(dual.sum(0).square().sum())
        return -float((dual * problem.targets).sum()) - count / 2 * float(dual.square().sum()) - sums / (2 * decay)

    norm = spectral_norm(slope)
    best = best_on_ray(lambda c: bound(c * slope), problem.mu / norm if norm > 0 else math.inf)
    return max(best, *(bound(dual) for dual, _ in levelled(slope, problem.mu)), -math.inf)
