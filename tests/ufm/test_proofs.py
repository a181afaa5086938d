"""What is called proved holds: certificates close at optima, and no solve goes below one.

``NEURALCOLLAPSE_PROBLEMS=1`` draws all 300 and 500 problems; without it a part of them.
"""

import os

import numpy as np
import pytest

from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, Problem, solve
from random_problems import any_problem, imbalanced

pytestmark = pytest.mark.unchecked

ALL = "NEURALCOLLAPSE_PROBLEMS" in os.environ


@pytest.mark.parametrize("seed", range(12 if ALL else 3))
def test_certificates_close_at_optima_of_any_counts(seed):
    """25 problems a seed that have an optimum: gap, value and point agree to 1e-12 of the value."""
    generator = np.random.default_rng(seed)
    judged = 0
    while judged < 25:
        problem = imbalanced(generator)
        try:
            optimum = problem.optimum()
        except NotImplementedError:
            assert problem.dim < problem.num_classes, problem
            continue
        judged += 1
        certificate = problem.certify(optimum.point)
        assert abs(certificate.gap) < 1e-12 * optimum.value, problem
        assert certificate.value == pytest.approx(optimum.value, rel=1e-12), problem
        assert certificate.verdict == "global minimum", problem
        assert optimum.proved, problem


def descents(problem: Problem, count: int):
    """Minima from starts of several sizes, by two methods in turn."""
    sphere = isinstance(problem, NormalizedUFM | ContrastiveUFM)
    for seed in range(count):
        start = problem.random_point(seed)
        if not sphere:
            start = start * (1.0, 0.1, 5.0, 30.0)[seed % 4]
        method = ("lbfgs", "trust-region")[seed % 2]
        yield solve(problem, method, start=start, tol=1e-9, max_iter=400, record=())


@pytest.mark.parametrize("seed", range(50 if ALL else 4))
def test_no_solve_beats_what_is_proved(seed):
    """10 problems a seed over all models and losses: values called proved, and bounds at the points found."""
    generator = np.random.default_rng(1000 + seed)
    for _ in range(10):
        problem = any_problem(generator)
        best = min(descents(problem, 4 if ALL else 2), key=lambda trace: trace.value)
        certificate = problem.certify(best.point)
        rounding = 1e-10 * abs(best.value) + 1e-14
        assert certificate.lower_bound <= best.value + rounding, problem
        try:
            optimum = problem.optimum()
        except NotImplementedError:
            continue
        at_optimum = problem.certify(optimum.point)
        assert problem.value(optimum.point) == pytest.approx(optimum.value, rel=1e-11, abs=1e-14), problem
        if optimum.proved:
            assert best.value >= optimum.value - rounding, problem
            assert at_optimum.verdict == "global minimum", problem
        elif at_optimum.verdict == "global minimum":
            assert best.value >= optimum.value - 1e-7 * abs(optimum.value), problem
