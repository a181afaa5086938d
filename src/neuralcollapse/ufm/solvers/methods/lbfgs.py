"""Limited-memory BFGS; on spheres with steps that are projected and retracted."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ...._support.checks import integer
from ...objective import Model, State, dot
from ..line_search import search, shrink
from ..method import Method, methods_registry, rounding

__all__ = ["LBFGS"]

TRIALS = 25


@methods_registry.add("lbfgs", "l-bfgs")
@dataclass(frozen=True)
class LBFGS(Method):
    """d = -B grad, B built from the last ``memory`` pairs s = x' - x, y = grad' - grad (Liu and Nocedal
    1989).

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

    def iterate(self, model: Model, state: State) -> Iterator[State]:
        """A step along -B grad; without usable pairs an exact one along the gradient."""
        pairs: deque[tuple[Tensor, Tensor, float]] = deque()
        while True:
            after = self._whole_step(model, state, pairs) if pairs else None
            if after is None:
                while pairs:
                    drop_oldest(model, pairs)
                after = self._first_step(model, state)
                if after is None:
                    return
            state.shed("logits")
            yield after
            # The old point and gradient are used no more: their memory holds the pair.
            change = torch.sub(after.x, state.x, out=state.x)
            turn = torch.sub(after.gradient, state.gradient, out=state.gradient)
            inner = dot(change, turn)
            if inner > 1e-10 * (dot(change, change) * dot(turn, turn)) ** 0.5:
                if len(pairs) == self.memory:
                    drop_oldest(model, pairs)
                pairs.append((change, turn, inner))
            else:
                state.retire()
            state = after

    def _first_step(self, model: Model, state: State) -> State | None:
        direction = model.precondition(state.gradient, model.take()).neg_()
        slope = dot(state.gradient, direction)
        line = model.line(state, direction)
        found = search(line, state.value, slope, 1.0, rounding(model, state))
        after = None if found is None else line.at(found.length)
        model.give(direction)
        return after

    def _whole_step(self, model: Model, state: State, pairs: deque[tuple[Tensor, Tensor, float]]) -> State | None:
        direction = model.project_(state.x, two_loops(model, state.gradient, pairs).neg_())
        slope = dot(state.gradient, direction)
        length, noise = 1.0, rounding(model, state)
        for _ in range(TRIALS if slope < 0 else 0):
            after = model.step(state, direction, length)
            if after.value <= state.value + 1e-4 * length * slope + noise:
                model.give(direction)
                return after
            length *= shrink(after.value - state.value, length * slope)
            after.retire()
        model.give(direction)
        return None


def drop_oldest(model: Model, pairs: deque[tuple[Tensor, Tensor, float]]) -> None:
    """Forget the oldest pair, and give its memory back."""
    change, turn, _ = pairs.popleft()
    model.give(change)
    model.give(turn)


def two_loops(
    model: Model, gradient: Float[Tensor, " D"], pairs: deque[tuple[Tensor, Tensor, float]]
) -> Float[Tensor, " D"]:
    """B grad by the two-loop recursion, from the block metric scaled by <s, y>/<y, M y> of the last pair."""
    _, turn, inner = pairs[-1]
    result = model.precondition(turn, model.take())
    scale = inner / dot(turn, result)
    result.copy_(gradient)
    weights: list[float] = []
    for change, turn, inner in reversed(pairs):
        weight = dot(change, result) / inner
        result.add_(turn, alpha=-weight)
        weights.append(weight)
    model.precondition(result, result).mul_(scale)
    for (change, turn, inner), weight in zip(pairs, reversed(weights), strict=True):
        result.add_(change, alpha=weight - dot(turn, result) / inner)
    return result
