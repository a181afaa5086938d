"""Plain gradient descent with Armijo's backtracking: the textbook's method, without a metric of our own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...objectives.base import Objective, State
from ..line_search import step_below
from ..method import Method, solver_methods

__all__ = ["Armijo"]

TRIALS = 60
DROWNED = 1e3
"""A fall of so many units of rounding can still be told from none."""


@solver_methods.add("armijo")
@dataclass(frozen=True)
class Armijo(Method):
    """x <- R_x(-t grad): t is twice the step before, halved until f falls by 1e-4 t |grad|^2.

    The first trial moves the point by 1 in all. This is steepest descent as toolboxes for manifolds ship it:
    the same inner product on all entries, no curvature, every step lower than the one before. It is here to
    compare models by; :class:`GradientDescent` is the faster way down. At the end, where rounding hides how far
    the value falls, the step is halved once more and kept.
    """

    name: ClassVar[str] = "armijo"
    summary: ClassVar[str] = "plain gradient steps, doubled and halved by Armijo's rule"
    products: ClassVar[int] = 3

    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """One gradient an iteration, and a value a trial."""
        downhill = objective.empty()
        length = 0.5 / state.gradient_norm if state.gradient_norm else 0.0
        drowned = False
        while True:
            torch.neg(state.gradient, out=downhill)
            square = state.gradient_norm**2
            noise = objective.rounding(state)
            if length * square > DROWNED * noise:
                length *= 2
            elif not drowned:
                length, drowned = length / 2, True
            found = step_below(objective, state, downhill, length, -square, state.value + noise, TRIALS, halve=True)
            if found is None or torch.equal(found[0].x, state.x):
                return
            state, length = found
            yield state
