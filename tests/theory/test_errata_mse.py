"""Errata of "On the Optimization Landscape of Neural Collapse under MSE Loss" (mse).

s = sqrt(n lW lH), mu = sqrt(lW lH), P = I - 11'/K, J = 11'/K. Arrays have samples in rows.
"""

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from neuralcollapse import frames
from neuralcollapse.landscape import FeatureSlice, WideSlice
from neuralcollapse.losses import CrossEntropy, SquaredError
from neuralcollapse.ufm import Point, RegressionUFM, RegularizedUFM
from theory.solve import minimise, minimise_many

COUNT, SAMPLES, DIM = 4, 3, 6
WEIGHT, FEATURE, BIAS = 0.02, 0.005, 0.4


@pytest.fixture(scope="module")
def problem() -> RegularizedUFM:
    return RegularizedUFM(SquaredError(), COUNT, SAMPLES, DIM, WEIGHT, FEATURE, BIAS)


@pytest.fixture(scope="module")
def solved(problem):
    found = minimise_many(problem, 3)
    assert found.gradient_norm < 1e-8
    return found


def residual_svd(problem: RegularizedUFM, bias: float):
    """SVD of Y - b 1', samples in columns as in the paper."""
    target = np.eye(COUNT)[problem.labels.numpy()].T - bias
    return np.linalg.svd(target, full_matrices=False)


def test_17_lemma_B4_fourth_roots(problem, solved):
    """Printed: W* = sqrt(lH/lW) U [Sigma - N mu]^(1/2) R, H* with sqrt(lW/lH). Right: fourth roots."""
    bias = problem.s / BIAS
    left, singular, right = residual_svd(problem, bias)
    shrunk = np.sqrt(np.maximum(singular - problem.num_samples * problem.mu, 0))

    def point(power: float) -> Point:
        ratio = (FEATURE / WEIGHT) ** power
        arrays = np.zeros((COUNT, DIM)), np.zeros((problem.num_samples, DIM))
        arrays[0][:, :COUNT], arrays[1][:, :COUNT] = ratio * left * shrunk, right.T * shrunk / ratio
        return Point(*(torch.from_numpy(array) for array in arrays), torch.full((COUNT,), bias, dtype=torch.float64))

    printed, correct = point(0.5), point(0.25)
    assert torch.allclose(printed.H @ printed.W.T, correct.H @ correct.W.T, atol=1e-13)  # the same logits ...
    assert problem.value(printed) > solved.value + 1e-3  # ... at a higher price
    assert problem.gradient(printed).norm() > 1e-3
    assert problem.value(correct) == pytest.approx(solved.value, abs=1e-12)
    assert problem.gradient(correct).norm() < 1e-14
    assert problem.optimum().value == pytest.approx(solved.value, abs=1e-12)


def factorise(target: np.ndarray, dim: int, weight: float, feature: float) -> float:
    """The minimum of mse (14), 1/2 |WH - Y|^2 + lW/2 |W|^2 + lH/2 |H|^2, by L-BFGS from four starts."""
    rows, columns = target.shape

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w, h = flat[: rows * dim].reshape(rows, dim), flat[rows * dim :].reshape(dim, columns)
        error = w @ h - target
        value = 0.5 * (error**2).sum() + weight / 2 * (w**2).sum() + feature / 2 * (h**2).sum()
        return value, np.concatenate([(error @ h.T + weight * w).ravel(), (w.T @ error + feature * h).ravel()])

    starts = np.random.default_rng(0).standard_normal((4, rows * dim + dim * columns))
    options = {"gtol": 1e-11, "ftol": 0.0, "maxiter": 5000}
    return min(minimize(objective, x, jac=True, method="L-BFGS-B", options=options).fun for x in starts)


