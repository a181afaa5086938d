"""Every closed form against solves that do not know it."""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
import torch

from neuralcollapse import losses
from neuralcollapse.frames import simplex_etf
from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, Point, RegularizedUFM, critical_temperature
from reference import best_value, lbfgs

pytestmark = pytest.mark.unchecked

REGULARIZED_LOSSES = ["ce", "ls:alpha=0.2", "focal:gamma=2", "mse", "mse:target=3", "mse:alpha=5,target=2",
                      "mse:alpha=0.4,target=2"]  # fmt: skip


def reach(loss):
    """The scale on which s = sqrt(n lW lH) moves a loss from collapse to zero, times K."""
    return getattr(loss, "target", 1.0)


def regularized_grid():
    """Every (loss, K, d - K) of the grid; n, decays, level and bias in turn, with periods prime to each other."""
    samples = itertools.cycle([1, 3, 10])
    ratios = itertools.cycle([1.0, 0.03, 30.0, 5.0])
    biases = itertools.cycle([None, 0.0, 0.01, 1.0, 100.0])
    levels = itertools.cycle([0.05, 0.5, 0.9, 0.99, 1.02, 2.0, 0.2])
    for spec, classes, offset in itertools.product(REGULARIZED_LOSSES, (2, 3, 5, 10), range(-3, 6)):
        if classes + offset >= 1:
            yield spec, classes, next(samples), classes + offset, next(levels), next(ratios), next(biases)


def build(spec, classes, samples, dim, level, ratio, bias):
    loss = losses.get(spec)
    s = level * reach(loss) / classes
    mu = s / math.sqrt(samples)
    return RegularizedUFM(loss, classes, samples, dim, mu * math.sqrt(ratio), mu / math.sqrt(ratio), bias)


GRID = list(regularized_grid())


@pytest.mark.parametrize("part", range(6))
def test_regularized_optimum_against_lbfgs(part):
    known = 0
    for case in GRID[part::6]:
        model = build(*case)
        try:
            optimum = model.optimum()
        except NotImplementedError:
            assert model.dim < model.num_classes
            continue
        known += 1
        scale = max(1.0, abs(optimum.value))
        assert model.value(optimum.point) == pytest.approx(optimum.value, abs=1e-12 * scale), case
        assert model.gradient(optimum.point).norm() < 1e-9, case
        tolerance = 1e-8 * scale
        lowest = math.inf
        for seed in range(6):  # a start that is slow or stops early gets company
            lowest = min(lowest, best_value(model, seeds=(seed,)))
            if lowest <= optimum.value + tolerance or not optimum.proved:
                break
        assert lowest >= optimum.value - 1e-9 * scale, case  # nothing is lower
        assert lowest <= optimum.value + tolerance or not optimum.proved, case
        check_numbers(model, optimum)
    assert known >= 25


