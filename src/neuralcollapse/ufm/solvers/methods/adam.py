"""Adam on all entries, with a rate that falls when the value no longer does."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...._support.checks import real
from ...objectives.base import Objective, State
from ..method import Method, solver_methods

__all__ = ["Adam"]


@solver_methods.add("adam")
@dataclass(frozen=True)
class Adam(Method):
    """m, v: running means of grad and grad^2; x <- R_x(-rate m/sqrt(v)), tangent part (Kingma & Ba 2015).

    With a constant rate the iterates circle around the minimum at a distance of about the rate. So the rate
    falls to 0.7 of itself when the value has risen, and grows by a twentieth, up to ``learning_rate``, when
    it has fallen. A whole gradient has no noise to average out: v forgets fast (0.95, not 0.999).
    """

    learning_rate: float = 0.1

    name: ClassVar[str] = "adam"
    summary: ClassVar[str] = "Adam with a rate that follows the value"
    products: ClassVar[int] = 3

    def __post_init__(self) -> None:
        real("learning_rate", self.learning_rate, above=0)

    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """One gradient an iteration."""
        decay, decay_square, tiny = 0.9, 0.95, 1e-16
        mean, square = torch.zeros_like(state.x), torch.zeros_like(state.x)
        rate, count = self.learning_rate, 0
        while rate > 1e-18:
            count += 1
            mean.lerp_(state.gradient, 1 - decay)
            square.mul_(decay_square).addcmul_(state.gradient, state.gradient, value=1 - decay_square)
            correction = math.sqrt(1 - decay_square**count) / (1 - decay**count)
            direction = torch.sqrt(square, out=objective.empty()).add_(tiny)
            objective.project_(state.x, torch.div(mean, direction, out=direction))
            after = objective.step(state, direction, -rate * correction)
            del direction
            rate = min(_rate_factor(objective, after, state) * rate, self.learning_rate)
            state = after
            yield state


def _rate_factor(objective: Objective, state: State, before: State) -> float:
    """The factor for the rate: by the value, or where rounding hides its change, by the gradient norm."""
    change = state.value - before.value
    if abs(change) > 4 * objective.rounding(state):
        return 1.05 if change < 0 else 0.7
    return 1.05 if state.gradient_norm < before.gradient_norm else 0.9
