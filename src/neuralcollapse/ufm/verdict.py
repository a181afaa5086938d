"""From bound, gradient and curvature to one verdict."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from ..losses import LogitLoss
from .point import Point
from .problem import Problem, ProblemLinearization
from .results import GLOBAL_MINIMUM, NOT_CRITICAL, STRICT_SADDLE, UNDECIDED, Certificate
from .spectrum import smallest_eigenpair

__all__ = ["PointEvidence", "doubt_of_bound", "judge_point", "proved_minimum", "value_scale"]

CRITICAL = 1e-7
"""A gradient below this share of its natural scale counts as zero."""
NEGATIVE = 1e-8
"""A curvature below minus this share of the natural scale (or the spectral radius) counts as negative."""

ROUNDING = 1e-15
"""A gap below this share of the value's scale is rounding; any other is judged relative to the value itself."""


@dataclass(frozen=True)
class PointEvidence:
    """What a model knows of a point before its curvature is looked at."""

    lower_bound: float
    bound_source: str
    value_scale: float
    """The size of numbers that cancel in the value (logits, the loss at zero): what rounding is relative to."""
    gradient_scale: float
    curvature_scale: float
    spectral_ratio: float | None
    directions: Iterable[Point]
    """Candidate escape directions from the papers' constructions, tried in order."""
    doubt: str
    """Why the bound may not close at a minimiser, or an empty string."""


def proved_minimum(problem: Problem) -> float | None:
    """The closed form's value, where there is one and it is proved."""
    optimum = problem.closed_form()
    return optimum.value if optimum is not None and optimum.proved else None


def value_scale(loss: LogitLoss, num_classes: int, largest: float) -> float:
    """The loss at zero logits and the largest logit: numbers that cancel in a small value."""
    zero = torch.zeros(1, num_classes, dtype=torch.float64)
    return abs(float(loss(zero, torch.tensor([0])))) + largest


def doubt_of_bound(loss: LogitLoss) -> str:
    """Why the loss's Fenchel bound may stay below the minimum, whatever the dimensions; empty for a convex loss."""
    if not loss.has_conjugate:
        return f"no conjugate of {loss.spec} is stated, so there is no lower bound"
    if loss.is_convex:
        return ""
    known = "is not known to be convex" if loss.convex_from is None else "is not convex"
    return f"{loss.spec} {known}, so its dual bound may stay below the minimum"


def judge_point(
    problem: Problem, point: Point, state: ProblemLinearization, evidence: PointEvidence, tolerance: float
) -> Certificate:
    """Global if the gap is within tolerance; else by gradient; else by curvature."""
    value, gap = state.value, state.value - evidence.lower_bound
    norm = state.gradient.norm()
    spectral = evidence.spectral_ratio
    escape: Point | None = None
    curvature: float | None = None
    if math.isfinite(value) and gap <= tolerance * abs(value) + ROUNDING * evidence.value_scale:
        verdict = GLOBAL_MINIMUM
        reason = f"the value is within {max(gap, 0.0):.1e} of a proved lower bound on the global minimum"
    elif norm > CRITICAL * evidence.gradient_scale:
        verdict = NOT_CRITICAL
        reason = f"the gradient norm is {norm:.1e}; the value is at most {gap:.3g} above the global minimum"
    else:
        escape, curvature, source, negative = _steepest(problem, point, state, evidence)
        if negative and _descends(problem, point, escape, value):
            verdict = STRICT_SADDLE
            reason = f"critical, with curvature {curvature:.3g} along {source}"
        else:
            verdict, escape = UNDECIDED, None
            what = "along which no step descends" if negative else "the smallest of the Hessian"
            reason = f"critical without clearly negative curvature ({curvature:.1e}, {what})"
            reason += (
                f", and the gap of {gap:.3g} does not close: {evidence.doubt or 'the point may be a local minimum'}"
            )
    return Certificate(
        value=value,
        lower_bound=evidence.lower_bound,
        gap=gap,
        gradient_norm=norm,
        verdict=verdict,
        reason=reason,
        bound_source=evidence.bound_source,
        spectral_ratio=spectral,
        escape=escape,
        curvature=curvature,
    )


def _descends(problem: Problem, point: Point, direction: Point, value: float) -> bool:
    """Whether some step to both sides lowers the value on average by more than rounding.

    The average leaves out what a gradient that is small but not zero adds, so a curvature of about its size, which a
    flat direction shows near a minimum, is not taken for a saddle.
    """
    noise = 1e-14 * abs(value)
    reach = max(1.0, point.norm())
    for power in range(0, 40, 2):
        step = direction * (reach * 0.5**power)
        sides = [problem.linearize(problem.retract(point, sign * step)).value for sign in (1.0, -1.0)]
        if sum(sides) / 2 < value - noise:
            return True
    return False


def _steepest(
    problem: Problem, point: Point, state: ProblemLinearization, evidence: PointEvidence
) -> tuple[Point, float, str, bool]:
    """The first construction with clearly negative curvature, else the smallest Hessian eigenpair."""
    for candidate in evidence.directions:
        direction = problem.project(point, candidate)
        norm = direction.norm()
        if norm <= 1e-8 * candidate.norm():
            continue
        direction = direction * (1 / norm)
        curvature = direction.dot(state.hessian_vector(direction))
        if curvature < -1e-6 * evidence.curvature_scale:
            return direction, curvature, "the papers' direction", True
    curvature, direction, radius = smallest_eigenpair(problem, point, state)
    negative = curvature < -NEGATIVE * max(radius, evidence.curvature_scale)
    return direction, curvature, "the smallest Hessian eigenvector", negative
