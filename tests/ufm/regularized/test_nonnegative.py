"""Non-negative features: the closed form against projected descent that does not know it."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from neuralcollapse.losses import CrossEntropy, LogitAdjusted
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


def test_geometric_footnote_17_the_classifier_ignores_the_mean_of_nonnegative_features():
    problem = RegularizedUFM("ce", 4, 5, 8, 5e-3, 5e-3, features="nonnegative")
    point = problem.optimum().point
    mean = point.H.mean(0)
    assert float(mean.norm()) > 0.6
    assert float((point.W @ mean).abs().max()) < 1e-14
    free = RegularizedUFM("ce", 4, 5, 8, 5e-3, 5e-3).optimum().point
    assert float(free.H.mean(0).norm()) < 1e-14  # with free features there is no such mean


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


def test_weights_scale_the_threshold_of_each_class():
    counts, decays = [12, 5, 5], (0.08, 0.08)
    plain = RegularizedUFM("ce", 3, counts, 4, *decays, features="nonnegative")
    ones = RegularizedUFM(CrossEntropy([1, 1, 1]), 3, counts, 4, *decays, features="nonnegative")
    assert ones.count_threshold() == pytest.approx((plain.count_threshold(),) * 3, rel=1e-12)
    # Twice the loss at twice the decays is twice the objective.
    twice = RegularizedUFM(CrossEntropy([2, 2, 2]), 3, counts, 4, 0.16, 0.16, features="nonnegative")
    assert twice.count_threshold() == pytest.approx(ones.count_threshold(), rel=1e-12)


@pytest.mark.parametrize(("excess", "learned"), [(0.9, True), (1.1, False)])
def test_a_weighted_class_is_learned_from_its_threshold_on(excess, learned):
    counts, weights, classes = [30, 6], [1.0, 1.5], 2
    mu = np.sqrt(excess * 6 * (classes - 1) / classes) * 1.5 / sum(counts)
    problem = RegularizedUFM(CrossEntropy(weights), classes, counts, 3, mu, mu, features="nonnegative")
    assert problem.count_threshold()[1] == pytest.approx(excess * 6, rel=1e-12)
    features = torch.zeros(classes, 3, dtype=torch.float64)
    features[0, 0] = features[1, 1] = 1.0
    weight = features - features.mean(0)
    start = Point(weight, features[problem.labels] + 1e-3)
    point = solve(problem, "lbfgs", start=start, tol=1e-11, max_iter=5000).point
    own = point.H[-1] @ (point.W[1] - point.W[0])
    assert (float(own) > 1e-2) is learned


def test_no_threshold_is_stated_where_classes_do_not_pay_alone():
    """With a free bias two classes of 6 are told apart above N^2 lW lH K/(K-1) = 6.4, which is no threshold there."""
    counts = [30, 30, 6, 6]
    mu = 1.03 * np.sqrt(6 * 3 / 4) / sum(counts)
    problem = RegularizedUFM("ce", 4, counts, 8, mu, mu, bias_decay=0.0, features="nonnegative")
    features = torch.zeros(4, 8, dtype=torch.float64)
    features[:, :4] = torch.eye(4, dtype=torch.float64)
    start = Point(features - features.mean(0), features[problem.labels] + 1e-3, torch.zeros(4, dtype=torch.float64))
    apart = solve(problem, "lbfgs", start=start, tol=1e-10, max_iter=5000)
    together = apart.point.H.clone()
    together[60:] = apart.point.H[60:].mean(0)
    merged = Point(apart.point.W, together, apart.point.b)
    same = solve(problem, "lbfgs", start=merged, tol=1e-10, max_iter=5000)
    margin = apart.point.H[60] @ (apart.point.W[2] - apart.point.W[3])
    assert float(margin) > 0.5
    assert apart.value <= same.value * (1 + 1e-9)
    with pytest.raises(NotImplementedError, match="no count threshold is known"):
        problem.count_threshold()
    adjusted = RegularizedUFM(LogitAdjusted("ce", [3, 1]), 2, [3, 1], 3, 0.1, 0.1, features="nonnegative")
    with pytest.raises(NotImplementedError, match="no count threshold is known"):
        adjusted.count_threshold()
    balanced = RegularizedUFM("ce", 3, 4, 4, 0.1, 0.1, bias_decay=0.0, features="nonnegative")
    assert balanced.count_threshold() == pytest.approx((12 * 0.1) ** 2 * 3 / 2, rel=1e-12)


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
