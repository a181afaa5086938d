"""Non-negative features: the closed form against projected descent that does not know it."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from neuralcollapse.ufm import Point, RegularizedUFM, methods, solve


def lowest_by_bounds(problem, starts):
    """The best of L-BFGS-B runs with the bound H >= 0."""
    template = problem.random_point(0)
    bounds = [(None, None)] * template.W.numel() + [(0, None)] * template.H.numel()

    def objective(flat):
        state = problem.linearize(template.like(torch.from_numpy(flat.copy())))
        return state.value, state.gradient.flatten().numpy()

    options = {"maxiter": 4000, "ftol": 1e-16, "gtol": 1e-10}
    found = [
        minimize(objective, problem.random_point(s).flatten().numpy(), jac=True, bounds=bounds, options=options).fun
        for s in range(starts)
    ]
    return min(found)


def test_the_sheets_example():
    problem = RegularizedUFM("ce", 3, [5, 3, 2], 3, 0.02, 0.01, features="nonnegative")
    assert problem.optimum().value == pytest.approx(0.274771715243, abs=1e-12)


@pytest.mark.parametrize(
    ("counts", "dim", "decays"),
    [
        ((5, 3, 2), 3, (0.02, 0.01)),
        ((6, 2, 2, 1), 5, (0.05, 0.02)),
        ((4, 4), 3, (0.01, 0.03)),
        ((9, 1, 1), 4, (0.1, 0.1)),
    ],
)
def test_no_bounded_descent_goes_below_and_the_best_gets_there(counts, dim, decays):
    problem = RegularizedUFM("ce", len(counts), list(counts), dim, *decays, features="nonnegative")
    optimum = problem.optimum()
    assert problem.value(optimum.point) == pytest.approx(optimum.value, rel=1e-13)
    assert float(optimum.point.H.min()) >= 0
    assert problem.certify(optimum.point).verdict == "global minimum"
    best = lowest_by_bounds(problem, 6)
    assert best == pytest.approx(optimum.value, rel=1e-7)
    assert best >= optimum.value * (1 - 1e-12)
    point = optimum.point
    assert optimum.weight_norm == pytest.approx(float(point.W.square().sum(1).mean().sqrt()), rel=1e-12)
    assert optimum.feature_norm == pytest.approx(float(point.H.square().sum(1).mean().sqrt()), rel=1e-12)


@pytest.mark.parametrize("method", ["gradient-descent", "lbfgs", "trust-region", "conjugate-gradient"])
def test_every_method_stays_feasible_and_descends(method):
    problem = RegularizedUFM("ce", 3, [4, 2, 2], 4, 0.02, 0.02, features="nonnegative")
    traces = [solve(problem, method, seed=seed, tol=1e-7, max_iter=400) for seed in range(4)]
    for trace in traces:
        assert float(trace.point.H.min()) >= 0
        assert trace.value == pytest.approx(problem.value(trace.point), rel=1e-12)
        assert trace.value >= problem.optimum().value * (1 - 1e-12)
    # Spurious local minima exist, so the best of a few starts.
    assert min(trace.value for trace in traces) == pytest.approx(problem.optimum().value, rel=1e-6)
    assert "reduced" not in methods(problem)


def test_classes_are_learned_one_by_one_at_the_threshold():
    counts = [40, 9, 8, 2]
    total = sum(counts)
    mu = np.sqrt(8.5 * 3 / 4) / total
    problem = RegularizedUFM("ce", 4, counts, 4, mu, mu, features="nonnegative")
    assert problem.count_threshold() == pytest.approx(8.5, rel=1e-12)
    assert problem.learned_classes() == (0, 1)
    assert problem.optimum().regime == "minority collapse"


def test_other_losses_have_the_free_bound_and_no_closed_form():
    problem = RegularizedUFM("mse", 3, 4, 5, 0.01, 0.01, features="nonnegative")
    with pytest.raises(NotImplementedError, match="closed form is known for cross-entropy without a bias"):
        problem.optimum()
    certificate = problem.certify(problem.random_point(0))
    assert certificate.verdict == "not a critical point"
    assert certificate.lower_bound <= solve(problem, "lbfgs", seed=0).value
    free = RegularizedUFM("mse", 3, 4, 5, 0.01, 0.01)
    # Here the free optimum (an orthogonal frame) is reached by non-negative features too.
    assert solve(problem, "lbfgs", seed=0).value >= free.optimum().value * (1 - 1e-12)


def test_negative_features_and_other_words_are_refused():
    problem = RegularizedUFM("ce", 3, 2, 4, 0.01, 0.01, features="nonnegative")
    point = problem.random_point(0)
    with pytest.raises(ValueError, match=r"point.H must not be negative"):
        problem.value(Point(point.W, -point.H))
    assert RegularizedUFM.from_json(problem.to_json()) == problem


@pytest.mark.unchecked
def test_features_takes_two_words():
    with pytest.raises(ValueError, match="features must be 'free' or 'nonnegative', got 'relu'"):
        RegularizedUFM("ce", 3, 2, 4, 0.01, 0.01, features="relu")
