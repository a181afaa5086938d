"""Stochastic gradient descent on samples, as nets are trained."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...._support.checks import integer, real
from ...logit_problem import LogitProblem
from ...objectives.base import Objective, State
from ...objectives.logits import LogitObjective
from ...problem import Problem
from ..method import Method, solver_methods

__all__ = ["StochasticGradient"]


@solver_methods.add("sgd")
@dataclass(frozen=True)
class StochasticGradient(Method):
    """An iteration is one pass over all samples in random order, in batches.

    A batch moves W, b and its own features by unbiased estimates of their gradients: a feature's is its own gradient,
    N/batch times as large because it is drawn that rarely. The rate falls as rate/sqrt(1 + pass/halving).
    """

    rate: float = 0.1
    batch: int = 16
    halving: float = 100.0
    seed: int = 0

    name: ClassVar[str] = "sgd"
    summary: ClassVar[str] = "stochastic gradient descent on batches of samples; an iteration is a pass"
    products: ClassVar[int] = 4
    reliable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        real("rate", self.rate, above=0)
        integer("batch", self.batch, minimum=1)
        real("halving", self.halving, above=0)
        integer("seed", self.seed, minimum=0)

    @classmethod
    def supports(cls, problem: Problem) -> bool:
        """Models on logits with free features, or on spheres."""
        return isinstance(problem, LogitProblem)

    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """One pass an iteration."""
        if not isinstance(objective, LogitObjective):
            raise TypeError("stochastic gradients need a model on logits")
        temperature, decays = objective.temperature, objective.decays
        generator = torch.Generator().manual_seed(self.seed)
        labels, count = objective.problem.labels, objective.problem.num_samples
        passes = 0
        while True:
            rate = self.rate / math.sqrt(1 + passes / self.halving)
            x = state.x.clone()
            point = objective.point(x)
            weight, features = point.classifier, point.H
            for batch in torch.randperm(count, generator=generator).split(self.batch):
                rows = features[batch]
                logits = objective.finish_logits_(rows @ weight.T, point.b)
                slope = objective.loss.linearize(logits, labels[batch]).gradient
                pull = temperature * (slope @ weight) + decays[1] * count / len(batch) * rows
                weight -= rate * (temperature * (slope.T @ rows) + decays[0] * weight)
                features[batch] = rows - rate * pull
                if point.b is not None:
                    point.b.sub_(rate * (slope.sum(0) + decays[2] * point.b))
                if objective.unit_rows:
                    weight /= weight.norm(dim=1, keepdim=True)
                    features[batch] /= features[batch].norm(dim=1, keepdim=True)
            passes += 1
            state = objective.state(x)
            yield state
