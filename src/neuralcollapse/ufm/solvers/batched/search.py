"""Step lengths of many trials in lock step: all try at once, and only those that fail try again.

The rules are those of the single solves (:mod:`neuralcollapse.ufm.solvers.line_search`).
"""

import numpy as np

from ..line_search import SUFFICIENT, TRIALS
from .model import BatchModel, BatchState, Numbers, Vectors, places

__all__ = ["backtrack", "search"]


def backtrack(
    model: BatchModel,
    state: BatchState,
    direction: Vectors,
    slope: Numbers,
    lengths: Numbers,
    bound: Numbers,
    trials: int = TRIALS,
) -> tuple[BatchState, Numbers]:
    """The first of ever shorter steps whose value is at most ``bound`` + SUFFICIENT t slope, and which found none.

    ``lengths`` becomes the lengths of these steps.
    """
    after = model.step(state.x, direction, lengths)
    failed = ~(after.values <= bound + SUFFICIENT * lengths * slope)
    for _ in range(trials - 1):
        index = places(failed)
        if not len(index):
            break
        promised = (lengths * slope)[index]
        above_tangent = (after.values - state.values)[index] - promised
        factor = np.where(above_tangent > 0, -promised / (2 * above_tangent), 0.5)
        lengths[index] *= np.minimum(np.maximum(factor, 0.1), 0.5)
        shorter = lengths[index]
        found = model.step(state.x.take(index, 0), direction.take(index, 0), shorter)
        after.put_(index, found)
        failed[index] = ~(found.values <= bound[index] + SUFFICIENT * shorter * slope[index])
    return after, failed


def search(
    model: BatchModel,
    state: BatchState,
    direction: Vectors,
    slope: Numbers,
    guess: Numbers,
    noise: Numbers,
) -> tuple[BatchState, Numbers, Numbers]:
    """Nearly exact minimisers along the rays, their lengths, and which trials found no decrease.

    With positive curvature Newton's step, refined once by a cubic where the parabola missed; with negative curvature
    ``guess``, doubled for as long as the value falls.
    """
    curvature = model.curvature(state, direction)
    newton = curvature > 0
    whole = np.where(newton, -slope / curvature, guess)
    lengths = whole.copy()
    after, failed = backtrack(model, state, direction, slope, lengths, state.values + noise)
    kept = ~failed & (lengths == whole)
    _refine(model, state, after, direction, slope, curvature, lengths, noise, kept & newton)
    _lengthen(model, state, after, direction, lengths, noise, kept & ~newton)
    return after, lengths, failed


def _refine(
    model: BatchModel,
    state: BatchState,
    after: BatchState,
    direction: Vectors,
    slope: Numbers,
    curvature: Numbers,
    lengths: Numbers,
    noise: Numbers,
    among: Numbers,
) -> None:
    """A cubic through value, slope and curvature at 0 and the value at the step, where the parabola missed it."""
    found, predicted = after.values - state.values, slope * lengths / 2
    index = places(among & ~(abs(found - predicted) <= 0.1 * abs(predicted) + noise))
    if not len(index):
        return
    length, slope, curvature = lengths[index], slope[index], curvature[index]
    third = (found[index] - slope * length - curvature * length**2 / 2) / length**3
    discriminant = curvature**2 - 12 * third * slope
    root = -2 * slope / (curvature + np.sqrt(discriminant))
    sensible = (discriminant > 0) & (root > 0)
    index, length, root = index[sensible], length[sensible], root[sensible]
    if not len(index):
        return
    refined = np.clip(root, 0.3 * length, 3 * length)
    other = model.step(state.x.take(index, 0), direction.take(index, 0), refined)
    better = places(~(other.values >= after.values[index]))
    after.put_(index[better], other.pick(better))
    lengths[index[better]] = refined[better]


def _lengthen(
    model: BatchModel,
    state: BatchState,
    after: BatchState,
    direction: Vectors,
    lengths: Numbers,
    noise: Numbers,
    among: Numbers,
) -> None:
    """Twice the step for as long as the value falls."""
    index = places(among)
    for _ in range(TRIALS):
        if not len(index):
            return
        longer = 2 * lengths[index]
        other = model.step(state.x.take(index, 0), direction.take(index, 0), longer)
        better = places(other.values < after.values[index] - noise[index])
        index = index[better]
        after.put_(index, other.pick(better))
        lengths[index] = longer[better]
