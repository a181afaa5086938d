"""The concrete numbers of docs/theory.md against the code, and against computations that do not use it."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize

from neuralcollapse import frames
from neuralcollapse.landscape import FeatureSlice, WideSlice
from neuralcollapse.losses import CrossEntropy, Focal, LabelSmoothing, SquaredError
from neuralcollapse.ufm import NormalizedUFM, Point, RegularizedUFM
from theory.solve import hessian_matrix, minimise, minimise_many


def entropy(probabilities) -> float:
    return -sum(p * math.log(p) for p in probabilities)


def at_zero(problem: RegularizedUFM) -> Point:
    return problem.random_point(0) * 0.0


# Contrastive losses, regularised -------------------------------------------------------------------


def test_cross_entropy_example():
    problem = RegularizedUFM(CrossEntropy(), 5, 3, 6, 0.01, 0.02)
    assert problem.optimum().value == pytest.approx(0.456449415704, abs=5e-13)
    assert minimise_many(problem, 3).value == pytest.approx(0.456449415704, abs=1e-11)


@pytest.mark.parametrize("loss", [CrossEntropy(), LabelSmoothing(0.1), LabelSmoothing(0.4)])
@pytest.mark.parametrize("share", [0.05, 0.97, 1.03])
def test_value_is_the_entropy_of_the_optimal_softmax(loss, share):
    alpha = getattr(loss, "alpha", 0.0)
    s = share * (1 - alpha) / 4
    problem = RegularizedUFM(loss, 4, 3, 5, s / math.sqrt(3) * 2, s / math.sqrt(3) / 2, 0.1)
    best = problem.optimum()
    other = min(s + alpha / 4, 0.25)
    assert best.value == pytest.approx(entropy([1 - 3 * other, *[other] * 3]), rel=1e-12)
    assert best.regime == ("neural collapse" if share < 1 else "zero")
    assert best.logit_scale == pytest.approx(math.log(1 / other - 3), abs=1e-12)
    assert minimise_many(problem, 2).value == pytest.approx(best.value, abs=1e-10)
    # The dual bound is exact already at the origin.
    assert problem.certify(at_zero(problem)).lower_bound == pytest.approx(best.value, abs=1e-12)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (CrossEntropy(), 1.0),
        (LabelSmoothing(0.3), 0.7),
        (Focal(2.0), (4 / 5) * (4 / 5 + 2 / 5 * math.log(5))),
        (SquaredError(), 1.0),
    ],
)
def test_gradient_norm_at_zero(loss, expected):
    """1/(sqrt(n) K) for cross-entropy and squared error, times (1-alpha), or times h(1/K)/(1-1/K)."""
    problem = RegularizedUFM(loss, 5, 3, 6, 0.1, 0.1, None)
    slope = problem.linearize(at_zero(problem)).logit_gradient
    norm = float(torch.linalg.matrix_norm(slope, 2))
    assert norm == pytest.approx(expected / (math.sqrt(3) * 5), rel=1e-12)


# The focal loss ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gamma", "expected"), [(0.5, 0.0177), (1, 0.0432), (2, 0.0578), (3, 0.0575), (5, 0.0502)])
def test_focal_inflection(gamma, expected):
    assert Focal(gamma).convex_from == pytest.approx(expected, abs=5e-5)
    # The inflection of (1-p)^g (-log p) in the log odds m, by differences.
    m = np.linspace(0.5, 6, 20_001)
    p = 1 / (1 + np.exp(m))
    bend = np.diff((1 - p) ** gamma * -np.log(p), 2)
    flip = p[1:-1][np.nonzero(np.diff(np.sign(bend)))[0]]
    assert flip == pytest.approx([Focal(gamma).convex_from], abs=2e-5)


def test_focal_envelope_starts_at_most_at_0_1675():
    starts = [Focal(g).tight_from for g in np.linspace(0.2, 12, 200)]
    assert max(starts) == pytest.approx(0.1675, abs=5e-5)
    assert all(Focal(g).convex_from < Focal(g).tight_from for g in (0.5, 1, 2, 5))


@pytest.mark.parametrize(("gamma", "least"), [(0.5, 57), (1, 24), (2, 18), (2.4, 18), (3, 18), (5, 20), (10, 29)])
def test_focal_fewest_classes_with_a_first_order_transition(gamma, least):
    assert not Focal(gamma).transition(least - 1).first_order
    assert Focal(gamma).transition(least).first_order

    def excess(count: int) -> float:
        return math.log(count) * (1 - gamma / (count - 1)) - 2 - 1 / gamma

    assert excess(least - 1) < 0 < excess(least)


@pytest.mark.parametrize(
    ("count", "numbers"),
    [
        (100, (0.0110570481898, 0.0117521155915, 0.0121368966802)),
        (30, (0.0407039765357, 0.0412288882348, 0.0414328541840)),
    ],
)
def test_focal_transition(count, numbers):
    transition = Focal(3.0).transition(count)
    found = transition.zero_stable_above, transition.exchange, transition.collapse_exists_below
    assert found == pytest.approx(numbers, abs=6e-14)
    # The exchange from a plain grid: where min_a ell(a) + (K-1) s a leaves a = 0.
    margin = np.linspace(0.5, 8, 400_001)
    p = 1 / (1 + (count - 1) * np.exp(-margin))
    values = (1 - p) ** 3 * -np.log(p)
    zero = (1 - 1 / count) ** 3 * math.log(count)
    assert ((zero - values) / ((count - 1) * margin)).max() == pytest.approx(numbers[1], abs=1e-11)


@pytest.fixture(scope="module")
def stuck() -> RegularizedUFM:
    return RegularizedUFM(Focal(3.0), 100, 1, 100, 0.0114, 0.0114)


def test_focal_stuck_example(stuck):
    best, zero = stuck.optimum(), at_zero(stuck)
    assert best.regime == "neural collapse"
    assert best.value == pytest.approx(4.382128448350, abs=1e-11)
    assert 1 / (1 + 99 * math.exp(-best.logit_scale)) == pytest.approx(0.115970, abs=5e-7)
    assert stuck.value(zero) == pytest.approx(4.468392026294, abs=1e-11)
    slope = stuck.linearize(zero).logit_gradient
    norm = float(torch.linalg.matrix_norm(slope, 2))
    assert norm == pytest.approx(0.011057, abs=5e-7)
    # At zero the Hessian is [[lW I, G'], [G, lH I]] in each of the d coordinates.
    eye = torch.eye(100, dtype=torch.float64)
    block = torch.cat([torch.cat([0.0114 * eye, slope.T], 1), torch.cat([slope, 0.0114 * eye], 1)])
    direction = stuck.random_point(1)
    product = block @ torch.cat([direction.W, direction.H])
    ours = stuck.hessian_vector(zero, direction)
    assert torch.allclose(torch.cat([ours.W, ours.H]), product, atol=1e-15)
    lowest = float(torch.linalg.eigvalsh(block)[0])
    assert lowest == pytest.approx(0.0114 - norm, rel=1e-9)
    assert lowest > 3e-4


def partly_collapsed(count: int, learned: int, margin: float, shift: float) -> Point:
    rows = torch.zeros(count, count - 1, dtype=torch.float64)
    rows[:learned, : learned - 1] = math.sqrt(margin) * frames.simplex_basis(learned)
    bias = torch.zeros(count, dtype=torch.float64)
    bias[:learned] = shift
    return Point(rows, rows.clone(), bias - bias.mean())


def test_focal_stuck_example_depends_on_the_start(stuck):
    small = minimise(stuck, 0, scale=0.1)
    assert small.point.norm() < 1e-6
    assert small.value == pytest.approx(4.468392026294, abs=1e-10)
    start = partly_collapsed(100, 99, stuck.optimum().logit_scale, 0.0)
    pad = torch.nn.functional.pad
    most = minimise(stuck, Point(pad(start.W, (0, 1)), pad(start.H, (0, 1))))
    assert most.gradient_norm < 1e-7
    assert most.value == pytest.approx(4.382128448350 + 8.66415e-4, abs=1e-8)
    assert int((most.point.W.norm(dim=1) > 0.3).sum()) == 99  # one class is not learned
    near = minimise(stuck, stuck.optimum().point + 0.05 * stuck.random_point(0))
    assert near.value == pytest.approx(4.382128448350, abs=1e-10)


@pytest.mark.parametrize(("decay", "expected"), [(0.0, 4.467475180422), (0.001, 4.467563985480)])
def test_focal_counterexample_with_a_bias(decay, expected):
    s = 0.011752115591455
    problem = RegularizedUFM(Focal(3.0), 100, 1, 99, s, s, decay)
    found = minimize(
        lambda v: problem.value(partly_collapsed(100, 55, *v)),
        [2.3, 0.08],
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-14},
    )
    assert found.fun == pytest.approx(expected, abs=5e-13)
    if decay == 0:
        assert found.x == pytest.approx([2.354248, 0.088492], abs=2e-6)
    point = partly_collapsed(100, 55, *found.x)
    assert problem.gradient(point).norm() < 1e-8
    best = problem.optimum()
    assert best.value <= expected + 1e-12  # 54 classes are a little better still
    assert best.value == pytest.approx(expected, abs=3e-7)
    assert best.value < Focal(3.0).optimal_margin(99 * s, 100).value - 8e-4


def test_focal_partly_collapsed_point_is_a_local_minimum():
    """28 of 30 classes: the Hessian's zero modes are the rotations, all else is positive."""
    loss, learned, dim = Focal(3.0), 28, 28
    transition = loss.transition(30)
    s = 0.1 * transition.zero_stable_above + 0.9 * transition.exchange
    problem = RegularizedUFM(loss, 30, 1, dim, s, s)
    start = partly_collapsed(30, learned, loss.optimal_margin(29 * s, 30).margin, 0.0)
    found = minimise(problem, Point(start.W[:, :dim].contiguous(), start.H[:, :dim].contiguous()))
    assert found.gradient_norm < 1e-10
    eigenvalues = np.linalg.eigvalsh(hessian_matrix(problem, found.point))
    rank = learned - 1
    rotations = dim * (dim - 1) // 2 - (dim - rank) * (dim - rank - 1) // 2
    assert eigenvalues[0] > -1e-9
    assert eigenvalues[rotations - 1] < 1e-9
    assert eigenvalues[rotations] > 1e-6


