"""The objective of any model, through its own verbs: for models without a faster form of their own."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ..point import Point
from .base import Line, Objective, State, dot

if TYPE_CHECKING:
    from ..problem import Problem, ProblemLinearization

__all__ = ["PointwiseObjective"]


class PointwiseObjective(Objective):
    """Linearise, project and retract as the problem says; all blocks weigh alike."""

    def __init__(self, problem: "Problem"):
        self.template = problem.random_point(0)
        blocks = self.template.blocks
        scales = (float(problem.num_samples),) * len(blocks)
        super().__init__(problem, [block.numel() for block in blocks], scales)

    def point(self, x: Float[Tensor, " D"]) -> Point:
        """Views into ``x``."""
        return self.template.like(x)

    def direction(self, vector: Float[Tensor, " D"]) -> Point:
        """A direction as a point."""
        return self.template.like(vector)

    def linearize(self, x: Float[Tensor, " D"]) -> "ProblemLinearization":
        """The problem's own linearisation."""
        return self.problem.linearize(self.point(x))

    def state(self, x: Float[Tensor, " D"]) -> "PointwiseState":
        """The objective at ``x``."""
        return PointwiseState(self, x)

    def step(self, state: State, direction: Float[Tensor, " D"], length: float = 1.0) -> "PointwiseState":
        """The state at R_x(length * direction); the old one forgets its linearisation."""
        if isinstance(state, PointwiseState):
            state.forget()
        return PointwiseState(self, self.retract(state.x, direction, length))

    def line(self, state: State, direction: Float[Tensor, " D"]) -> "PointwiseLine":
        """The objective along ``direction``, with a full evaluation a trial."""
        return PointwiseLine(self, state, direction)

    def retract(self, x: Float[Tensor, " D"], direction: Float[Tensor, " D"], length: float) -> Float[Tensor, " D"]:
        """The problem's own retraction."""
        return self.problem.retract(self.point(x), self.direction(direction * length)).flatten()

    def project_(self, x: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The problem's own projection."""
        return vector.copy_(self.problem.project(self.point(x), self.direction(vector)).flatten())


class PointwiseState(State):
    """A problem's own linearisation."""

    def __init__(self, objective: PointwiseObjective, x: Float[Tensor, " D"]):
        self._objective, self.x = objective, x
        self._kept: ProblemLinearization | None = None
        self._gradient: Tensor | None = None
        self.value = self._linearization().value

    def _linearization(self) -> "ProblemLinearization":
        if self._kept is None:
            self._kept = self._objective.linearize(self.x)
        return self._kept

    @property
    def gradient(self) -> Float[Tensor, " D"]:
        """The gradient."""
        if self._gradient is None:
            self._gradient = self._linearization().gradient.flatten()
        return self._gradient

    def hessian_vector(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The problem's own Hessian product, in double precision whatever the direction's."""
        product = self._linearization().hessian_vector(self._objective.direction(direction.to(torch.float64)))
        return product.flatten().to(direction.dtype)

    def forget(self) -> None:
        """Let the linearisation and the gradient go, and keep the gradient's norm if it is known."""
        self._kept = self._gradient = None


class PointwiseLine(Line):
    """A ray with a full evaluation a trial; the last one is kept."""

    def __init__(self, objective: PointwiseObjective, state: State, direction: Float[Tensor, " D"]):
        self._objective, self._state, self._direction = objective, state, direction
        self._trial: tuple[float, State] | None = None

    def value(self, step: float) -> float:
        """The value at t = ``step``."""
        return self.at(step).value

    def at(self, step: float) -> State:
        """The state at t = ``step``."""
        if self._trial is None or self._trial[0] != step:
            self._trial = None
            self._trial = step, self._objective.step(self._state, self._direction, step)
        return self._trial[1]

    def curvature(self) -> float:
        """<d, Hessian d> by one product."""
        return dot(self._direction, self._state.hessian_vector(self._direction))
