"""One group of features stands for all: exact for balanced problems, for finding the optimum only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...logit_objective import LogitModel
from ...normalized import NormalizedUFM
from ...objective import Model, State
from ...point import Point
from ...problem import Problem
from ...regularized import RegularizedUFM
from ..method import Method, flat_model, methods_registry
from .trust_region import TrustRegion

__all__ = ["Reduced"]


@methods_registry.add("reduced")
@dataclass(frozen=True)
class Reduced(Method):
    """f(W, H) = mean over groups i of f_1(W, H^i): H^i has the i-th sample of every class, f_1 is the model
    with n = 1.

    (In the regularised model f_1 has n times the feature decay.) So replacing all groups by the best one
    never raises the objective, and what is left is the problem with n = 1, for trust regions. Its
    gradient norm bounds that of the whole problem. The path is not one that any descent on the whole problem
    would take.
    """

    name: ClassVar[str] = "reduced"
    summary: ClassVar[str] = "the best group of samples for all, then trust regions with n = 1 (balanced classes)"
    leaves_saddles: ClassVar[bool] = True
    products: ClassVar[int] = TrustRegion.products

    @classmethod
    def supports(cls, problem: Problem) -> bool:
        """Balanced models on logits."""
        if isinstance(problem, RegularizedUFM) and problem.nonnegative:
            return False
        return problem.balanced and isinstance(problem, RegularizedUFM | NormalizedUFM)

    def iterate(self, model: Model, state: State) -> Iterator[State]:
        """Trust regions."""
        return TrustRegion().iterate(model, state)

    def recast(self, problem: Problem, start: Point) -> tuple[Problem, Point]:
        """The problem with n = 1, and the best group of ``start``."""
        assert isinstance(problem, RegularizedUFM | NormalizedUFM)
        model = flat_model(problem)
        assert isinstance(model, LogitModel)
        per_class = problem.counts[0]
        groups = start.H.view(problem.num_classes, per_class, problem.dim)
        values = self._sample_losses(problem, model, start).view(problem.num_classes, per_class).mean(0)
        if isinstance(problem, RegularizedUFM):
            # What the groups do not share of the penalty.
            values += problem.feature_decay * per_class / 2 * torch.linalg.vector_norm(groups, dim=(0, 2)).square()
        best = int(values.argmin())
        return self._with_one_sample(problem), Point(start.W, groups[:, best].contiguous(), start.b)

    @staticmethod
    def _sample_losses(problem: RegularizedUFM | NormalizedUFM, model: LogitModel, start: Point) -> Tensor:
        """The loss of each sample, part by part."""
        W = start.classifier
        return torch.cat(
            [
                problem.loss.values(model.finish_logits_(torch.mm(part.of(start.H), W.T), start.b), part.labels)
                for part in model.parts
            ]
        )

    def restore(self, problem: Problem, point: Point) -> Point:
        """Every sample of a class gets its feature."""
        copy = super().restore(problem, point)
        return Point(copy.W, torch.repeat_interleave(copy.H, problem.counts[0], dim=0), copy.b)

    @staticmethod
    def _with_one_sample(problem: Problem) -> Problem:
        parameters = {**problem.parameters(), "per_class": 1}
        if isinstance(problem, RegularizedUFM):
            parameters["feature_decay"] = problem.feature_decay * problem.counts[0]
        return type(problem)(**parameters)