# Squared error -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 3, 5])
@pytest.mark.parametrize("side", [0.999, 1.001, 4.0, None])
def test_vanilla_squared_error_values(dim, side):
    count, samples = 4, 2
    s = 0.1
    threshold = count * s / (1 - count * s)
    decay = None if side is None else side * threshold
    problem = RegularizedUFM(SquaredError(), count, samples, dim, s / math.sqrt(2) * 3, s / math.sqrt(2) / 3, decay)
    unit = s - count * s**2 / 2
    if decay is None:
        expected = min(dim, count) * unit + max(count - dim, 0) / (2 * count)
    elif dim >= count and side > 1:
        expected = count * unit - count * s**2 / (2 * decay)
    else:
        rank = min(dim, count - 1)
        expected = rank * unit + (count - 1 - rank) / (2 * count) + decay / (2 * count * (1 + decay))
    assert problem.optimum().value == pytest.approx(expected, rel=1e-13)
    assert minimise_many(problem, 2).value == pytest.approx(expected, abs=1e-11)


def test_rescaled_squared_error_has_spurious_minima_at_d_equal_K_minus_1():
    s = 18.580645
    problem = RegularizedUFM(SquaredError(20.0, 8.0), 2, 1, 1, s, s, 5.0)
    assert problem.optimum().value == pytest.approx(194.29232, abs=5e-6)
    found = [minimise(problem, seed, scale=3.0) for seed in range(20)]
    # Their values agree to the last digits, so that the gradient says which solve went farthest.
    higher = [solution for solution in found if solution.value > 200]
    assert [solution.value for solution in higher] == pytest.approx([211.68172] * len(higher), abs=5e-6)
    spurious = min(higher, key=lambda solution: solution.gradient_norm)
    assert spurious.gradient_norm < 1e-7
    assert np.linalg.eigvalsh(hessian_matrix(problem, spurious.point))[0] > 0.1
    assert min(solution.value for solution in found) == pytest.approx(194.29232, abs=5e-6)


