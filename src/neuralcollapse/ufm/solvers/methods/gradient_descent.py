"""Gradient descent with backtracking; Riemannian on spheres (normalized, Section 4)."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...._support.checks import integer
from ...objectives.base import Objective, State, dot
from ..line_search import search, step_below
from ..method import Method, solver_methods

__all__ = ["GradientDescent"]

TRIALS = 40


@solver_methods.add("gradient-descent", "gd")
@dataclass(frozen=True)
class GradientDescent(Method):
    """x <- R_x(-t M grad), M the block metric's inverse.

    The first trial step is Barzilai and Borwein's, <s, M^-1 s>/<s, y>, which is the exact step of the
    iteration before; it is halved or so until the value falls enough below the largest of the last ``window``
    values (1: monotone).
    """

    window: int = 5

    name: ClassVar[str] = "gradient-descent"
    summary: ClassVar[str] = "gradient steps in the block metric, Barzilai-Borwein trial, backtracking"
    products: ClassVar[int] = 3

    def __post_init__(self) -> None:
        integer("window", self.window, minimum=1)

    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """One gradient an iteration, and a value a trial."""
        recent: deque[float] = deque([state.value], maxlen=self.window)
        downhill = objective.precondition(state.gradient).neg_()
        slope = dot(state.gradient, downhill)
        line = objective.line(state, downhill)
        first = search(line, state.value, slope, 1.0, objective.rounding(state))
        if first is None:
            return
        length, state = first.length, line.at(first.length)
        while True:
            yield state
            recent.append(state.value)
            # s = length downhill: <s, M^-1 s> = -length^2 slope, <s, y> = length (<downhill, grad'> - slope).
            turned = dot(downhill, state.gradient) - slope
            trial = -length * slope / turned if turned > 0 else 2 * length
            length = min(max(trial, 1e-3 * length), 1e3 * length)
            objective.precondition(state.gradient, out=downhill).neg_()
            slope = dot(state.gradient, downhill)
            bound = max(recent) + objective.rounding(state)
            found = step_below(objective, state, downhill, length, slope, bound, TRIALS)
            if found is None or torch.equal(found[0].x, state.x):
                return
            state, length = found
