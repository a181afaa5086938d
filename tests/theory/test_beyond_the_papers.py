"""Statements of docs/theory.md that no paper has, against computations that do not know them."""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from neuralcollapse.losses import CrossEntropy, Focal, LabelSmoothing, SquaredError
from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, Point, RegularizedUFM, critical_temperature
from theory.solve import minimise, minimise_many

# The contrastive model -----------------------------------------------------------------------------


def contrastive_loss(similarities: np.ndarray, labels: np.ndarray) -> float:
    """normalized (40) as a function of the N x N similarities, written out."""
    total = 0.0
    for i, row in enumerate(similarities):
        others = [j for j in range(len(row)) if j != i]
        positives = [j for j in others if labels[j] == labels[i]]
        total += np.log(np.exp(row[others]).sum()) - row[positives].mean()
    return total / len(similarities)


@pytest.mark.parametrize("tau", [0.5, 1.5])
@pytest.mark.parametrize(("count", "samples"), [(2, 3), (3, 2), (4, 3)])
def test_contrastive_minimum_by_symmetrisation(count, samples, tau):
    """Averaging the similarities over all permutations that keep the classes never raises the loss."""
    problem = ContrastiveUFM(count, samples, count + 1, tau)
    labels = problem.labels.numpy()
    best = problem.optimum().value
    expected = math.log(samples - 1 + samples * (count - 1) * math.exp(-count * tau**2 / (count - 1)))
    assert best == pytest.approx(expected, rel=1e-13)
    same = labels[:, None] == labels[None, :]
    off = ~np.eye(len(labels), dtype=bool)
    for seed in range(20):
        rows = problem.random_point(seed).H.numpy()
        similarities = tau**2 * rows @ rows.T
        averaged = np.where(same, similarities[same & off].mean(), similarities[~same].mean())
        np.fill_diagonal(averaged, tau**2)
        value = contrastive_loss(similarities, labels)
        assert problem.value(Point(None, torch.from_numpy(rows))) == pytest.approx(value, rel=1e-12)
        assert np.linalg.eigvalsh(averaged)[0] > -1e-12
        assert best - 1e-12 <= contrastive_loss(averaged, labels) <= value + 1e-12
    assert minimise_many(problem, 3).value == pytest.approx(best, abs=1e-9)


def test_contrastive_semidefinite_bound_is_valid_for_imbalanced_classes():
    """The dual bound at any point is below the value of the convex program in the similarities."""
    counts, tau = [2, 3, 2], 1.2
    problem = ContrastiveUFM(3, counts, 6, tau)
    labels, size = problem.labels.numpy(), 7
    gram = cp.Variable((size, size), PSD=True)
    terms = []
    for i in range(size):
        others = [j for j in range(size) if j != i]
        positives = [j for j in others if labels[j] == labels[i]]
        terms.append(cp.log_sum_exp(tau**2 * gram[i, others]) - tau**2 * cp.sum(gram[i, positives]) / len(positives))
    program = cp.Problem(cp.Minimize(sum(terms) / size), [cp.diag(gram) == 1])
    program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    for seed in range(10):
        assert problem.certify(problem.random_point(seed)).lower_bound <= program.value + 1e-8
    found = minimise_many(problem, 4)
    assert found.value == pytest.approx(program.value, abs=1e-7)
    assert problem.certify(found.point).gap < 1e-7
    assert problem.certify(found.point).bound_source == "semidefinite dual"


# Label smoothing on spheres above the critical temperature -----------------------------------------


def smoothed_entropy(alpha: float, count: int) -> float:
    share = alpha / count
    return -(1 - alpha + share) * math.log(1 - alpha + share) - (count - 1) * share * math.log(share)


@pytest.mark.parametrize("factor", [1.01, 1.5, 10.0])
@pytest.mark.parametrize("count", [4, 5, 6, 9])
def test_label_smoothing_reaches_the_entropy_in_K_minus_1_dimensions(count, factor):
    """K >= 4: a simplex with unit vertices and equal heights, which need not be regular."""
    loss = LabelSmoothing(0.1)
    problem = NormalizedUFM(loss, count, 2, count - 1, factor * critical_temperature(loss, count))
    best = problem.optimum()
    assert best.value == pytest.approx(smoothed_entropy(0.1, count), rel=1e-12)
    assert problem.value(problem.check(best.point)) == pytest.approx(best.value, abs=1e-11)
    cosines = best.weight_gram[~torch.eye(count, dtype=torch.bool)]
    assert float(cosines.max() - cosines.min()) > 0.05  # not the regular simplex
    if count <= 5 and factor == 1.5:
        assert minimise_many(problem, 6).value == pytest.approx(best.value, abs=1e-9)


