"""Gradient descent with backtracking; Riemannian on spheres (normalized, Section 4)."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...._support.checks import integer
from ...objective import Model, State, dot
from ..line_search import SUFFICIENT, search, shrink
from ..method import Method, methods_registry, rounding

__all__ = ["GradientDescent"]

TRIALS = 40


@methods_registry.add("gradient-descent", "gd")
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

    def iterate(self, model: Model, state: State) -> Iterator[State]:
        """One gradient an iteration, and a value a trial."""
        recent: deque[float] = deque([state.value], maxlen=self.window)
        downhill = model.precondition(state.gradient, model.take()).neg_()
        slope = dot(state.gradient, downhill)
        state.shed("gradient")
        line = model.line(state, downhill)
        first = search(line, state.value, slope, 1.0, rounding(model, state))
        if first is None:
            return
        length, after = first.length, line.at(first.length)
        state.shed()
        while True:
            yield after
            state.retire()
            state = after
            recent.append(state.value)
            # s = length downhill: <s, M^-1 s> = -length^2 slope, <s, y> = length (<downhill, grad'> - slope).
            turned = dot(downhill, state.gradient) - slope
            trial = -length * slope / turned if turned > 0 else 2 * length
            length = min(max(trial, 1e-3 * length), 1e3 * length)
            model.precondition(state.gradient, downhill).neg_()
            slope = dot(state.gradient, downhill)
            state.shed()
            bound = max(recent) + rounding(model, state)
            for _ in range(TRIALS):
                after = model.step(state, downhill, length)
                if after.value <= bound + SUFFICIENT * length * slope:
                    break
                length *= shrink(after.value - state.value, length * slope)
                after.retire()
            else:
                return
            if torch.equal(after.x, state.x):
                return
