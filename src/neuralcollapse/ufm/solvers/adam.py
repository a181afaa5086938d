"""Adam on all entries, with a step size that falls when the value no longer does."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ..._support.checks import integer, real
from ._method import Method, methods_registry
from ._model import Model, State

__all__ = ["Adam"]


@methods_registry.add("adam")
@dataclass(frozen=True)
class Adam(Method):
    """m, v: running means of grad and grad^2; x <- R_x(-rate m/sqrt(v)), tangent part (Kingma and Ba 2015).

    With a constant rate the iterates circle around the minimum at a distance of about the rate. So the rate
    is halved whenever ``patience`` iterations have not brought a lower value.
    """

    learning_rate: float = 0.05
    patience: int = 10

    name: ClassVar[str] = "adam"
    summary: ClassVar[str] = "Adam with a rate that is halved when the value no longer falls"
    products: ClassVar[int] = 3

    def __post_init__(self) -> None:
        real("learning_rate", self.learning_rate, above=0)
        integer("patience", self.patience, minimum=1)

    def iterate(self, model: Model, state: State) -> Iterator[State]:
        """One gradient an iteration."""
        decay, decay_square, tiny = 0.9, 0.999, 1e-16
        mean, square = torch.zeros_like(state.x), torch.zeros_like(state.x)
        rate, best, waited, count = self.learning_rate, state.value, 0, 0
        while rate > 1e-18:
            count += 1
            gradient = state.gradient
            mean.lerp_(gradient, 1 - decay)
            square.mul_(decay_square).addcmul_(gradient, gradient, value=1 - decay_square)
            correction = math.sqrt(1 - decay_square**count) / (1 - decay**count)
            direction = model.project_(state.x, mean / square.sqrt().add_(tiny))
            state = model.step(state, direction, -rate * correction)
            waited = 0 if state.value < best else waited + 1
            best = min(best, state.value)
            if waited >= self.patience:
                rate, waited = rate / 2, 0
            yield state
