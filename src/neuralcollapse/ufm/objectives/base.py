"""A model's objective on one flat vector: what its own verbs evaluate, what methods move and certificates judge.

The blocks of a point lie behind each other (W, H, b) in one float64 vector x, so that a method's linear algebra is a
few calls on contiguous memory. A :class:`State` is the objective at one x; methods ask an :class:`Objective` for
states, for steps that stay feasible and for the block metric, and write plain tensors.

Memory is the objective's own business: a state keeps what it computed until a step leaves it behind. What a large
problem's state had is then computed again if it is asked for, so a method that needs its gradient for longer holds it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ..point import Point

if TYPE_CHECKING:
    from ..problem import Problem

__all__ = ["Line", "Objective", "State", "dot"]


def dot(left: Float[Tensor, " D"], right: Float[Tensor, " D"]) -> float:
    """<u, v> of two flat vectors."""
    return torch.dot(left, right).item()


class State(ABC):
    """The objective at one point. ``value`` is known; gradient and Hessian products are computed when asked for."""

    x: Float[Tensor, " D"]
    """The point as one vector."""
    value: float
    _gradient_norm: float | None = None

    @property
    @abstractmethod
    def gradient(self) -> Float[Tensor, " D"]:
        """The gradient (on spheres the Riemannian one)."""

    @property
    def gradient_norm(self) -> float:
        """The Euclidean norm of the gradient, kept when the gradient is not."""
        if self._gradient_norm is None:
            gradient = self.gradient
            self._gradient_norm = math.sqrt(dot(gradient, gradient))
        return self._gradient_norm

    @property
    def logits(self) -> Tensor | None:
        """The logits (N, K), for the accuracy; None in a model without a classifier."""
        return None

    @abstractmethod
    def hessian_vector(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The (Riemannian) Hessian times a tangent vector; the next product may overwrite it."""


class Line(ABC):
    """The objective along a retracted ray t -> R_x(t d)."""

    @abstractmethod
    def value(self, step: float) -> float:
        """The value at t = ``step``."""

    @abstractmethod
    def at(self, step: float) -> State:
        """The state at t = ``step``; the line is used up."""

    @abstractmethod
    def curvature(self) -> float:
        """d^2/dt^2 of the value at t = 0, that is <d, Hessian d>."""


class Objective(ABC):
    """A problem in flat form.

    ``sizes`` are the entries of the blocks W, H, b that are there, ``scales`` the inverse weights of the block metric:
    one number a block.
    """

    def __init__(self, problem: "Problem", sizes: Sequence[int], scales: tuple[float, ...]):
        self.problem = problem
        self.sizes = list(sizes)
        self.scales = scales
        self.entries = sum(self.sizes)
        self.work = float(problem.num_samples * problem.num_classes * problem.dim)
        """Multiplications in a product of features and classifier."""
        self._rounding = 1e-15 * max(1.0, getattr(problem, "temperature", 1.0))

    def weigh_alike(self) -> None:
        """Before the first step: the plain metric |W|^2 + |H|^2 + |b|^2, over the number of rows, for the block one."""
        rows = self.problem.num_samples + (self.problem.num_classes if self.problem.has_classifier else 0)
        self.scales = (float(rows),) * len(self.scales)

    def rounding(self, state: State) -> float:
        """A change of the value below this may be rounding: logits of size tau carry errors of tau 1e-16."""
        return max(self._rounding, 1e-15 * abs(state.value))

    def empty(self, dtype: torch.dtype = torch.float64) -> Float[Tensor, " D"]:
        """A vector with arbitrary entries, for ``out=``; where vectors are large, in memory that was used before."""
        return torch.empty(self.entries, dtype=dtype)

    def two_empty(self, dtype: torch.dtype) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
        """Two of them, behind each other: in single precision they fit where one of double precision was."""
        return self.empty(dtype), self.empty(dtype)

    @abstractmethod
    def point(self, x: Float[Tensor, " D"]) -> Point:
        """The point that ``x`` stands for; its blocks may be views into it."""

    def flatten(self, point: Point) -> Float[Tensor, " D"]:
        """``point`` as a new vector."""
        return point.flatten()

    def precondition(self, vector: Float[Tensor, " D"], out: Float[Tensor, " D"] | None = None) -> Float[Tensor, " D"]:
        """The gradient in the block metric: each block times its scale, into ``out`` or a new vector."""
        result = self.empty(vector.dtype) if out is None else out
        pieces = zip(vector.split_with_sizes(self.sizes), result.split_with_sizes(self.sizes), self.scales, strict=True)
        for piece, target, scale in pieces:
            torch.mul(piece, scale, out=target)
        return result

    def metric_norm(self, vector: Float[Tensor, " D"]) -> float:
        """The length of a tangent vector in the block metric, sqrt(sum |block|^2 / scale)."""
        pieces = zip(vector.split_with_sizes(self.sizes), self.scales, strict=True)
        return math.sqrt(sum(dot(piece, piece) / scale for piece, scale in pieces))

    @abstractmethod
    def state(self, x: Float[Tensor, " D"]) -> State:
        """The objective at ``x``."""

    @abstractmethod
    def step(self, state: State, direction: Float[Tensor, " D"], length: float = 1.0) -> State:
        """The state at R_x(length * direction)."""

    @abstractmethod
    def line(self, state: State, direction: Float[Tensor, " D"]) -> Line:
        """The objective along a tangent ``direction``."""

    @abstractmethod
    def retract(self, x: Float[Tensor, " D"], direction: Float[Tensor, " D"], length: float) -> Float[Tensor, " D"]:
        """A feasible x + length * direction, in a vector of its own."""

    @abstractmethod
    def project_(self, x: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Replace ``vector`` by its tangent part at ``x``."""
