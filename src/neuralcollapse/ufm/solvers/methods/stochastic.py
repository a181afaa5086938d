"""Stochastic gradient descent on samples, as nets are trained."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...._support.checks import integer, real
from ...normalized import NormalizedUFM
from ...objective import Model, State
from ...problem import Problem
from ...regularized import RegularizedUFM
from ..method import Method, methods_registry

__all__ = ["StochasticGradient"]


@methods_registry.add("sgd")
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
        if isinstance(problem, RegularizedUFM):
            return not problem.nonnegative
        return isinstance(problem, NormalizedUFM)

    def iterate(self, model: Model, state: State) -> Iterator[State]:
        """One pass an iteration."""
        problem = model.problem
        assert isinstance(problem, RegularizedUFM | NormalizedUFM)
        sphere = isinstance(problem, NormalizedUFM)
        temperature = problem.temperature if sphere else 1.0
        decays = (0.0, 0.0, 0.0)
        if isinstance(problem, RegularizedUFM):
            decays = problem.weight_decay, problem.feature_decay, problem.bias_decay or 0.0
        generator = torch.Generator().manual_seed(self.seed)
        labels, count = problem.labels, problem.num_samples
        passes = 0
        while True:
            rate = self.rate / math.sqrt(1 + passes / self.halving)
            x = state.x.clone()
            point = model.point(x)
            weight, features = point.classifier, point.H
            for batch in torch.randperm(count, generator=generator).split(self.batch):
                rows = features[batch]
                logits = temperature * (rows @ weight.T)
                if point.b is not None:
                    logits += point.b
                slope = problem.loss.linearize(logits, labels[batch]).gradient
                pull = temperature * (slope @ weight) + decays[1] * count / len(batch) * rows
                weight -= rate * (temperature * (slope.T @ rows) + decays[0] * weight)
                features[batch] = rows - rate * pull
                if point.b is not None:
                    point.b.sub_(rate * (slope.sum(0) + decays[2] * point.b))
                if sphere:
                    weight /= weight.norm(dim=1, keepdim=True)
                    features[batch] /= features[batch].norm(dim=1, keepdim=True)
            passes += 1
            state = model.state(x)
            yield state
