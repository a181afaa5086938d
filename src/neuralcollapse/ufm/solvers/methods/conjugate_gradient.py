"""Nonlinear conjugate gradients with a nearly exact line search."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...._support.checks import flag
from ...objectives.base import Objective, State, dot
from ..line_search import search
from ..method import Method, solver_methods

__all__ = ["ConjugateGradient"]


@solver_methods.add("conjugate-gradient", "cg")
@dataclass(frozen=True)
class ConjugateGradient(Method):
    """d <- -M grad + beta d with Polak and Ribiere's beta >= 0, preconditioned by the block metric.

    Directions are carried to the next point by projection. Newton's step along the ray is known from O(NK)
    work, so the line search is exact to second order at the price of two products.
    """

    plain: bool = False
    """Whether to weigh all blocks alike instead of by the block metric."""

    name: ClassVar[str] = "conjugate-gradient"
    summary: ClassVar[str] = "Polak-Ribiere in the block metric with an exact line search"
    products: ClassVar[int] = 4

    def __post_init__(self) -> None:
        flag("plain", self.plain)

    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """One gradient and one ray an iteration."""
        if self.plain:
            objective.weigh_alike()
        steepest = objective.precondition(state.gradient)
        size = dot(state.gradient, steepest)
        direction = torch.neg(steepest, out=objective.empty())
        slope, guess = -size, 1.0
        while True:
            line = objective.line(state, direction)
            step = search(line, state.value, slope, guess, objective.rounding(state))
            if step is None:
                if slope == -size:
                    return
                del line  # its memory is the next one's
                torch.neg(steepest, out=direction)
                slope = -size
                continue
            state, guess = line.at(step.length), 2 * step.length
            yield state
            overlap = dot(state.gradient, steepest)
            objective.precondition(state.gradient, out=steepest)
            new_size = dot(state.gradient, steepest)
            beta = max(0.0, (new_size - overlap) / size)
            objective.project_(state.x, direction).mul_(beta).sub_(steepest)
            slope, size = dot(state.gradient, direction), new_size
            if slope >= -1e-8 * size:
                torch.neg(steepest, out=direction)
                slope = -size