@pytest.mark.parametrize("dim", [2, 5])
def test_18_equation_15_lacks_a_half(dim):
    """Printed for d < K: ... + sum_{i > d} sigma_i^2. Right: half of it."""
    target = np.random.default_rng(1).standard_normal((5, 7))
    weight, feature = 0.3, 0.05
    singular = np.linalg.svd(target, compute_uv=False)
    level = math.sqrt(weight * feature)
    eta = np.maximum(singular - level, 0)
    kept = (0.5 * (singular - eta) ** 2 + level * eta)[:dim].sum()
    tail = (singular[dim:] ** 2).sum()
    value = factorise(target, dim, weight, feature)
    assert value == pytest.approx(kept + tail / 2, rel=1e-9)
    if dim < 5:
        assert kept + tail > value * 1.1
    # Ours is (14) over the seven samples: a seventh of it, at decays a seventh of the printed ones.
    ours = RegressionUFM(target.T, dim, weight / 7, feature / 7).optimum()
    assert 7 * ours.value == pytest.approx(value, rel=1e-9)


def test_19_after_10_threshold_lacks_N(problem, solved):
    """Printed: equality for W H = sum [sigma_i - mu]_+ u v'. Right: [sigma_i - N mu]_+."""
    _, singular, _ = residual_svd(problem, float(solved.point.b.mean()))
    found = torch.linalg.svdvals(solved.point.H @ solved.point.W.T).numpy()
    assert np.allclose(found, np.maximum(singular - problem.num_samples * problem.mu, 0), atol=1e-8)
    assert np.abs(found - np.maximum(singular - problem.mu, 0)).max() > 0.1


def test_20_equation_5_roots_over_the_decays(problem, solved):
    """Printed: sqrt(KN) lW lH and sqrt(n) lW lH. Right: sqrt(KN lW lH) = K s and sqrt(n lW lH) = s."""
    product, count_samples = WEIGHT * FEATURE, COUNT * problem.num_samples
    bias = float(solved.point.b.mean())
    assert float(solved.point.b.std()) < 1e-8
    assert bias == pytest.approx(problem.s / BIAS, abs=1e-9)
    assert abs(bias - math.sqrt(SAMPLES) * product / BIAS) > 0.01
    gram = (solved.point.W @ solved.point.W.T).numpy()
    gram /= gram[0, 0] - gram[0, 1]
    wanted = problem.s / (BIAS * (1 - math.sqrt(count_samples * product)))
    printed = math.sqrt(SAMPLES) * product / (BIAS * (1 - math.sqrt(count_samples) * product))
    assert np.allclose(np.eye(COUNT) - gram, wanted, atol=1e-6)
    assert abs(wanted - printed) > 0.03
    # The printed threshold on the bias decay is lower: a decay between the two gives a simplex, not case two.
    printed_threshold = math.sqrt(count_samples) * product / (1 - math.sqrt(count_samples) * product)
    threshold = COUNT * problem.s / (1 - COUNT * problem.s)
    between = math.sqrt(printed_threshold * threshold)
    assert printed_threshold < between < threshold < BIAS
    lower = RegularizedUFM(SquaredError(), COUNT, SAMPLES, DIM, WEIGHT, FEATURE, between)
    found = minimise_many(lower, 3)
    assert float(found.point.W.sum(0).norm()) < 1e-6
    assert float(found.point.b.mean()) == pytest.approx(1 / (COUNT * (1 + between)), abs=1e-8)
    assert lower.optimum().regime == "neural collapse"


@pytest.mark.parametrize("decay", [0.3, 3.0])
def test_21_theorem_3_1_bias_of_the_zero_solution(decay):
    """Printed: for s >= 1/K lb is compared with a negative number, so b = s/lb. Right: 1/(K (1+lb))."""
    problem = RegularizedUFM(SquaredError(), 3, 2, 4, 0.4, 0.4, decay)
    assert problem.s >= 1 / 3
    assert 3 * problem.s / (1 - 3 * problem.s) < 0 < decay
    found = minimise(problem, 0)
    assert found.point.W.norm() < 1e-6
    bias = float(found.point.b.mean())
    assert bias == pytest.approx(1 / (3 * (1 + decay)), abs=1e-9)
    assert abs(bias - problem.s / decay) > 0.05
    best = problem.optimum()
    assert best.regime == "zero"
    assert best.bias == pytest.approx(bias, abs=1e-9)
    assert best.value == pytest.approx(found.value, abs=1e-12)


