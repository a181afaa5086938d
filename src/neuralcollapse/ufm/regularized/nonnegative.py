"""Non-negative features, cross-entropy without a bias (geometric, footnote 17; Dang et al. 2024): any counts, d >= K.

Features of different classes are orthogonal, because entries cannot be negative, so every class pays alone:

    f* = sum_k min_{x >= 0} (n_k/N) log(1 + (K-1) e^(-x)) + mu sqrt(n_k (K-1)/K) x,

with class logits x_k (e_k - 1/K): the minimiser has p_other = min(1/K, N mu/(sqrt(n_k) sqrt(K(K-1)))).

Methods move square roots of the features (:class:`SquaredFeatures`). Certificates say what can be said without a convex
dual of the constraint: the free model's dual bound holds, since its points include these; where the closed form is
proved it is the bound. A point that satisfies the first-order conditions and whose gap stays open is "undecided":
spurious local minima exist.
"""

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ...losses import CrossEntropy
from ..objectives.pointwise import PointwiseObjective
from ..point import Point
from ..problem import ProblemLinearization
from ..results import GLOBAL_MINIMUM, NOT_CRITICAL, UNDECIDED, Certificate, Optimum, one_feature_a_class
from ..verdict import CRITICAL

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["SquaredFeatures", "certify_nonnegative", "nonnegative_optimum", "nonnegative_value"]


def class_margins(problem: "RegularizedUFM") -> list[float]:
    """x_k = log((1 - (K-1) q_k)/q_k) of each class."""
    classes, total = problem.num_classes, problem.num_samples
    margins = []
    for count in problem.counts:
        other = total * problem.mu / math.sqrt(count * classes * (classes - 1))
        margins.append(math.log(1 / other - classes + 1) if other * classes < 1 else 0.0)
    return margins


def nonnegative_value(problem: "RegularizedUFM") -> float | None:
    """f* (a lower bound for d < K, where it need not be attained), or None where it is not known."""
    loss = problem.loss
    if problem.mu == 0 or problem.has_bias or not isinstance(loss, CrossEntropy) or loss.class_weights is not None:
        return None
    classes = problem.num_classes
    terms = []
    for count, margin in zip(problem.counts, class_margins(problem), strict=True):
        fit = math.log1p((classes - 1) * math.exp(-margin))
        terms.append(count / problem.num_samples * fit)
        terms.append(problem.mu * math.sqrt(count * (classes - 1) / classes) * margin)
    return math.fsum(terms)


def nonnegative_optimum(problem: "RegularizedUFM") -> Optimum:
    """The closed form; NotImplementedError for other losses, a bias or d < K."""
    value, classes = nonnegative_value(problem), problem.num_classes
    if value is None:
        raise NotImplementedError(
            "with non-negative features a closed form is known for cross-entropy without a bias (and positive decays)"
        )
    if problem.dim < classes:
        raise NotImplementedError(
            f"no closed form is known for non-negative features with dim = {problem.dim} < num_classes = {classes}"
        )
    margins = class_margins(problem)
    learned = sum(margin > 0 for margin in margins)
    sizes = [
        math.sqrt(margin * math.sqrt(problem.weight_decay * (classes - 1) / (classes * problem.feature_decay * count)))
        for margin, count in zip(margins, problem.counts, strict=True)
    ]

    def arrays() -> tuple[Tensor, Tensor, None]:
        means = torch.zeros(classes, problem.dim, dtype=torch.float64)
        weight = torch.zeros(classes, problem.dim, dtype=torch.float64)
        for k, (size, margin) in enumerate(zip(sizes, margins, strict=True)):
            if margin > 0:
                means[k, k] = size
                weight[:, k] = -margin / (classes * size)
                weight[k, k] += margin / size
        return weight, means, None

    squares = [(m / s) ** 2 * (classes - 1) / classes if m > 0 else 0.0 for m, s in zip(margins, sizes, strict=True)]
    spread = math.fsum(n * s**2 for n, s in zip(problem.counts, sizes, strict=True)) / problem.num_samples
    return Optimum(
        value=value,
        regime="orthogonal features" if learned == classes else "minority collapse" if learned else "zero",
        logit_scale=math.fsum(margins) / classes,
        weight_norm=math.sqrt(math.fsum(squares) / classes),
        feature_norm=math.sqrt(spread),
        note="" if learned == classes else f"{learned} of {classes} classes are learned",
        **one_feature_a_class(arrays, lambda: problem.labels),
    )


