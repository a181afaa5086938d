"""The (rescaled) squared error: class logits x P + w J plus a constant bias beta.

s = sqrt(n lW lH), lb the bias decay, alpha and M (= target) the loss's parameters. A scalar reduction: the objective is
alpha/2 (z_true - M)^2 + (K-1)/2 z_other^2 + s ((K-1) x + w) + K lb beta^2/2.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...losses import SquaredError
from ..results import Regime
from .class_logits import ClassFrame

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["SquaredErrorSolution", "solve_squared_error"]


@dataclass(frozen=True)
class SquaredErrorSolution:
    """Class logits, bias and value of a minimiser."""

    value: float
    regime: Regime
    frame: ClassFrame
    bias: float
    proved: bool = True
    note: str = ""


def solve_squared_error(loss: SquaredError, problem: "RegularizedUFM") -> SquaredErrorSolution:
    """mse, Theorem 3.1 in its corrected form, and its extension to (alpha, M); all d, every bias decay."""
    count, dim, s = problem.num_classes, problem.dim, problem.s
    alpha, target = loss.alpha, loss.target
    decay = math.inf if problem.bias_decay is None else problem.bias_decay
    if s >= _zero_threshold(loss, count, decay):
        bias = 0.0 if decay == math.inf else alpha * target / (alpha + count - 1 + count * decay)
        return _solution_of(loss, problem, "zero", ClassFrame(count, dim, 0.0), bias)

    wide = dim >= count
    reach = target - count * s / alpha
    full = reach > 0 and (decay == math.inf or decay * reach > count * s)
    if full and wide:
        bias = 0.0 if decay == math.inf else s / decay
        pull = 0.0 if decay == math.inf else count * s / decay
        regime = "orthogonal frame" if decay == math.inf else "neural collapse with a common direction"
        return _solution_of(loss, problem, regime, ClassFrame(count, dim, reach, reach - pull), bias)

    if alpha == 1 and dim < (count if decay == math.inf else count - 1):
        return _low_rank_solution(loss, problem, decay)
    if dim < count - 1:
        raise NotImplementedError(
            f"no closed form is known for {loss.spec} with dim = {dim} < num_classes - 1 = {count - 1} "
            "(alpha must be 1)"
        )
    if full and alpha < 1:
        raise NotImplementedError(
            f"no closed form is known for {loss.spec} with dim = num_classes - 1 and this bias decay: for alpha < 1 "
            "the simplex ETF is not optimal there"
        )
    if decay == math.inf:
        bias, x = 0.0, _etf_scale_without_bias(loss, count, s)
    else:
        bias = (target + (count - 1) * s * (1 - 1 / alpha)) / (count + (count - 1) * decay + decay / alpha)
        x = target - s * ((count - 1) / alpha + 1) + decay * bias * (1 - 1 / alpha)
    note = ""
    proved = not full or alpha == 1
    if not proved:
        note = "the lowest value known at dim = num_classes - 1 with alpha > 1; spurious local minima exist there"
    return _solution_of(loss, problem, "neural collapse", ClassFrame(count, dim, x), bias, proved, note)


def _etf_scale_without_bias(loss: SquaredError, count: int, s: float) -> float:
    """x of the best x P without bias: z_true = x (K-1)/K, z_other = -x/K; a parabola in x."""
    share = (count - 1) / count
    numerator = loss.alpha * loss.target * share - (count - 1) * s
    return numerator / (loss.alpha * share**2 + share / count)


def _zero_threshold(loss: SquaredError, count: int, decay: float) -> float:
    if decay == math.inf:
        return loss.alpha * loss.target / count
    return loss.alpha * loss.target * (1 + decay) / (loss.alpha + count - 1 + count * decay)


def _low_rank_solution(loss: SquaredError, problem: "RegularizedUFM", decay: float) -> SquaredErrorSolution:
    """alpha = 1 and too few dimensions: x = M - K s on any rank-d projector (perpendicular to 1 with a bias)."""
    count, dim, target = problem.num_classes, problem.dim, loss.target
    anywhere = decay == math.inf
    s = problem.s / target
    rank = min(dim, count if anywhere else count - 1)
    value = rank * (s - count * s**2 / 2)
    if anywhere:
        value += (count - dim) / (2 * count)
        bias = 0.0
    else:
        value += (count - 1 - rank) / (2 * count) + decay / (2 * count * (1 + decay))
        bias = target / (count * (1 + decay))
    frame = ClassFrame(count, dim, target * (1 - count * s), anywhere=anywhere)
    note = f"one of many: any rank-{rank} projector {'' if anywhere else 'perpendicular to 1 '}gives the same value"
    return SquaredErrorSolution(target**2 * value, "low rank", frame, bias, note=note)


def _solution_of(
    loss: SquaredError,
    problem: "RegularizedUFM",
    regime: Regime,
    frame: ClassFrame,
    bias: float,
    proved: bool = True,
    note: str = "",
) -> SquaredErrorSolution:
    count, s = problem.num_classes, problem.s
    true = (frame.x * (count - 1) + frame.w) / count + bias
    other = (frame.w - frame.x) / count + bias
    value = loss.alpha / 2 * (true - loss.target) ** 2 + (count - 1) / 2 * other**2
    value += s * ((count - 1) * frame.x + frame.w) + count * (problem.bias_decay or 0.0) * bias**2 / 2
    return SquaredErrorSolution(value, regime, frame, bias, proved, note)