def test_rescaled_squared_error_below_one_sacrifices_a_class():
    """alpha = 1/2, K = 3, d = 2, lb = 5: the simplex has .134186, the best known point .112942."""

    def simplex(s: float) -> float:
        alpha, decay, count = 0.5, 5.0, 3
        bias = (1 + 2 * s * (1 - 1 / alpha)) / (count + 2 * decay + decay / alpha)
        x = 1 - s * (2 / alpha + 1) + decay * bias * (1 - 1 / alpha)
        true, other = 2 / 3 * x + bias, -x / 3 + bias
        return alpha / 2 * (true - 1) ** 2 + other**2 + 2 * s * x + count * decay * bias**2 / 2

    s = brentq(lambda s: simplex(s) - 0.134186, 1e-4, 0.1)
    problem = RegularizedUFM(SquaredError(0.5), 3, 1, 2, s, s, 5.0)
    assert minimise_many(problem, 12).value == pytest.approx(0.112942, abs=2e-6)
    with pytest.raises(NotImplementedError, match="simplex ETF is not optimal"):
        problem.optimum()


# Landscape, metrics --------------------------------------------------------------------------------


def test_feature_slice_limits():
    s, theta, loss = 1.7, 0.6, SquaredError(3.0, 2.0)
    wide = WideSlice(loss)
    near = FeatureSlice(loss, 1_000_000)
    assert float(near.value(s, theta)) == pytest.approx(float(wide.value(s, theta)), abs=1e-5)
    assert np.allclose(near.gradient(s, theta), wide.gradient(s, theta), atol=1e-5)
    at_right_angle = wide.gradient(s, math.pi / 2)
    assert np.allclose(at_right_angle, (s, 3.0 * 2.0 * s), atol=1e-12)  # s and alpha M s, as after mse (35)
    assert np.allclose(WideSlice(CrossEntropy()).gradient(s, theta), (-0.825335614906, 0.959892204771), atol=1e-12)