def check_numbers(model, optimum):
    """Norms, logit scale, bias and Gram matrices that are reported, read off the point that is built."""
    point = optimum.point
    assert math.sqrt(float(point.W.square().sum(1).mean())) == pytest.approx(optimum.weight_norm, abs=1e-9)
    assert math.sqrt(float(point.H.square().sum(1).mean())) == pytest.approx(optimum.feature_norm, abs=1e-9)
    means = torch.stack([point.H[model.labels == k].mean(0) for k in range(model.num_classes)])
    torch.testing.assert_close(optimum.weight_gram, point.W @ point.W.T, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(optimum.mean_gram, means @ means.T, rtol=1e-9, atol=1e-10)
    if optimum.regime == "neural collapse":
        logits = means @ point.W.T
        margins = logits.diagonal()[:, None] - logits
        off = margins[~torch.eye(model.num_classes, dtype=torch.bool)]
        torch.testing.assert_close(off, torch.full_like(off, optimum.logit_scale), rtol=1e-8, atol=1e-10)
    if point.b is not None and optimum.bias is not None:
        torch.testing.assert_close(point.b, torch.full_like(point.b, optimum.bias))


def test_lbfgs_reaches_the_same_grams():
    """Not only the value: the minimiser that a solve finds has the Gram matrices that the closed form states."""
    for spec in ("ce", "ls:alpha=0.1", "focal:gamma=3", "mse", "mse:alpha=3,target=2"):
        model = RegularizedUFM(spec, 4, 3, 6, 0.02, 0.05, 0.5)
        optimum = model.optimum()
        point = lbfgs(model, model.random_point(1))
        means = torch.stack([point.H[model.labels == k].mean(0) for k in range(4)])
        torch.testing.assert_close(point.W @ point.W.T, optimum.weight_gram, rtol=0, atol=2e-6)
        torch.testing.assert_close(means @ means.T, optimum.mean_gram, rtol=0, atol=2e-6)
        assert float((point.H - means[model.labels]).abs().max()) < 1e-6
        torch.testing.assert_close(point.b, torch.full((4,), optimum.bias, dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize("spec", ["ce", "ls:alpha=0.3", "mse", "mse:alpha=4,target=2"])
@pytest.mark.parametrize("bias", [None, 0.0, 0.2])
@pytest.mark.parametrize("level", [0.3, 1.1])
def test_convex_form_agrees_with_a_conic_solver(spec, bias, level):
    """min over logits of the mean loss + mu * nuclear norm (+ bias): a convex problem that cvxpy solves on its own."""
    loss = losses.get(spec)
    model = build(spec, 3, 2, 4, level, 3.0, bias)
    labels = model.labels.numpy()
    logits, shift = cp.Variable((6, 3)), cp.Variable(3)
    shifted = logits if bias is None else logits + np.ones((6, 1)) @ cp.reshape(shift, (1, 3), order="C")
    onehot = np.eye(3)[labels]
    if loss.contrastive:
        alpha = getattr(loss, "alpha", 0.0)
        target = (1 - alpha) * onehot + alpha / 3
        mean = (cp.sum(cp.log_sum_exp(shifted, axis=1)) - cp.sum(cp.multiply(target, shifted))) / 6
    else:
        weight = np.sqrt(np.where(onehot > 0, loss.alpha, 1.0))
        mean = cp.sum_squares(cp.multiply(weight, shifted - loss.target * onehot)) / 12
    objective = mean + model.mu * cp.normNuc(logits)
    if bias:
        objective += bias / 2 * cp.sum_squares(shift)
    problem = cp.Problem(cp.Minimize(objective))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    assert model.optimum().value == pytest.approx(problem.value, abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("spec", ["ce", "ls:alpha=0.2", "focal:gamma=3", "mse:alpha=2,target=1"])
def test_normalized_optimum_against_lbfgs(spec, classes):
    regimes = set()
    for samples, dim, tau in itertools.product((2,), (classes - 1, classes, classes + 2), (0.5, 2.0, 6.0)):
        model = NormalizedUFM(spec, classes, samples, dim, tau)
        try:
            optimum = model.optimum()
        except NotImplementedError:
            assert (spec.startswith("mse") and dim < classes) or (spec.startswith("ls") and classes == 3 and dim == 2)
            continue
        regimes.add(optimum.regime)
        assert model.value(model.check(optimum.point)) == pytest.approx(optimum.value, abs=1e-12)
        assert model.gradient(optimum.point).norm() < 1e-10
        found = math.inf
        for seed in range(12):  # in few dimensions random starts meet bad local minima
            found = min(found, best_value(model, seeds=(seed,)))
            if found <= optimum.value + 1e-8:
                break
        assert found >= optimum.value - 1e-10
        if dim >= classes:
            assert found <= optimum.value + 1e-8
    assert regimes


def test_spread_solution_in_the_smallest_space():
    """Label smoothing above the critical temperature in R^(K-1): simplices with equal heights attain the bound."""
    for classes in (4, 5, 7, 8):
        critical = critical_temperature(losses.LabelSmoothing(0.1), classes)
        for factor in (1.001, 1.5, 10.0):
            model = NormalizedUFM("ls:alpha=0.1", classes, 2, classes - 1, factor * critical)
            optimum = model.optimum()
            assert optimum.regime == "spread"
            target = torch.full((classes,), 0.1 / classes, dtype=torch.float64)
            target[0] += 0.9
            entropy = -float((target * target.log()).sum())
            assert model.value(model.check(optimum.point)) == pytest.approx(entropy, abs=1e-12)


def test_critical_temperature_is_where_collapse_stops_being_best():
    loss = losses.LabelSmoothing(0.1)
    for classes in (2, 5, 10):
        critical = critical_temperature(loss, classes)
        assert critical == pytest.approx((classes - 1) / classes * math.log(classes / 0.1 - classes + 1), rel=1e-12)
        for factor, best in ((0.9, True), (1.1, False)):
            model = NormalizedUFM(loss, classes, 2, classes + 1, factor * critical)
            frame = simplex_etf(classes, classes + 1)
            collapsed = model.value(Point(frame, frame[model.labels]))
            assert (best_value(model) < collapsed - 1e-5) is (not best)
    assert critical_temperature(losses.CrossEntropy(), 5) == math.inf


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_contrastive_optimum_against_lbfgs(classes):
    for samples, tau, extra in itertools.product((2, 4), (0.3, 1.0, 2.0), (0, 2)):
        model = ContrastiveUFM(classes, samples, classes + extra, tau)
        optimum = model.optimum()
        assert model.value(model.check(optimum.point)) == pytest.approx(optimum.value, abs=1e-13)
        assert best_value(model) == pytest.approx(optimum.value, abs=1e-9)


def test_focal_optimum_near_the_transition_with_a_bias_is_not_the_symmetric_one():
    """The partly collapsed state lies below both symmetric ones, and the result says that it is not proved."""
    s = losses.Focal(3.0).transition(100).exchange
    free = RegularizedUFM("focal:gamma=3", 100, 1, 120, s, s, 0.0)
    optimum = free.optimum()
    symmetric = RegularizedUFM("focal:gamma=3", 100, 1, 120, s, s, None).optimum()
    assert optimum.regime == "broken symmetry"
    assert not optimum.proved
    assert optimum.value < symmetric.value - 5e-4
    assert free.value(optimum.point) == pytest.approx(optimum.value, abs=1e-12)
    assert free.gradient(optimum.point).norm() < 1e-6
    assert symmetric.proved
    away = RegularizedUFM("focal:gamma=3", 100, 1, 120, 0.5 * s, 0.5 * s, 0.0).optimum()
    assert (away.regime, away.proved) == ("neural collapse", True)


def test_numbers_are_cheap_at_any_size():
    """K = 1000, n = 1300, d = 2048: the point would take 21 GB; value and Gram matrices need none of it."""
    regularized = RegularizedUFM("ce", 1000, 1300, 2048, 5e-4, 1e-6, 0.01)
    for model in (
        regularized,
        NormalizedUFM("focal", 1000, 1300, 2048, 10.0),
        ContrastiveUFM(1000, 1300, 2048),
    ):
        optimum = model.optimum()
        assert math.isfinite(optimum.value)
        assert optimum.weight_gram.shape == (1000, 1000)
        assert "point" not in vars(optimum)


def test_where_nothing_is_known_it_says_so():
    cases = [
        (RegularizedUFM("ce", 5, 2, 3, 0.01, 0.01), "dim = 3 < num_classes - 1 = 4"),
        (RegularizedUFM("mse:alpha=3", 5, 2, 3, 0.01, 0.01), "alpha must be 1"),
        (RegularizedUFM("mse:alpha=0.5", 3, 1, 2, 0.01, 0.01, 5.0), "for alpha < 1"),
        (NormalizedUFM("ce", 9, 2, 3), "dim = 3 < num_classes - 1 = 8"),
        (NormalizedUFM("ce", 3, [1, 2, 3], 5), "balanced classes only"),
        (NormalizedUFM("ls", 3, 2, 2, 50.0), "3 classes in the plane"),
        (ContrastiveUFM(5, 2, 3), "dim = 3 < num_classes - 1 = 4"),
    ]
    for model, text in cases:
        with pytest.raises(NotImplementedError, match=text):
            model.optimum()
    with pytest.raises(ValueError, match="the minimum is not attained"):
        RegularizedUFM("ce", 3, 2, 3, 0.0, 0.01).optimum()


def test_zero_is_optimal_above_the_threshold_in_any_dimension():
    model = RegularizedUFM("ce", 6, 4, 2, 1.0, 1.0)
    assert model.optimum().regime == "zero"
    assert best_value(model) == pytest.approx(math.log(6), abs=1e-12)
