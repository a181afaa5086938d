"""One group of features stands for all: exact for balanced problems, for finding the optimum only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...logit_problem import LogitProblem
from ...objectives.base import Objective, State
from ...objectives.logits import LogitObjective
from ...point import Point
from ...problem import Problem
from ..method import Method, solver_methods
from .trust_region import TrustRegion

__all__ = ["Reduced"]


@solver_methods.add("reduced")
@dataclass(frozen=True)
class Reduced(Method):
    """f(W, H) = mean over groups i of f_1(W, H^i), f_1 the model with n = 1.

    H^i has the i-th sample of every class; in the regularised model f_1 has n times the feature decay. So replacing all
    groups by the best one never raises the objective, and what is left is the problem with n = 1, for trust regions.
    Its gradient norm bounds that of the whole problem. The path is not one that any descent on the whole problem would
    take.
    """

    name: ClassVar[str] = "reduced"
    summary: ClassVar[str] = "the best group of samples for all, then trust regions with n = 1 (balanced classes)"
    leaves_saddles: ClassVar[bool] = True
    products: ClassVar[int] = TrustRegion.products

    @classmethod
    def supports(cls, problem: Problem) -> bool:
        """Balanced models on logits."""
        return problem.balanced and isinstance(problem, LogitProblem)

    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """Trust regions."""
        return TrustRegion().iterate(objective, state)

    def recast(self, problem: Problem, start: Point) -> tuple[Problem, Point]:
        """The problem with n = 1, and the best group of ``start``."""
        if not isinstance(problem, LogitProblem):
            raise TypeError("groups of samples are for models on logits")
        objective, per_class = problem.logit_objective(), problem.counts[0]
        groups = start.H.view(problem.num_classes, per_class, problem.dim)
        values = sample_losses(objective, start).view(problem.num_classes, per_class).mean(0)
        # What the groups do not share of the penalty.
        values += objective.decays[1] * per_class / 2 * torch.linalg.vector_norm(groups, dim=(0, 2)).square()
        best = int(values.argmin())
        return problem.with_one_sample(), Point(start.W, groups[:, best].contiguous(), start.b)

    def restore(self, problem: Problem, point: Point) -> Point:
        """Every sample of a class gets its feature."""
        copy = super().restore(problem, point)
        return Point(copy.W, torch.repeat_interleave(copy.H, problem.counts[0], dim=0), copy.b)


def sample_losses(objective: LogitObjective, start: Point) -> Tensor:
    """The loss of each sample, part by part."""
    W = start.classifier
    parts = [
        objective.loss.values(objective.finish_logits_(torch.mm(part.of(start.H), W.T), start.b), part.labels)
        for part in objective.parts
    ]
    return torch.cat(parts)
