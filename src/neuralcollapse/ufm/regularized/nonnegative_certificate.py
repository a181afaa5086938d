"""Certificates with non-negative features: what can be said without a convex dual of the constraint.

The free model's dual bound holds, since its points include these; where the closed form is proved it is the bound. A
point that satisfies the first-order conditions and whose gap stays open is "undecided": spurious local minima exist.
"""

from typing import TYPE_CHECKING

import torch

from ..point import Point
from ..results import GLOBAL_MINIMUM, NOT_CRITICAL, UNDECIDED, Certificate
from ..verdict import CRITICAL
from .nonnegative import nonnegative_value

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["certify_nonnegative"]


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
