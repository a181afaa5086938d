"""Steps along a ray whose trials are cheap: Newton's step first, then interpolation."""

from dataclasses import dataclass

from torch import Tensor

from ..objectives.base import Line, Objective, State

__all__ = ["SUFFICIENT", "Decrease", "backtrack", "search", "shrink", "step_below"]

SUFFICIENT = 1e-4
"""Armijo's constant: a step must bring this share of the decrease that the slope promises."""
TRIALS = 25


@dataclass(frozen=True)
class Decrease:
    """An accepted step and the value it leads to."""

    length: float
    value: float


def search(line: Line, value: float, slope: float, guess: float, noise: float) -> Decrease | None:
    """A nearly exact minimiser along ``line``, where ``slope`` < 0 is the derivative at 0; None without a decrease.

    With positive curvature the first trial is Newton's step, with negative curvature ``guess``, lengthened for as long
    as the value falls. A trial that misses the parabola's prediction by a lot is refined once by interpolation.
    """
    curvature = line.curvature()
    if curvature <= 0:
        return _lengthen(line, value, slope, guess, noise)
    length = -slope / curvature
    first = backtrack(line, value, slope, length, noise)
    if first is None:
        return None
    predicted, found = slope * first.length / 2, first.value - value
    if first.length < length or abs(found - predicted) <= 0.1 * abs(predicted) + noise:
        return first
    # A cubic through the value, slope and curvature at 0 and the value at the trial.
    third = (found - slope * first.length - curvature * first.length**2 / 2) / first.length**3
    refined = _cubic_minimiser(slope, curvature, third)
    if refined is None:
        return first
    refined = min(max(refined, 0.3 * length), 3 * length)
    other = Decrease(refined, line.value(refined))
    return first if other.value >= first.value else other


def backtrack(line: Line, value: float, slope: float, length: float, noise: float) -> Decrease | None:
    """The first of ever shorter steps that satisfies Armijo's condition up to ``noise``."""
    for _ in range(TRIALS):
        found = line.value(length)
        excess = found - value
        if excess <= SUFFICIENT * length * slope + noise:
            return Decrease(length, found)
        length *= shrink(excess, slope * length)
    return None


def step_below(
    objective: Objective,
    state: State,
    direction: Tensor,
    length: float,
    slope: float,
    bound: float,
    trials: int,
    halve: bool = False,
) -> tuple[State, float] | None:
    """The first of ever shorter steps, each evaluated anew, that is far enough below ``bound``; and its length.

    Args:
        objective: what is stepped on.
        state: where the step starts.
        direction: tangent.
        length: of the first trial.
        slope: the derivative along ``direction``, negative.
        bound: the value to compare with, rounding included.
        trials: the most there are.
        halve: whether to halve the length instead of following a parabola.

    """
    for _ in range(trials):
        after = objective.step(state, direction, length)
        if after.value <= bound + SUFFICIENT * length * slope:
            return after, length
        length *= 0.5 if halve else shrink(after.value - state.value, length * slope)
        del after  # its memory is the next trial's
    return None


def shrink(excess: float, promised: float) -> float:
    """-promised / (2 (excess - promised)) in [0.1, 0.5]: the minimum of the parabola with that slope at 0, value at 1.

    Half where the parabola has none.
    """
    above_tangent = excess - promised
    return min(max(-promised / (2 * above_tangent), 0.1), 0.5) if above_tangent > 0 else 0.5


def _lengthen(line: Line, value: float, slope: float, guess: float, noise: float) -> Decrease | None:
    best = backtrack(line, value, slope, guess, noise)
    if best is None or best.length < guess:
        return best
    for _ in range(TRIALS):
        longer = Decrease(2 * best.length, line.value(2 * best.length))
        if not longer.value < best.value - noise:
            return best
        best = longer
    return best


def _cubic_minimiser(slope: float, curvature: float, third: float) -> float | None:
    """The local minimiser t > 0 of slope t + curvature t^2/2 + third t^3, if there is one."""
    discriminant = curvature**2 - 12 * third * slope
    if discriminant <= 0:
        return None
    root = -2 * slope / (curvature + discriminant**0.5)
    return root if root > 0 else None
