"""A model on one flat vector: what every method moves.

The blocks of a point lie behind each other (W, H, b) in one float64 vector x, so that a method's linear
algebra is a few calls on contiguous memory. A :class:`State` is the model at one x; methods ask a
:class:`Model` for states, for steps that stay feasible and for the block metric.

Memory: vectors come from :meth:`Model.take` and go back by :meth:`Model.give`; a state gives back what a
method no longer needs of it (:meth:`State.shed`) or all that it has (:meth:`State.retire`).
"""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .point import Point
from .problem import Problem

__all__ = ["Line", "Model", "Share", "State", "dot"]

Share = Literal["gradient", "hessian", "logits"]
"""What a state can do without: it is computed anew if it is asked for again."""


def dot(left: Float[Tensor, " D"], right: Float[Tensor, " D"]) -> float:
    """<u, v> of two flat vectors."""
    return torch.dot(left, right).item()


class State(ABC):
    """The model at one point. ``value`` is known; vector, gradient and Hessian products are computed when
    asked for.
    """

    value: float
    _gradient_norm: float | None = None

    @property
    @abstractmethod
    def x(self) -> Float[Tensor, " D"]:
        """The point as one vector; not written to before the state is retired."""

    @property
    @abstractmethod
    def gradient(self) -> Float[Tensor, " D"]:
        """The gradient (on spheres the Riemannian one), kept."""

    @property
    def gradient_norm(self) -> float:
        """The Euclidean norm of the gradient; known even when the gradient has been given back."""
        if self._gradient_norm is None:
            self._gradient_norm = math.sqrt(dot(self.gradient, self.gradient))
        return self._gradient_norm

    @property
    def logits(self) -> Tensor | None:
        """The logits (N, K), for the accuracy; None in a model without a classifier."""
        return None

    @abstractmethod
    def hessian_vector(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The (Riemannian) Hessian times a tangent vector; the next product may overwrite it."""

    @abstractmethod
    def shed(self, *shares: Share) -> None:
        """Give ``shares`` back to the model (none named: all); nobody else may still use them."""

    def retire(self) -> None:
        """Give everything back, the point too: the state is used no more."""
        self.shed()


class Line(ABC):
    """The model along a retracted ray t -> R_x(t d)."""

    @abstractmethod
    def value(self, step: float) -> float:
        """The value at t = ``step``."""

    @abstractmethod
    def at(self, step: float) -> State:
        """The state at t = ``step``; the line is used up."""

    @abstractmethod
    def curvature(self) -> float:
        """d^2/dt^2 of the value at t = 0, that is <d, Hessian d>."""

    def close(self) -> None:
        """Give back what the line holds: it is used up."""
        return


class Model(ABC):
    """A problem in flat form.

    ``scales`` are the inverse weights of the block metric: one number a block, in the order W, H, b.
    """

    def __init__(self, problem: Problem, template: Point, scales: tuple[float, ...]):
        self.problem = problem
        self.template = template
        self.scales = scales
        self._sizes = [block.numel() for block in template.blocks]
        self.entries = sum(self._sizes)
        self.work = float(problem.num_samples * problem.num_classes * problem.dim)
        """Multiplications in a product of features and classifier."""

    def weigh_alike(self) -> None:
        """Before the first step: the plain metric |W|^2 + |H|^2 + |b|^2, over the number of rows, for the block one."""
        rows = sum(len(block) for block in self.template.blocks if block.ndim == 2)
        self.scales = (float(rows),) * len(self.scales)

    def take(self) -> Float[Tensor, " D"]:
        """A vector with arbitrary entries."""
        return torch.empty(self.entries, dtype=torch.float64)

    def give(self, vector: Float[Tensor, " D"]) -> None:
        """Take ``vector`` back: nobody uses it any more."""
        return

    def flatten(self, point: Point) -> Float[Tensor, " D"]:
        """``point`` as a new vector."""
        return point.flatten()

    def point(self, x: Float[Tensor, " D"]) -> Point:
        """The point whose blocks are views into ``x``."""
        return self.template.like(x)

    def precondition(self, vector: Float[Tensor, " D"], out: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The gradient in the block metric: each block times its scale, into ``out``."""
        pieces = zip(torch.split(vector, self._sizes), torch.split(out, self._sizes), self.scales, strict=True)
        for piece, target, scale in pieces:
            torch.mul(piece, scale, out=target)
        return out

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
        """A feasible x + length * direction, in a vector of its own."""
        return torch.add(x, direction, alpha=length, out=self.take())

    def project_(self, x: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Replace ``vector`` by its tangent part at ``x``."""
        return vector
