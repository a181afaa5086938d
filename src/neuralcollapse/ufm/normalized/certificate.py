"""Certificates of the normalised model.

For any dual L of g and any positive weights a (K,), b (N,) with |D_b^(-1/2) L D_a^(-1/2)| <= 1, unit rows satisfy
tau <L, H W'> >= -tau (sum a + sum b)/2, so -g*(L) - tau (sum a + sum b)/2 is a lower bound: no rank is assumed and no
symmetry. Two choices of weights are tried: uniform ones, and minus the multipliers alpha_k, beta_i of the point, which
are exact at a critical point that passes the spectral test.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._support.numerics import eigh
from ..duality import best_on_ray, levelled, top_singular_pair
from ..logit_problem import LogitLinearization
from ..point import Point
from ..results import Certificate
from ..verdict import PointEvidence, doubt_of_bound, judge_point, proved_minimum, value_scale

if TYPE_CHECKING:
    from .model import NormalizedUFM

__all__ = ["certify_normalized"]


def certify_normalized(problem: "NormalizedUFM", point: Point, tolerance: float) -> Certificate:
    """Duality gap, weighted spectral ratio and escape direction at ``point``."""
    state = problem.linearize(point)
    alpha, beta = state.alpha.squeeze(1), state.beta.squeeze(1)
    negative = bool((alpha < 0).all() and (beta < 0).all())
    ratio = top_singular_pair(_weighted(state.logit_gradient, -alpha, -beta))[0] if negative else None
    lower, source = -math.inf, "none"
    if problem.loss.has_conjugate:
        lower, source = _lower_bound(problem, point, -alpha, -beta), "Fenchel dual"
    closed = _rigorous_closed_form(problem)
    if closed is not None and closed > lower:
        lower, source = closed, "closed form"
    evidence = PointEvidence(
        lower_bound=lower,
        bound_source=source,
        value_scale=value_scale(problem.loss, problem.num_classes, problem.temperature),
        gradient_scale=problem.temperature * float(state.logit_gradient.norm()) * math.sqrt(problem.num_samples),
        curvature_scale=problem.temperature * float(state.logit_gradient.norm()),
        spectral_ratio=ratio,
        directions=_escape_directions(problem, point, state),
        doubt=_doubt(problem),
    )
    return judge_point(problem, point, state, evidence, tolerance)


def _weighted(slope: Tensor, class_weights: Tensor, sample_weights: Tensor) -> Tensor:
    """D_b^(-1/2) G D_a^(-1/2)."""
    return slope / sample_weights.sqrt()[:, None] / class_weights.sqrt()


def _lower_bound(problem: "NormalizedUFM", point: Point, class_pull: Tensor, sample_pull: Tensor) -> float:
    loss, labels, tau = problem.loss, problem.labels, problem.temperature
    rows = loss.dual_rows(tau * (point.H @ point.classifier.T), labels)
    dual = rows / problem.num_samples
    uniform = (
        torch.full_like(class_pull, 1 / problem.num_classes),
        torch.full_like(sample_pull, 1 / problem.num_samples),
    )
    choices = [uniform]
    if bool((class_pull > 0).all() and (sample_pull > 0).all()):
        choices.append((class_pull, sample_pull))
    bounds = []
    for class_weights, sample_weights in choices:
        norm = top_singular_pair(_weighted(dual, class_weights, sample_weights))[0]
        # Scaling both weights by c * norm makes them admissible for c * L.
        price = tau * norm * float(class_weights.sum() + sample_weights.sum()) / 2

        def bound(c: float, price: float = price) -> float:
            return -float(loss.conjugate(c * rows, labels).mean()) - c * price

        bounds.append(best_on_ray(bound, loss.dual_reach(rows)))
    price = tau * math.sqrt(problem.num_classes / problem.num_samples)
    bounds += [-float(loss.conjugate(dual, labels).mean()) - price * level for dual, level in levelled(rows, None)]
    return max(bounds)


def _rigorous_closed_form(problem: "NormalizedUFM") -> float | None:
    """f* where it is proved but the convex dual may not reach it: few dimensions."""
    if not problem.balanced or problem.dim >= problem.num_classes:
        return None
    return proved_minimum(problem)


def _doubt(problem: "NormalizedUFM") -> str:
    doubt = doubt_of_bound(problem.loss)
    if not doubt and problem.dim < problem.num_classes - 1:
        return "dim < num_classes - 1 leaves no room for a simplex, which the convex bound does not see"
    return doubt


def _escape_directions(problem: "NormalizedUFM", point: Point, state: LogitLinearization) -> Iterator[Point]:
    """Escape directions of normalized, Proposition 2, in their repaired form."""
    slope, alpha, beta = state.logit_gradient, state.alpha.squeeze(1), state.beta.squeeze(1)
    scale = float(slope.norm())
    zero_W, zero_H = torch.zeros_like(point.classifier), torch.zeros_like(point.H)
    null = _null_vector(point.classifier)
    if null is not None:
        # A multiplier of the wrong sign: turn that row into the null space. Curvature -tau beta_i (-tau alpha_k).
        sample, label = int(beta.argmax()), int(alpha.argmax())
        if float(beta[sample]) > 1e-9 * scale:
            turn = zero_H.clone()
            turn[sample] = null
            yield Point(zero_W, turn)
        if float(alpha[label]) > 1e-9 * scale:
            turn = zero_W.clone()
            turn[label] = null
            yield Point(turn, zero_H)
        if bool((alpha < 0).all() and (beta < 0).all()):
            # Case 2, weighted: curvature 2 tau (1 - ratio) before scaling; the printed bound needs more than it has.
            _, left, right = top_singular_pair(_weighted(slope, -alpha, -beta))
            yield Point(torch.outer(-right / (-alpha).sqrt(), null), torch.outer(left / (-beta).sqrt(), null))
    if float(beta.abs().max()) <= 1e-9 * scale:
        yield from _equal_classifiers(problem, point, state)


def _equal_classifiers(problem: "NormalizedUFM", point: Point, state: LogitLinearization) -> Iterator[Point]:
    """Case 1: all classifiers equal w. With u_k = +-1 and a perpendicular to w, dW = u a', dH = t (u_y a, tangent).

    beta = 0 makes the Hessian linear in t (times t), A - 2 B t, so a large t is negative for every temperature: the
    bound on tau that Proposition 2 asks for is not needed. The best t balances it against the direction's length.
    """
    _, vectors = eigh(point.H.T @ point.H + 2 * len(point.H) * torch.outer(point.classifier[0], point.classifier[0]))
    a = vectors[:, 0]
    signs = torch.ones(problem.num_classes, dtype=torch.float64)
    signs[1::2] = -1
    classifier = problem.project(point, Point(torch.outer(signs, a), torch.zeros_like(point.H)))
    features = problem.project(point, Point(torch.zeros_like(point.classifier), torch.outer(signs[problem.labels], a)))
    own = classifier.dot(state.hessian_vector(classifier))
    cross = classifier.dot(state.hessian_vector(features))
    flat = features.dot(state.hessian_vector(features))
    lengths = classifier.dot(classifier), features.dot(features)
    # The smallest generalised eigenpair of the 2 x 2 Hessian in the plane of the two.
    matrix = torch.tensor([[own, cross], [cross, flat]], dtype=torch.float64)
    root = torch.tensor([1 / math.sqrt(max(length, 1e-300)) for length in lengths], dtype=torch.float64)
    mixture = eigh(matrix * torch.outer(root, root))[1][:, 0] * root
    yield classifier * float(mixture[0]) + features * float(mixture[1])


def _null_vector(classifier: Tensor) -> Tensor | None:
    """A unit vector perpendicular to all classifiers, if there is one."""
    values, vectors = eigh(classifier.T @ classifier)
    return vectors[:, 0] if float(values[0]) <= 1e-12 * float(values[-1]) else None