class SquaredFeatures(PointwiseObjective):
    """Methods move (W, V, b); points are (W, V * V, b).

    Every minimum of the constrained model is one in V, and no new local minima arise (entries that stay at zero are
    left by any step that a start in general position allows).
    """

    def __init__(self, problem: "RegularizedUFM"):
        super().__init__(problem)
        self._model = problem

    def flatten(self, point: Point) -> Float[Tensor, " D"]:
        """W, sqrt(H), b as a new vector."""
        return Point(point.W, point.H.clamp(min=0).sqrt(), point.b).flatten()

    def point(self, x: Float[Tensor, " D"]) -> Point:
        """(W, V * V, b)."""
        raw = self.template.like(x)
        return Point(raw.W, raw.H.square(), raw.b)

    def linearize(self, x: Float[Tensor, " D"]) -> ProblemLinearization:
        """By the chain rule."""
        return SquaredLinearization(self._model, self.template.like(x))

    def retract(self, x: Float[Tensor, " D"], direction: Float[Tensor, " D"], length: float) -> Float[Tensor, " D"]:
        """A straight step."""
        return torch.add(x, direction, alpha=length)

    def project_(self, x: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """There is no constraint on V."""
        return vector

    def direction(self, vector: Float[Tensor, " D"]) -> Point:
        """A change of (W, V, b)."""
        return self.template.like(vector)


class SquaredLinearization(ProblemLinearization):
    """The model in (W, V, b): dH = 2 V dV."""

    def __init__(self, problem: "RegularizedUFM", raw: Point):
        self._raw = raw
        self._inner = problem.linearize(Point(raw.W, raw.H.square(), raw.b))
        self._slope = self._inner.gradient
        self.value = self._inner.value

    @property
    def gradient(self) -> Point:
        """(G_W, 2 V G_H, G_b)."""
        return Point(self._slope.W, 2 * self._raw.H * self._slope.H, self._slope.b)

    def hessian_vector(self, direction: Point) -> Point:
        """2 V (Hessian d)_H + 2 dV G_H in the features, with d = (dW, 2 V dV, db)."""
        product = self._inner.hessian_vector(Point(direction.W, 2 * self._raw.H * direction.H, direction.b))
        features = 2 * self._raw.H * product.H + 2 * direction.H * self._slope.H
        return Point(product.W, features, product.b)


def certify_nonnegative(
    problem: "RegularizedUFM", point: Point, tolerance: float, free_bound: float, gradient_scale: float
) -> Certificate:
    """From the free model's bound and the projected gradient."""
    state = problem.linearize(point)
    gradient = state.gradient
    # At zero only a push inwards counts.
    pushed = torch.where((point.H <= 0) & (gradient.H > 0), 0.0, gradient.H)
    norm = Point(gradient.W, pushed, gradient.b).norm()
    closed = nonnegative_value(problem)
    lower, source = (
        (closed, "closed form") if closed is not None else (free_bound, "Fenchel dual without the constraint")
    )
    gap = state.value - lower
    if gap <= tolerance * abs(state.value):
        verdict = GLOBAL_MINIMUM
        reason = f"the value is within {max(gap, 0.0):.1e} of a proved lower bound on the global minimum"
    elif norm > CRITICAL * gradient_scale:
        verdict = NOT_CRITICAL
        reason = f"the projected gradient norm is {norm:.1e}; the value is at most {gap:.3g} above the global minimum"
    else:
        verdict = UNDECIDED
        reason = f"first-order conditions hold, the gap of {gap:.3g} does not close, and spurious local minima exist"
    return Certificate(
        value=state.value,
        lower_bound=lower,
        gap=gap,
        gradient_norm=norm,
        verdict=verdict,
        reason=reason,
        bound_source=source,
    )
