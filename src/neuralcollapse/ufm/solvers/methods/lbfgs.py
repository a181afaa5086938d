"""Limited-memory BFGS; on spheres with steps that are projected and retracted."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ...._support.checks import integer
from ...objectives.base import Objective, State, dot
from ..line_search import search, step_below
from ..method import Method, solver_methods

__all__ = ["LBFGS"]

TRIALS = 25

Pair = tuple[Tensor, Tensor, float]
"""A change of the point, the change of the gradient, and their inner product."""


@solver_methods.add("lbfgs", "l-bfgs")
@dataclass(frozen=True)
class LBFGS(Method):
    """d = -B grad, B built from the last ``memory`` pairs s = x' - x, y = grad' - grad (Liu and Nocedal 1989).

    B starts from the block metric. On spheres pairs are kept in the surrounding space and d is projected: it
    stays a descent direction, since the gradient is tangent. A whole step is tried first: one value and one
    gradient an iteration.
    """

    memory: int = 8

    name: ClassVar[str] = "lbfgs"
    summary: ClassVar[str] = "limited-memory BFGS from the block metric"
    products: ClassVar[int] = 3

    def __post_init__(self) -> None:
        integer("memory", self.memory, minimum=1)

    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """A step along -B grad; without usable pairs an exact one along the gradient."""
        pairs: deque[Pair] = deque(maxlen=self.memory)
        while True:
            x, gradient = state.x, state.gradient
            after = whole_step(objective, state, gradient, pairs) if pairs else None
            if after is None:
                pairs.clear()
                after = first_step(objective, state, gradient)
                if after is None:
                    return
            yield after
            # The old point and gradient are used no more: their memory holds the pair.
            change = torch.sub(after.x, x, out=x)
            turn = torch.sub(after.gradient, gradient, out=gradient)
            inner = dot(change, turn)
            if inner > 1e-10 * (dot(change, change) * dot(turn, turn)) ** 0.5:
                pairs.append((change, turn, inner))
            state = after


def first_step(objective: Objective, state: State, gradient: Float[Tensor, " D"]) -> State | None:
    """A nearly exact step along the gradient in the block metric."""
    direction = objective.precondition(gradient).neg_()
    line = objective.line(state, direction)
    found = search(line, state.value, dot(gradient, direction), 1.0, objective.rounding(state))
    return None if found is None else line.at(found.length)


def whole_step(objective: Objective, state: State, gradient: Float[Tensor, " D"], pairs: deque[Pair]) -> State | None:
    """-B grad, shortened if need be."""
    direction = objective.project_(state.x, two_loops(objective, gradient, pairs).neg_())
    slope = dot(gradient, direction)
    if not slope < 0:
        return None
    found = step_below(objective, state, direction, 1.0, slope, state.value + objective.rounding(state), TRIALS)
    return None if found is None else found[0]


def two_loops(objective: Objective, gradient: Float[Tensor, " D"], pairs: deque[Pair]) -> Float[Tensor, " D"]:
    """B grad by the two-loop recursion, from the block metric scaled by <s, y>/<y, M y> of the last pair."""
    _, turn, inner = pairs[-1]
    result = objective.precondition(turn)
    scale = inner / dot(turn, result)
    result.copy_(gradient)
    weights: list[float] = []
    for change, turn, inner in reversed(pairs):
        weight = dot(change, result) / inner
        result.add_(turn, alpha=-weight)
        weights.append(weight)
    objective.precondition(result, out=result).mul_(scale)
    for (change, turn, inner), weight in zip(pairs, reversed(weights), strict=True):
        result.add_(change, alpha=weight - dot(turn, result) / inner)
    return result
