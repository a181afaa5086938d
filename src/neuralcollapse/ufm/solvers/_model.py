"""A model on one flat vector: what every method moves.

The blocks of a point lie behind each other (W, H, b) in one float64 vector x, so that a method's linear
algebra is a few calls on contiguous memory. A :class:`State` is the model at one x; methods ask a
:class:`Model` for states, for steps that stay feasible and for the block metric.
"""

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from .._problem import Problem
from ..point import Point

__all__ = ["Line", "Model", "State", "dot"]


def dot(left: Float[Tensor, " D"], right: Float[Tensor, " D"]) -> float:
    """<u, v> of two flat vectors."""
    return torch.dot(left, right).item()


class State(ABC):
    """The model at one point. ``value`` is known; vector, gradient and Hessian products are computed when
    asked for.
    """

    value: float

    @property
    @abstractmethod
    def x(self) -> Float[Tensor, " D"]:
        """The point as one vector; never written to."""

    @property
    @abstractmethod
    def gradient(self) -> Float[Tensor, " D"]:
        """The gradient (on spheres the Riemannian one), kept; never written to."""

    @property
    def gradient_norm(self) -> float:
        """The Euclidean norm of the gradient."""
        return math.sqrt(dot(self.gradient, self.gradient))

    @property
    def logits(self) -> Tensor | None:
        """The logits (N, K), for the accuracy; None in a model without a classifier."""
        return None

    @abstractmethod
    def hessian_vector(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The (Riemannian) Hessian times a tangent vector; the next product may overwrite it."""


class Line(ABC):
    """The model along a retracted ray t -> R_x(t d)."""

    @abstractmethod
    def at(self, step: float) -> State:
        """The state at t = ``step``."""

    @abstractmethod
    def curvature(self) -> float:
        """d^2/dt^2 of the value at t = 0, that is <d, Hessian d>."""


class Model(ABC):
    """A problem in flat form.

    ``scales`` are the inverse weights of the block metric: one number a block, in the order W, H, b.
    """

    def __init__(self, problem: Problem, template: Point, scales: tuple[float, ...]):
        self.problem = problem
        self.template = template
        self.scales = scales
        self._sizes = [block.numel() for block in template.blocks]
        self.work = float(problem.num_samples * problem.num_classes * problem.dim)
        """Multiplications in a product of features and classifier."""

    def flatten(self, point: Point) -> Float[Tensor, " D"]:
        """``point`` as a new vector."""
        return point.flatten()

    def point(self, x: Float[Tensor, " D"]) -> Point:
        """The point whose blocks are views into ``x``."""
        return self.template.like(x)

    def precondition(self, vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The gradient in the block metric: each block times its scale, in a new vector."""
        result = vector.clone()
        for piece, scale in zip(torch.split(result, self._sizes), self.scales, strict=True):
            piece *= scale
        return result

    def metric_norm(self, vector: Float[Tensor, " D"]) -> float:
        """The length of a tangent vector in the block metric, sqrt(sum |block|^2 / scale)."""
        pieces = zip(torch.split(vector, self._sizes), self.scales, strict=True)
        return math.sqrt(sum(dot(piece, piece) / scale for piece, scale in pieces))

    @abstractmethod
    def state(self, x: Float[Tensor, " D"]) -> State:
        """The model at ``x``."""

    def step(self, state: State, direction: Float[Tensor, " D"], length: float = 1.0) -> State:
        """The state at R_x(length * direction)."""
        return self.state(self.retract(state.x, direction, length))

    @abstractmethod
    def line(self, state: State, direction: Float[Tensor, " D"]) -> Line:
        """The model along a tangent ``direction``."""

    def retract(self, x: Float[Tensor, " D"], direction: Float[Tensor, " D"], length: float) -> Float[Tensor, " D"]:
        """A feasible x + length * direction, in a new vector."""
        return torch.add(x, direction, alpha=length)

    def project_(self, x: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Replace ``vector`` by its tangent part at ``x``."""
        return vector