@pytest.mark.parametrize(("count", "samples", "dim", "tolerance"), [(10, 20, 64, 0.05), (10, 100, 4, 3.0)])
def test_metrics_of_gaussian_features(count, samples, dim, tolerance):
    """E NC1 = (n-1)(K-1)/(d-K) for d > K and (n-1) d/(K-2-d) for d < K-2; E |W h_G|^2 = d/n."""
    rng = np.random.default_rng(0)
    variability, bias = [], []
    for _ in range(200):
        features = rng.standard_normal((count, samples, dim))
        means = features.mean(1)
        centre = means.mean(0)
        within = np.einsum("kid,kie->de", features - means[:, None], features - means[:, None]) / (count * samples)
        between = (means - centre).T @ (means - centre) / count
        variability.append(np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / count)
        bias.append(((rng.standard_normal((count, dim)) @ centre) ** 2).sum())
    wide = dim > count
    expected = (samples - 1) * (count - 1) / (dim - count) if wide else (samples - 1) * dim / (count - 2 - dim)
    assert np.mean(variability) == pytest.approx(expected, abs=tolerance)
    assert np.mean(bias) == pytest.approx(dim / samples, rel=0.2)


def test_orthogonal_frame_is_not_a_simplex():
    """NC2 of an orthogonal frame: sqrt(2 - 2 sqrt((K-1)/K))."""
    frame = frames.orthogonal_frame(6, 8, seed=0)
    gram = frame @ frame.T
    projector = torch.eye(6, dtype=torch.float64) - 1 / 6
    distance = float((gram / gram.norm() - projector / math.sqrt(5)).norm())
    assert distance == pytest.approx(math.sqrt(2 - 2 * math.sqrt(5 / 6)), rel=1e-12)


# Spheres -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("tau", [0.5, 3.0])
def test_normalized_cross_entropy(count, tau):
    problem = NormalizedUFM(CrossEntropy(), count, 2, count, tau)
    expected = math.log(1 + (count - 1) * math.exp(-count * tau / (count - 1)))
    assert problem.optimum().value == pytest.approx(expected, rel=1e-13)
    assert minimise_many(problem, 3).value == pytest.approx(expected, abs=1e-10)
    assert problem.certify(problem.optimum().point).gap < 1e-12


def test_normalized_label_smoothing_collapse_passes_log_K_late():
    """The collapsed value exceeds log K only from about log(K)/alpha on, far above tau*."""
    loss, count = LabelSmoothing(0.1), 5

    def at_collapse(tau: float) -> float:
        return float(loss.margin_value(count * tau / (count - 1), count))

    crossing = brentq(lambda tau: at_collapse(tau) - math.log(count), 5.0, 40.0)
    assert crossing == pytest.approx(math.log(count) / 0.1, rel=1e-6)
    problem = NormalizedUFM(loss, count, 1, count, crossing)
    assert problem.optimum().value < math.log(count) - 1
