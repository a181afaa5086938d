"""Closed forms for the regularised model, balanced classes.

s = sqrt(n lW lH). At every minimiser W = (n lH/lW)^(1/4) A and class means (lW/(n lH))^(1/4) A with A A' the class
logits, so the objective is the mean loss at those logits + s tr(A A') + K lb beta^2/2 (THEORY: nuclear norm form).
"""

import math
from typing import TYPE_CHECKING, Final

from ...losses import LogitLoss, SquaredError
from ..results import Optimum, Regime
from .broken_symmetry import broken_symmetry_optimum
from .class_logits import ClassFrame
from .convex_program import convex_program_optimum
from .imbalanced import NoClosedFormError, imbalanced_optimum
from .nonnegative import nonnegative_optimum
from .squared_error import SquaredErrorSolution, solve_squared_error

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["closed_regularized", "collapsed_regularized", "regularized_optimum"]

COLLAPSE: Final = "neural collapse"
ZERO: Final = "zero"


def regularized_optimum(problem: "RegularizedUFM") -> Optimum:
    """The global minimum: in closed form, or where none is known by the certified convex program."""
    try:
        return closed_regularized(problem)
    except NoClosedFormError as unknown:
        if not unknown.program:
            raise
    return convex_program_optimum(problem)


def closed_regularized(problem: "RegularizedUFM") -> Optimum:
    """Losses of margins by one scalar minimisation, the squared error by its own reduction, other counts as known."""
    if problem.mu == 0:
        raise ValueError(
            "the minimum is not attained: weight_decay and feature_decay must both be positive, "
            f"got {problem.weight_decay:g} and {problem.feature_decay:g}"
        )
    if problem.nonnegative:
        return nonnegative_optimum(problem)
    if not problem.balanced:
        return imbalanced_optimum(problem)
    if isinstance(problem.loss, SquaredError):
        return _from_squared_error(problem, solve_squared_error(problem.loss, problem))
    if not problem.loss.depends_on_margins:
        raise NoClosedFormError(f"no closed form is known for the loss {problem.loss.spec}", program=True)
    return _margin_optimum(problem, problem.loss)


def _margin_optimum(problem: "RegularizedUFM", loss: LogitLoss) -> Optimum:
    """min_a ell(a) + (K-1) s a; W W' = sqrt(n lH/lW) a P (losses, Theorem 1, corrected constant)."""
    count = problem.num_classes
    slope = (count - 1) * problem.s
    best = loss.optimal_margin(slope, count)
    if best.margin > 0 and problem.dim < count - 1:
        raise NotImplementedError(
            f"no closed form is known for {loss.spec} with dim = {problem.dim} < num_classes - 1 = {count - 1}"
        )
    bias = 0.0 if problem.has_bias else None
    regime = COLLAPSE if best.margin > 0 else ZERO
    symmetric = collapsed_regularized(problem, best.value, regime, ClassFrame(count, problem.dim, best.margin), bias)
    proved = not problem.has_bias or loss.collapse_survives_bias(slope, count)
    if proved:
        return symmetric
    if problem.dim < count - 1 and problem.s < 1.1 * loss.transition(count).collapse_exists_below:
        # Partly collapsed states that need fewer dimensions can be lower than zero here, in no known form.
        raise NoClosedFormError(
            f"no closed form is known for {loss.spec} with a bias near its transition and dim = {problem.dim} < "
            f"num_classes - 1 = {count - 1}"
        )
    return broken_symmetry_optimum(problem, loss, symmetric)


def _from_squared_error(problem: "RegularizedUFM", solution: SquaredErrorSolution) -> Optimum:
    return collapsed_regularized(
        problem,
        solution.value,
        solution.regime,
        solution.frame,
        solution.bias if problem.has_bias else None,
        solution.proved,
        solution.note,
    )


def collapsed_regularized(
    problem: "RegularizedUFM",
    value: float,
    regime: Regime,
    frame: ClassFrame,
    bias: float | None,
    proved: bool = True,
    note: str = "",
) -> Optimum:
    """The optimum whose class logits (less the bias) are A A'."""
    ratio = math.sqrt(problem.counts[0] * problem.feature_decay / problem.weight_decay)
    size = frame.mean_square
    return Optimum(
        value=value,
        regime=regime,
        logit_scale=frame.x,
        weight_norm=math.sqrt(ratio * size),
        feature_norm=math.sqrt(size / ratio),
        bias=bias,
        proved=proved,
        note=note,
        build_point=lambda: frame.point(math.sqrt(ratio), 1 / math.sqrt(ratio), problem.labels, bias),
        build_grams=lambda: (ratio * frame.gram(), frame.gram() / ratio),
    )
