"""The flat form of any model, through its own verbs: for models without a faster form of their own."""

import torch
from jaxtyping import Float
from torch import Tensor

from .objective import Line, Model, Share, State, dot
from .point import Point
from .problem import Problem, ProblemLinearization

__all__ = ["AnyModel"]


class AnyModel(Model):
    """Linearise, project and retract as the problem says; all blocks weigh alike."""

    def __init__(self, problem: Problem):
        template = problem.random_point(0)
        super().__init__(problem, template, (float(problem.num_samples),) * len(template.blocks))

    def linearize(self, x: Float[Tensor, " D"]) -> ProblemLinearization:
        """The problem's own linearisation."""
        return self.problem.linearize(self.point(x))

    def direction(self, vector: Float[Tensor, " D"]) -> Point:
        """A direction as a point."""
        return self.point(vector)

    def state(self, x: Float[Tensor, " D"]) -> "AnyState":
        """The model at ``x``."""
        return AnyState(self, x)

    def line(self, state: State, direction: Float[Tensor, " D"]) -> "AnyLine":
        """The model along ``direction``, with a full evaluation a trial."""
        return AnyLine(self, state, direction)

    def retract(self, x: Float[Tensor, " D"], direction: Float[Tensor, " D"], length: float) -> Float[Tensor, " D"]:
        """The problem's own retraction."""
        return self.problem.retract(self.point(x), self.point(direction * length)).flatten()

    def project_(self, x: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The problem's own projection."""
        return vector.copy_(self.problem.project(self.point(x), self.point(vector)).flatten())


class AnyState(State):
    """A problem's own linearisation."""

    def __init__(self, model: AnyModel, x: Float[Tensor, " D"]):
        self._model, self._x = model, x
        self._inner: ProblemLinearization | None = None
        self._gradient: Tensor | None = None
        self.value = self._linearization().value

    def _linearization(self) -> ProblemLinearization:
        if self._inner is None:
            self._inner = self._model.linearize(self._x)
        return self._inner

    @property
    def x(self) -> Float[Tensor, " D"]:
        """The point as one vector."""
        return self._x

    @property
    def gradient(self) -> Float[Tensor, " D"]:
        """The gradient, kept."""
        if self._gradient is None:
            self._gradient = self._linearization().gradient.flatten()
        return self._gradient

    def hessian_vector(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The problem's own Hessian product, in double precision whatever the direction's."""
        product = self._linearization().hessian_vector(self._model.direction(direction.to(torch.float64)))
        return product.flatten().to(direction.dtype)

    def shed(self, *shares: Share) -> None:
        """Forget all that was computed once everything is to go: the linearisation is one piece."""
        if not shares:
            self.gradient_norm  # noqa: B018  (stays known)
            self._inner = self._gradient = None


class AnyLine(Line):
    """A ray with a full evaluation a trial; the last one is kept."""

    def __init__(self, model: AnyModel, state: State, direction: Float[Tensor, " D"]):
        self._model, self._state, self._direction = model, state, direction
        self._trial: tuple[float, State] | None = None

    def value(self, step: float) -> float:
        """The value at t = ``step``."""
        return self.at(step).value

    def at(self, step: float) -> State:
        """The state at t = ``step``."""
        if self._trial is None or self._trial[0] != step:
            self._trial = step, self._model.step(self._state, self._direction, step)
        return self._trial[1]

    def curvature(self) -> float:
        """<d, Hessian d> by one product."""
        return dot(self._direction, self._state.hessian_vector(self._direction))