def test_label_smoothing_of_three_classes_in_the_plane():
    """K = 3: equal heights force the regular triangle, so the entropy is out of reach above tau*."""
    loss = LabelSmoothing(0.1)
    critical = critical_temperature(loss, 3)
    problem = NormalizedUFM(loss, 3, 1, 2, 1.5 * critical)
    assert minimise_many(problem, 8).value > smoothed_entropy(0.1, 3) + 1e-3
    with pytest.raises(NotImplementedError, match="3 classes in the plane"):
        problem.optimum()
    best = NormalizedUFM(loss, 3, 1, 2, 0.999 * critical)
    assert minimise_many(best, 4).value == pytest.approx(best.optimum().value, abs=1e-10)


@pytest.mark.parametrize("factor", [1.1, 3.0, 8.0])
def test_label_smoothing_of_two_classes_on_a_line(factor):
    """K = 2, d = 1: sixteen points, all tried."""
    loss = LabelSmoothing(0.2)
    problem = NormalizedUFM(loss, 2, 1, 1, factor * critical_temperature(loss, 2))
    values = []
    for signs in itertools.product([1.0, -1.0], repeat=4):
        rows = torch.tensor(signs, dtype=torch.float64)[:, None]
        values.append(problem.value(Point(rows[:2], rows[2:])))
    best = problem.optimum()
    assert best.value == pytest.approx(min(values), abs=1e-13)
    assert problem.value(best.point) == pytest.approx(best.value, abs=1e-13)


# Squared error on spheres --------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "tau"), [(2.0, 1.2), (1.0, 1.0), (1.0, 1.8), (1.0, 30.0)])
@pytest.mark.parametrize("extra", [0, 2])
def test_squared_error_on_spheres(target, tau, extra):
    """alpha/2 (M - tau)_+^2 for d >= K."""
    problem = NormalizedUFM(SquaredError(3.0, target), 4, 2, 4 + extra, tau)
    best = problem.optimum()
    assert best.value == pytest.approx(1.5 * max(target - tau, 0) ** 2, abs=1e-15)
    assert problem.value(problem.check(best.point)) == pytest.approx(best.value, abs=1e-12)
    assert minimise_many(problem, 2).value == pytest.approx(best.value, abs=1e-9)


# Weighted duality on spheres -----------------------------------------------------------------------


def test_weighted_inequality_on_spheres(generator):
    """tau <L, HW'> >= -tau (sum a + sum b)/2 whenever |D_b^-1/2 L D_a^-1/2| <= 1."""

    def positive(size: int) -> torch.Tensor:
        return torch.rand(size, dtype=torch.float64, generator=generator) + 0.01

    for _ in range(300):
        a, b = positive(4), positive(9)
        dual = torch.randn(9, 4, dtype=torch.float64, generator=generator)
        dual /= torch.linalg.matrix_norm(dual / b.sqrt()[:, None] / a.sqrt(), 2)
        problem = NormalizedUFM(CrossEntropy(), 4, [3, 1, 4, 1], 3, 1.0)
        point = problem.random_point(generator)
        assert float((dual * (point.H @ point.W.T)).sum()) >= -float(a.sum() + b.sum()) / 2


@pytest.mark.parametrize("loss", [CrossEntropy(), LabelSmoothing(0.1)])
def test_weighted_bound_closes_for_imbalanced_classes(loss):
    problem = NormalizedUFM(loss, 3, [5, 1, 2], 4, 1.5)
    found = minimise_many(problem, 4)
    for seed in range(10):
        assert problem.certify(problem.random_point(seed)).lower_bound <= found.value + 1e-12
    certificate = problem.certify(found.point)
    assert -1e-12 <= certificate.gap < 1e-7
    assert certificate.verdict == "global minimum"
    # Uniform weights do not see it: Lemma 3's test (23) fails at this global minimum.
    state = problem.linearize(found.point)
    norm = torch.linalg.matrix_norm(state.logit_gradient, 2)
    assert float(state.alpha.max()) > -math.sqrt(8 / 3) * float(norm) * 0.95
    assert certificate.spectral_ratio == pytest.approx(1, abs=1e-5)


