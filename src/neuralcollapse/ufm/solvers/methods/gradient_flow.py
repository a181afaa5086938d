"""Gradient flow: dx/dt = -grad f, followed by an adaptive Runge-Kutta integrator."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.integrate import solve_ivp

from ...._support.checks import real
from ...objectives.base import Objective, State
from ..method import Method, solver_methods

__all__ = ["GradientFlow"]


@solver_methods.add("gradient-flow")
@dataclass(frozen=True)
class GradientFlow(Method):
    """An iteration is the time ``step``, which grows by ``growth`` up to ``longest``; errors stay below ``accuracy``.

    On spheres the gradient is tangent, and the end of each step is put back onto them.
    """

    step: float = 1.0
    growth: float = 1.1
    longest: float = 100.0
    accuracy: float = 1e-8

    name: ClassVar[str] = "gradient-flow"
    summary: ClassVar[str] = "dx/dt = -grad, by an adaptive Runge-Kutta integrator (scipy)"
    products: ClassVar[int] = 60
    reliable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        real("step", self.step, above=0)
        real("growth", self.growth, minimum=1)
        real("longest", self.longest, minimum=self.step)
        real("accuracy", self.accuracy, above=0, maximum=0.1)

    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """One stretch of time an iteration."""
        span = self.step

        def downhill(_: float, x: np.ndarray) -> np.ndarray:
            return -objective.state(torch.from_numpy(x.copy())).gradient.numpy().copy()

        while True:
            start = state.x.numpy().copy()
            options = {"method": "DOP853", "rtol": self.accuracy, "atol": self.accuracy}
            found = solve_ivp(downhill, (0.0, span), start, **options)
            end = torch.from_numpy(found.y[:, -1].copy())
            after = objective.step(state, end - state.x, 1.0)
            if not found.success or torch.equal(after.x, state.x):
                return
            yield after
            state, span = after, min(span * self.growth, self.longest)