def test_22_equation_24_is_the_hessian_itself():
    """Printed: 2 Hess[D, D] = |dW H + W dH|^2 + 2 <WH - Y, dW dH> + ... Right: Hess[D, D], without the 2."""
    rng = np.random.default_rng(2)
    w, dw = rng.standard_normal((2, 4, 3))
    h, dh = rng.standard_normal((2, 3, 6))
    target = rng.standard_normal((4, 6))

    def value(t: float) -> float:
        a, b = w + t * dw, h + t * dh
        return 0.5 * ((a @ b - target) ** 2).sum() + 0.1 * (a**2).sum() + 0.35 * (b**2).sum()

    step = 1e-2
    weights = np.array([-1, 16, -30, 16, -1]) / 12
    curvature = weights @ [value(i * step) for i in range(-2, 3)] / step**2
    right = ((dw @ h + w @ dh) ** 2).sum() + 2 * ((w @ h - target) * (dw @ dh)).sum()
    right += 0.2 * (dw**2).sum() + 0.7 * (dh**2).sum()
    assert curvature == pytest.approx(right, rel=1e-8)
    # Ours is a sixth of (14), six samples.
    model = RegressionUFM(target.T, 3, 0.2 / 6, 0.7 / 6)
    point, along = (Point(torch.from_numpy(a), torch.from_numpy(b.T.copy())) for a, b in ((w, h), (dw, dh)))
    assert 6 * along.dot(model.hessian_vector(point, along)) == pytest.approx(curvature, rel=1e-8)


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_23_simplex_exists_up_to_dim_plus_one(dim):
    """Printed: no K-simplex ETF in R^d if K > d - 1. Right: if K > d + 1."""
    for count in range(max(dim, 2), dim + 2):  # K = d and K = d + 1, both > d - 1
        etf = frames.simplex_etf(count, dim)
        assert torch.allclose(etf @ etf.T, frames.simplex_gram(count), atol=1e-14)
    with pytest.raises(ValueError, match="dim must be at least"):
        frames.simplex_etf(dim + 2, dim)
    assert int(torch.linalg.matrix_rank(frames.simplex_gram(dim + 2))) == dim + 1  # too many dimensions


def slice_logits(count: int, s: float, theta: float) -> torch.Tensor:
    """Logits of the feature of mse (28), from vectors."""
    etf = frames.simplex_etf(count, count)
    root = math.sqrt(count**2 - 2 * count)
    own = s * (math.sin(theta) / root + math.cos(theta))
    feature = own * etf[0] + s * (count - 1) * math.sin(theta) / root * etf[1]
    return (etf @ feature)[None]


def test_24_equation_30_target_of_the_wrong_classes():
    """Printed: 1/2 sum (z - 1)^2 over wrong classes. Right: target 0, as (4) and (31) have it."""
    count, s, theta, alpha, target = 6, 1.3, 0.7, 2.0, 3.0
    logits = slice_logits(count, s, theta)
    own, wrong = logits[0, 0], logits[0, 1:]
    ahead = (math.sqrt(24) * math.sin(theta) - math.cos(theta)) / 5
    rest = (math.sqrt(6 / 4) * math.sin(theta) + math.cos(theta)) / 5
    equation_31 = alpha / 2 * (s * math.cos(theta) - target) ** 2 + s**2 / 2 * (ahead**2 + 4 * rest**2)
    printed = float(alpha / 2 * (own - target) ** 2 + (wrong - 1).square().sum() / 2)
    correct = float(alpha / 2 * (own - target) ** 2 + wrong.square().sum() / 2)
    assert correct == pytest.approx(equation_31, rel=1e-13)
    assert abs(printed - equation_31) > 1
    assert float(wrong.square().sum()) == pytest.approx(s**2 * (6 / 5 - math.cos(theta) ** 2), rel=1e-13)
    loss = SquaredError(alpha, target)
    assert float(loss(logits, torch.tensor([0]))) == pytest.approx(equation_31, rel=1e-13)
    assert float(FeatureSlice(loss, count).value(s, theta)) == pytest.approx(equation_31, rel=1e-13)


