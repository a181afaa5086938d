"""Certificates of the regularised model.

In the logits the model is min_{Z, b} g(Z + 1b') + mu |Z|_* + lb/2 |b|^2, mu = sqrt(lW lH) (rank Z <= d). For any L with
spectral norm at most mu, -g*(L) - |L'1|^2/(2 lb) is a lower bound: L'1 = 0 is needed for lb = 0, and the last term is
absent without a bias. It is absent too for balanced losses of margins, where by symmetrisation b = 0 is optimal.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._support.numerics import eigh
from ...losses import SquaredError
from ..duality import best_on_ray, feasible_free_bias, levelled, refit_bias, spectral_norm, top_singular_pair
from ..point import Point
from ..results import Certificate
from ..verdict import PointEvidence, doubt_of_bound, judge_point, proved_minimum, value_scale
from .nonnegative import certify_nonnegative

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["certify_regularized"]


def certify_regularized(problem: "RegularizedUFM", point: Point, tolerance: float) -> Certificate:
    """Duality gap, spectral ratio |grad g| / mu (geometric, Lemma E.4) and escape direction at ``point``."""
    state = problem.linearize(point)
    lower, source = _lower_bound(problem, point)
    slope = state.logit_gradient
    size = max(1.0, *(float(block.norm()) for block in point.blocks))
    scale = float(slope.norm()) * size + max(problem.weight_decay, problem.feature_decay) * size
    largest = float((point.H @ point.classifier.T).abs().max())
    if problem.nonnegative:
        return certify_nonnegative(problem, point, tolerance, lower, scale)
    norm, left, right = top_singular_pair(slope)
    evidence = PointEvidence(
        lower_bound=lower,
        bound_source=source,
        value_scale=value_scale(problem.loss, problem.num_classes, largest),
        gradient_scale=scale,
        curvature_scale=norm + problem.mu,
        spectral_ratio=norm / problem.mu if problem.mu > 0 else None,
        directions=_escape_directions(problem, point, norm, left, right),
        doubt=_doubt(problem),
    )
    return judge_point(problem, point, state, evidence, tolerance)


def _lower_bound(problem: "RegularizedUFM", point: Point) -> tuple[float, str]:
    dual = _dual_bound(problem, point) if problem.loss.has_conjugate else -math.inf
    closed = _rigorous_closed_form(problem)
    if closed is not None and closed > dual:
        return closed, "closed form"
    return dual, "Fenchel dual" if problem.loss.has_conjugate else "none"


def _dual_bound(problem: "RegularizedUFM", point: Point) -> float:
    loss, labels, decay = problem.loss, problem.labels, problem.bias_decay
    logits = point.H @ point.classifier.T
    symmetric = problem.balanced and loss.depends_on_margins is True
    if point.b is not None:
        bias = point.b if symmetric else refit_bias(loss, logits, labels, decay or 0.0, point.b)
        logits += bias
    rows = loss.dual_rows(logits, labels)
    penalised = decay is not None and not symmetric
    if penalised and decay == 0:
        rows = feasible_free_bias(rows, loss, labels)
    count = problem.num_samples

    def bound(dual: Tensor, c: float) -> float:
        sums = c**2 * float(dual.sum(0).square().sum()) / count**2
        penalty = sums / (2 * decay) if penalised and decay else 0.0
        return -float(loss.conjugate(c * dual, labels).mean()) - penalty

    norm = spectral_norm(rows) / count
    reach = loss.dual_reach(rows)
    best = best_on_ray(lambda c: bound(rows, c), min(problem.mu / norm, reach) if norm > 0 else reach)
    return max(best, *(bound(dual, 1.0) for dual, _ in levelled(rows, count * problem.mu)), -math.inf)


def _rigorous_closed_form(problem: "RegularizedUFM") -> float | None:
    """f* where it is proved but the convex dual cannot reach it: a rank constraint, or a non-convex loss."""
    loss = problem.loss
    if problem.mu == 0 or problem.nonnegative:
        return None
    if isinstance(loss, SquaredError) and problem.dim < problem.num_classes:
        # Other counts than equal ones have a closed form for plain targets, without a bias or with a free one.
        known = problem.balanced or (loss.alpha == 1 and problem.bias_decay in (None, 0.0))
        return proved_minimum(problem) if known else None
    if problem.balanced and loss.depends_on_margins and not loss.is_convex:
        return proved_minimum(problem)
    return None


def _doubt(problem: "RegularizedUFM") -> str:
    doubt = doubt_of_bound(problem.loss)
    if not doubt and problem.dim < problem.num_classes:
        return "dim < num_classes restricts the rank, which the convex bound does not see"
    return doubt


def _escape_directions(
    problem: "RegularizedUFM", point: Point, norm: float, left: Tensor, right: Tensor
) -> Iterator[Point]:
    """dW = (lH/lW)^(1/4) u a', dH = -(lW/lH)^(1/4) v a': curvature -2 (|G| - mu) before scaling to unit length.

    u and v are G's top singular vectors (of its columns and its rows), a is a unit vector in the null space of W and H
    (geometric, eq. (39)).
    """
    if problem.mu == 0 or norm <= problem.mu:
        return
    gram = point.classifier.T @ point.classifier + point.H.T @ point.H
    values, vectors = eigh(gram)
    if float(values[0]) > 1e-12 * max(float(values[-1]), 1e-300):
        return
    null = vectors[:, 0]
    ratio = (problem.feature_decay / problem.weight_decay) ** 0.25
    bias = None if point.b is None else torch.zeros_like(point.b)
    yield Point(ratio * torch.outer(right, null), -torch.outer(left, null) / ratio, bias)