# The focal loss with a bias ------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "decay"), [(1.0, 0.0), (0.9995, 0.001), (1.003, 0.0), (0.99, 0.0)])
def test_no_start_beats_the_partly_collapsed_family(factor, decay):
    loss, count = Focal(3.0), 25
    s = factor * loss.transition(count).exchange
    problem = RegularizedUFM(loss, count, 1, count - 1, s, s, decay)
    best = problem.optimum()
    assert problem.value(best.point) == pytest.approx(best.value, abs=1e-12)
    assert problem.gradient(best.point).norm() < 1e-7
    assert not best.proved
    assert best.regime == ("broken symmetry" if factor == 1 else "zero" if factor > 1 else "neural collapse")
    starts = [(0, 0.5), (0, 2.0), (1, 4.0)]
    assert min(minimise(problem, seed, scale).value for seed, scale in starts) >= best.value - 1e-10


@pytest.mark.parametrize("dim", [60, 53, 20])
def test_no_branch_is_claimed_near_the_transition_below_K_minus_1_dimensions(dim):
    """With a bias, partly collapsed points with fewer dimensions have been beaten there: nothing is called optimal."""
    loss = Focal(3.0)
    s = loss.transition(100).exchange * (1 + 1e-9)
    with pytest.raises(NotImplementedError, match="no closed form is known"):
        RegularizedUFM(loss, 100, 1, dim, s, s, 0.0).optimum()
    assert RegularizedUFM(loss, 100, 1, 99, s, s, 0.0).optimum().regime == "broken symmetry"


@pytest.mark.parametrize("bias_decay", [None, 0.0, 0.1])
def test_focal_optimum_is_proved_and_certified_at_ordinary_decay(bias_decay):
    """(K-1) s <= 1: the convexified dual closes, so no point of any shape is lower."""
    problem = RegularizedUFM(Focal(3.0), 30, 2, 31, 0.01, 0.02, bias_decay)
    assert 29 * problem.s <= 1
    best = problem.optimum()
    assert best.proved
    assert problem.certify(best.point).gap < 1e-10


# The dual bound of the regularised model -----------------------------------------------------------


@pytest.mark.parametrize("bias_decay", [None, 0.0, 0.05])
@pytest.mark.parametrize("loss", [CrossEntropy(), SquaredError(3.0, 2.0)])
def test_duality_gap_closes_for_imbalanced_classes(loss, bias_decay):
    problem = RegularizedUFM(loss, 3, [5, 1, 2], 4, 0.05, 0.02, bias_decay)
    found = minimise_many(problem, 3)
    for seed in range(6):
        assert problem.certify(problem.random_point(seed)).lower_bound <= found.value + 1e-12
    assert -1e-12 <= problem.certify(found.point).gap < 1e-7


def test_nuclear_norm_form_by_a_convex_program():
    """min g(Z + 1b') + mu |Z|_* + lb/2 |b|^2 has the same value as the factored model."""
    counts, weight, feature, decay = [3, 1, 2], 0.05, 0.02, 0.1
    problem = RegularizedUFM(CrossEntropy(), 3, counts, 3, weight, feature, decay)
    logits, bias = cp.Variable((6, 3)), cp.Variable(3)
    shifted = logits + np.ones((6, 1)) @ cp.reshape(bias, (1, 3), order="C")
    loss = sum(cp.log_sum_exp(shifted[i]) - shifted[i, k] for i, k in enumerate(problem.labels.tolist())) / 6
    objective = loss + math.sqrt(weight * feature) * cp.normNuc(logits) + decay / 2 * cp.sum_squares(bias)
    program = cp.Problem(cp.Minimize(objective))
    program.solve(solver=cp.CLARABEL)
    assert minimise_many(problem, 3).value == pytest.approx(program.value, abs=1e-7)


def test_closed_form_is_the_minimum_of_one_scalar_function():
    """ell(a) + (K-1) s a over a >= 0, for each contrastive loss."""
    for loss in (CrossEntropy(), LabelSmoothing(0.3), Focal(2.0)):
        slope = 0.02 * 6
        found = minimize_scalar(
            lambda a, loss=loss, slope=slope: float(loss.margin_value(a, 7)) + slope * a,
            bounds=(0, 30),
            method="bounded",
            options={"xatol": 1e-12},
        )
        assert RegularizedUFM(loss, 7, 1, 8, 0.02, 0.02).optimum().value == pytest.approx(found.fun, abs=1e-12)
