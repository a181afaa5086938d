"""What the models on logits share: a loss, and one objective behind all their verbs."""

from abc import abstractmethod
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ..losses import LogitLoss
from .objectives.base import Objective
from .objectives.logit_state import LogitState
from .objectives.logits import LogitObjective
from .point import Point
from .problem import Problem, ProblemLinearization

__all__ = ["LogitLinearization", "LogitProblem"]


class LogitProblem(Problem):
    """A model of the mean loss of tau H W' + 1 b'."""

    loss: LogitLoss

    @abstractmethod
    def logit_objective(self) -> LogitObjective:
        """The objective in W, H and b."""

    def objective(self) -> Objective:
        """The same, for methods."""
        return self.logit_objective()

    @abstractmethod
    def with_one_sample(self) -> "LogitProblem":
        """For balanced classes: the model with n = 1 whose minimum is this one's (its feature stands for n)."""

    def linearize(self, point: Point) -> "LogitLinearization":
        """Value and derivatives at ``point``, sharing the softmax."""
        objective = self.logit_objective()
        with torch.inference_mode():
            return LogitLinearization(objective.state(point.flatten()))


class LogitLinearization(ProblemLinearization):
    """The objective of a model on logits around one point.

    It is evaluated in inference mode, as in a solve; what leaves is a copy outside of it, which autograd may use.
    """

    def __init__(self, state: LogitState):
        self._state = state
        self.value = state.value

    @property
    def gradient(self) -> Point:
        """The gradient; on spheres the Riemannian one."""
        with torch.inference_mode():
            gradient = self._state.gradient
        return self._state.objective.point(gradient.clone())

    def hessian_vector(self, direction: Point) -> Point:
        """The Hessian times ``direction``; on spheres the Riemannian one, of a tangent direction."""
        with torch.inference_mode():
            product = self._state.hessian_vector(direction.flatten())
        return self._state.objective.point(product.clone())

    @property
    def logits(self) -> Float[Tensor, "N K"]:
        """Z."""
        return self._state.logits.clone()

    @cached_property
    def logit_gradient(self) -> Float[Tensor, "N K"]:
        """G, the gradient of the mean loss in the logits."""
        with torch.inference_mode():
            slopes = [loss.slope for loss in self._state.losses()]
        return torch.cat(slopes) / self._state.objective.temperature

    @property
    def multipliers(self) -> Float[Tensor, " R"]:
        """On spheres: tau <w_k, (G'H)_k> of each classifier, then tau <h_i, (G W)_i> of each feature; else empty."""
        with torch.inference_mode():
            found = self._state.multipliers
        return found.squeeze(1).clone()

    @property
    def alpha(self) -> Float[Tensor, "K 1"]:
        """On spheres: <w_k, (G'H)_k> of each classifier (normalized (7))."""
        count = self._state.objective.classes
        return self.multipliers[:count, None] / self._state.objective.temperature

    @property
    def beta(self) -> Float[Tensor, "N 1"]:
        """On spheres: <h_i, (G W)_i> of each feature (normalized (8))."""
        count = self._state.objective.classes
        return self.multipliers[count:, None] / self._state.objective.temperature
