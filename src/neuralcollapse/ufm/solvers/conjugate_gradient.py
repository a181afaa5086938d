"""Nonlinear conjugate gradients with a nearly exact line search."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ._line_search import search
from ._method import Method, methods_registry, rounding
from ._model import Model, State, dot

__all__ = ["ConjugateGradient"]


@methods_registry.add("conjugate-gradient", "cg")
@dataclass(frozen=True)
class ConjugateGradient(Method):
    """d <- -M grad + beta d with Polak and Ribiere's beta >= 0, preconditioned by the block metric.

    Directions are carried to the next point by projection. Newton's step along the ray is known from O(NK)
    work, so the line search is exact to second order at the price of two products.
    """

    name: ClassVar[str] = "conjugate-gradient"
    summary: ClassVar[str] = "Polak-Ribiere in the block metric with an exact line search"
    products: ClassVar[int] = 4

    def iterate(self, model: Model, state: State) -> Iterator[State]:
        """One gradient and one ray an iteration."""
        steepest = model.precondition(state.gradient)
        size = dot(state.gradient, steepest)
        direction, slope, guess = -steepest, -size, 1.0
        while True:
            step = search(model.line(state, direction), state.value, slope, guess, rounding(model, state))
            if step is None:
                if slope == -size:
                    return
                direction, slope = -steepest, -size
                continue
            after, guess = step.state, 2 * step.length
            yield after
            new_steepest = model.precondition(after.gradient)
            new_size = dot(after.gradient, new_steepest)
            overlap = dot(after.gradient, steepest)
            beta = max(0.0, (new_size - overlap) / size)
            direction = model.project_(after.x, direction).mul_(beta).sub_(new_steepest)
            slope = dot(after.gradient, direction)
            state, steepest, size = after, new_steepest, new_size
            if slope >= -1e-8 * size:
                direction, slope = -steepest, -size