def test_25_equation_35_limit_of_the_cross_entropy():
    """Printed: a two-class gradient without s in the exponents. Right: (-cos theta, s sin theta)."""
    mp.mp.dps = 50
    s, theta = mp.mpf("1.7"), mp.mpf("0.6")

    def loss(s, theta, count):
        ahead = s * (mp.sqrt(count**2 - 2 * count) * mp.sin(theta) - mp.cos(theta)) / (count - 1)
        rest = -s * (mp.sqrt(count / (count - 2)) * mp.sin(theta) + mp.cos(theta)) / (count - 1)
        own = s * mp.cos(theta)
        return mp.log(mp.exp(own) + mp.exp(ahead) + (count - 2) * mp.exp(rest)) - own

    count = mp.mpf(10) ** 12
    by_s = mp.diff(lambda x: loss(x, theta, count), s)
    by_theta = mp.diff(lambda x: loss(s, x, count), theta)
    total = mp.exp(mp.sin(theta)) + mp.exp(mp.cos(theta))
    printed_s = mp.exp(mp.sin(theta)) * (mp.sin(theta) - mp.cos(theta)) / total
    printed_theta = s * mp.exp(mp.sin(theta)) * (mp.sin(theta) + mp.cos(theta)) / total
    assert float(by_s) == pytest.approx(-math.cos(0.6), abs=1e-11)
    assert float(by_theta) == pytest.approx(1.7 * math.sin(0.6), abs=1e-11)
    assert float(by_s) == pytest.approx(-0.825335614906, abs=1e-11)
    assert float(printed_s) == pytest.approx(-0.1134519, abs=1e-7)
    assert float(printed_theta) == pytest.approx(1.0283456, abs=1e-7)
    assert loss(s, theta, mp.mpf(10) ** 24) - loss(s, theta, count) > 27  # it grows like log K
    wide = WideSlice(CrossEntropy()).gradient(1.7, 0.6)
    assert np.allclose(wide, [float(by_s), float(by_theta)], atol=1e-11)
    near = FeatureSlice(CrossEntropy(), 100_000).gradient(1.7, 0.6)
    assert np.allclose(near, wide, atol=1e-4)


def test_26_lemma_B4_proof_subtracts_K_s(problem, solved):
    """Printed: W*W*' ~ I - b 11' - N mu I. Right: K s = K sqrt(n) mu in place of N mu = K n mu."""
    gram = (solved.point.W @ solved.point.W.T).numpy()
    bias = float(solved.point.b.mean())

    def misfit(level: float) -> float:
        shape = (1 - level) * np.eye(COUNT) - bias
        return float(np.linalg.norm(gram / np.linalg.norm(gram) - shape / np.linalg.norm(shape)))

    assert misfit(COUNT * problem.s) < 1e-7
    assert misfit(problem.num_samples * problem.mu) > 1e-3


@pytest.mark.parametrize("decay", [0.2, None])
def test_27_theorem_3_1_best_low_rank_projector_is_not_unique(decay):
    """Printed: *the* best rank-d approximation of P. Right: any rank-d projector perpendicular to 1.

    Without a bias it need not be perpendicular to 1.
    """
    problem = RegularizedUFM(SquaredError(), 5, 2, 2, 0.03, 0.02, decay)
    best = problem.optimum()
    scale = 1 - 5 * problem.s
    ratio = math.sqrt(2 * 0.02 / 0.03)
    grams = []
    for seed in range(4):
        if decay is None:
            generator = torch.Generator().manual_seed(seed)
            rows = torch.linalg.qr(torch.randn(5, 2, dtype=torch.float64, generator=generator)).Q
        else:
            rows = frames.low_rank_etf(5, 2, seed=seed) * math.sqrt(4 / 5)
        rows = math.sqrt(scale) * rows
        bias = None if decay is None else torch.full((5,), 1 / (5 * (1 + decay)), dtype=torch.float64)
        point = Point(math.sqrt(ratio) * rows, (rows / math.sqrt(ratio))[problem.labels], bias)
        assert problem.gradient(point).norm() < 1e-14
        assert problem.value(point) == pytest.approx(best.value, abs=1e-14)
        grams.append(rows @ rows.T)
    assert float((grams[0] - grams[1]).norm()) > 0.3
    assert minimise_many(problem, 4).value == pytest.approx(best.value, abs=1e-10)
