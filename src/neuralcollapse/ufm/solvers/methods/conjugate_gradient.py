"""Nonlinear conjugate gradients with a nearly exact line search."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...._support.checks import flag
from ...objective import Model, State, dot
from ..line_search import search
from ..method import Method, methods_registry, rounding

__all__ = ["ConjugateGradient"]


@methods_registry.add("conjugate-gradient", "cg")
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

    def iterate(self, model: Model, state: State) -> Iterator[State]:
        """One gradient and one ray an iteration."""
        if self.plain:
            model.weigh_alike()
        steepest = model.precondition(state.gradient, model.take())
        size = dot(state.gradient, steepest)
        direction = torch.neg(steepest, out=model.take())
        slope, guess = -size, 1.0
        while True:
            state.shed("gradient")
            line = model.line(state, direction)
            step = search(line, state.value, slope, guess, rounding(model, state))
            if step is None:
                line.close()
                if slope == -size:
                    return
                torch.neg(steepest, out=direction)
                slope = -size
                continue
            after, guess = line.at(step.length), 2 * step.length
            state.shed("logits")
            yield after
            state.retire()
            state = after
            overlap = dot(state.gradient, steepest)
            model.precondition(state.gradient, steepest)
            new_size = dot(state.gradient, steepest)
            beta = max(0.0, (new_size - overlap) / size)
            model.project_(state.x, direction).mul_(beta).sub_(steepest)
            slope, size = dot(state.gradient, direction), new_size
            if slope >= -1e-8 * size:
                torch.neg(steepest, out=direction)
                slope = -size
