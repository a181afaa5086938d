"""Gradient descent with a fixed step, plain or with momentum: what the papers' theorems speak of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...._support.checks import real
from ...objectives.base import Objective, State
from ..method import Method, solver_methods

__all__ = ["FixedStep", "Momentum"]


@solver_methods.add("fixed-step")
@dataclass(frozen=True)
class FixedStep(Method):
    """x <- R_x(-rate grad), in the plain metric; a rate above 2/curvature diverges, as it should."""

    rate: float = 0.1

    name: ClassVar[str] = "fixed-step"
    summary: ClassVar[str] = "gradient descent with a fixed step in the plain metric"
    reliable: ClassVar[bool] = False
    products: ClassVar[int] = 3

    def __post_init__(self) -> None:
        real("rate", self.rate, above=0)

    @property
    def inertia(self) -> float:
        """How much of the velocity is kept."""
        return 0.0

    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """One gradient an iteration; v <- momentum v + grad, carried along by projection."""
        velocity = torch.zeros_like(state.x)
        while True:
            velocity.mul_(self.inertia).add_(state.gradient)
            after = objective.step(state, velocity, -self.rate)
            if torch.equal(after.x, state.x):
                return
            state = after
            objective.project_(state.x, velocity)
            yield state


@solver_methods.add("momentum", "heavy-ball")
@dataclass(frozen=True)
class Momentum(FixedStep):
    """v <- momentum v + grad, x <- R_x(-rate v) (Polyak 1964)."""

    momentum: float = 0.9

    name: ClassVar[str] = "momentum"
    summary: ClassVar[str] = "gradient descent with a fixed step and heavy-ball momentum"

    def __post_init__(self) -> None:
        super().__post_init__()
        real("momentum", self.momentum, minimum=0, below=1)

    @property
    def inertia(self) -> float:
        """The momentum."""
        return self.momentum
