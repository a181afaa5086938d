"""What a method is: an iterator of states, registered under its name."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch

from ..._support.registry import Registry
from ..objectives.base import Objective, State
from ..point import Point
from ..problem import Problem

__all__ = ["Method", "solver_methods"]

solver_methods: "Registry[type[Method]]" = Registry("method")


class Method(ABC):
    """A frozen, parametrised way down.

    The iterator that :meth:`iterate` returns knows nothing of stopping and recording; it ends where rounding
    lets it go no further.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    leaves_saddles: ClassVar[bool] = False
    """Whether a critical point found is certified, and left along the certificate's direction if it is a saddle."""
    reliable: ClassVar[bool] = True
    """Whether its defaults reach a minimum to rounding on any problem; one with a rate to choose promises nothing."""
    products: ClassVar[int] = 4
    """Products of order N K d that an iteration costs, roughly: it sets how often costly measures are recorded."""

    @classmethod
    def supports(cls, problem: Problem) -> bool:
        """Whether the method works on ``problem``."""
        return True

    @abstractmethod
    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """The states after ``state``, one an iteration."""

    def recast(self, problem: Problem, start: Point) -> tuple[Problem, Point]:
        """The problem and the start that are solved in place of the given ones."""
        return problem, start

    def restore(self, problem: Problem, point: Point) -> Point:
        """The point of ``problem`` that a solution of the recast one stands for, in new tensors."""
        return point.map(torch.clone)
