"""The pieces that methods are made of, against what textbooks write."""

from collections import deque

import pytest
import torch

from neuralcollapse.ufm import RegularizedUFM
from neuralcollapse.ufm.objectives.base import Line
from neuralcollapse.ufm.solvers.line_search import backtrack, shrink
from neuralcollapse.ufm.solvers.methods.lbfgs import two_loops


def test_two_loops_are_the_dense_update_of_the_inverse():
    """H' = (I - s y'/<s, y>) H (I - y s'/<s, y>) + s s'/<s, y>, pair by pair, from the scaled block metric."""
    objective = RegularizedUFM("ce", 3, 2, 4, 0.01, 0.02, 0.03).objective()
    size = sum(objective.sizes)
    generator = torch.Generator().manual_seed(0)
    pairs = deque()
    for _ in range(4):
        change, turn = (torch.randn(size, dtype=torch.float64, generator=generator) for _ in range(2))
        turn = turn if float(change @ turn) > 0 else -turn
        pairs.append((change, turn, float(change @ turn)))
    metric = objective.precondition(torch.ones(size, dtype=torch.float64))
    _, turn, inner = pairs[-1]
    inverse = torch.diag(metric) * (inner / float(turn @ (metric * turn)))
    for change, turn, inner in pairs:
        side = torch.eye(size, dtype=torch.float64) - torch.outer(change, turn) / inner
        inverse = side @ inverse @ side.T + torch.outer(change, change) / inner
    gradient = torch.randn(size, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(two_loops(objective, gradient, pairs), inverse @ gradient, rtol=1e-9, atol=1e-9)


class Ray(Line):
    """Values along a ray by a function of the length."""

    def __init__(self, function):
        self.function = function

    def value(self, step):
        return self.function(step)

    def at(self, step):
        raise NotImplementedError

    def curvature(self):
        raise NotImplementedError


def test_a_step_that_falls_too_little_is_shortened():
    values = {1.0: -1e-6, 0.5: -0.3}
    found = backtrack(Ray(lambda length: values[length]), 0.0, -1.0, 1.0, 0.0)
    assert (found.length, found.value) == (0.5, -0.3)
    assert backtrack(Ray(lambda length: -1e-6 * length), 0.0, -1.0, 1.0, 0.0) is None
    assert backtrack(Ray(lambda length: 1e-9), 0.0, -1e-12, 1.0, 1e-8).length == 1.0  # within rounding


@pytest.mark.parametrize(("excess", "factor"), [(1.0, 0.25), (100.0, 0.1), (-0.9, 0.5), (-2.0, 0.5)])
def test_the_factor_is_that_of_the_parabola(excess, factor):
    assert shrink(excess, -1.0) == pytest.approx(factor)
