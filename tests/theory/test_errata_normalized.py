"""Errata of "Neural Collapse with Normalized Features" (normalized).

In this file W is (d, K) and H is (d, N), as in the paper, unless a Point of ours is meant (rows).
M = tau W'H; p_w = 1/(e^{K tau/(K-1)} + K - 1) is the wrong-class probability at collapse.
"""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

import neuralcollapse as nc
from neuralcollapse import frames
from neuralcollapse.losses import CrossEntropy, LabelSmoothing
from neuralcollapse.ufm import NormalizedUFM, Point, RegularizedUFM, critical_temperature
from theory.solve import hessian_matrix, minimise_many

COUNT, SAMPLES, DIM, TAU = 4, 3, 6, 1.7
TOTAL = COUNT * SAMPLES
CENTRED = np.eye(COUNT) - 1 / COUNT
RNG = np.random.default_rng


def softmax(array: np.ndarray) -> np.ndarray:
    powers = np.exp(array - array.max(0))
    return powers / powers.sum(0)


def mean_cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(softmax(logits)[labels, np.arange(len(labels))]).mean())


def unit_columns(array: np.ndarray) -> np.ndarray:
    return array / np.linalg.norm(array, axis=0)


def difference(function, array: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """The gradient of ``function`` by differences of fourth order."""
    result = np.zeros_like(array)
    for index in np.ndindex(*array.shape):
        bump = np.zeros_like(array)
        bump[index] = step
        values = [function(array + i * bump) for i in (-2, -1, 1, 2)]
        result[index] = np.dot([1, -8, 8, -1], values) / (12 * step)
    return result


def collapsed(tau: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(W, H, G) at an ETF, samples sorted by class, G the gradient of g by differences."""
    classifier = frames.simplex_etf(COUNT, DIM, seed=1).numpy().T
    labels = np.repeat(np.arange(COUNT), SAMPLES)
    features = classifier[:, labels]
    slope = difference(lambda m: mean_cross_entropy(m, labels), tau * classifier.T @ features)
    return classifier, features, slope


def test_32_equation_16_lacks_1_over_N_and_mixes_two_orders():
    """Printed: softmax(M) - I_K (x) 1_n' for H = [H^1 ... H^n]. Right: (softmax(M) - 1_n' (x) I_K)/N."""
    labels = np.tile(np.arange(COUNT), SAMPLES)  # H^i holds the i-th sample of every class
    logits = RNG(0).standard_normal((COUNT, TOTAL))
    truth = difference(lambda m: mean_cross_entropy(m, labels), logits)
    by_class, by_sample = np.kron(np.eye(COUNT), np.ones(SAMPLES)), np.kron(np.ones(SAMPLES), np.eye(COUNT))
    printed = softmax(logits) - by_class
    assert np.abs(printed - truth).max() > 0.5
    assert np.abs(printed / TOTAL - truth).max() > 0.05  # the order is wrong too
    assert np.allclose((softmax(logits) - by_sample) / TOTAL, truth, atol=1e-10)
    # Sorted by class, as our points are, the printed target is right.
    problem = NormalizedUFM("ce", COUNT, SAMPLES, DIM, TAU)
    point = problem.random_point(0)
    ours = problem.linearize(point).logit_gradient.numpy().T
    scores = TAU * (point.W @ point.H.T).numpy()
    assert np.allclose(ours, (softmax(scores) - by_class) / TOTAL, atol=1e-14)


def test_33_equations_17_18_swap_the_factors():
    """Printed: grad_W f = tau (W G - H ddiag(H'WG)), a (d, N) array; grad_H f with grad g(W)."""
    problem = NormalizedUFM("ce", COUNT, SAMPLES, DIM, TAU)
    point = problem.random_point(3)
    w, h = point.W.numpy().T, point.H.numpy().T
    labels = problem.labels.numpy()
    slope = (softmax(TAU * w.T @ h) - np.eye(COUNT)[:, labels]) / TOTAL

    def value(classifier: np.ndarray, features: np.ndarray) -> float:
        return mean_cross_entropy(TAU * unit_columns(classifier).T @ unit_columns(features), labels)

    by_w, by_h = difference(lambda x: value(x, h), w), difference(lambda x: value(w, x), h)
    printed_17 = TAU * (w @ slope - h * np.diag(h.T @ w @ slope))
    printed_18 = TAU * (h @ slope.T - w * np.diag(w.T @ h @ slope.T))
    assert printed_17.shape == by_h.shape != by_w.shape
    assert printed_18.shape == by_w.shape != by_h.shape
    # Exchanged (and with grad g(M) in both) they are right.
    assert np.allclose(printed_18, by_w, atol=1e-9)
    assert np.allclose(printed_17, by_h, atol=1e-9)
    ours = problem.gradient(point)
    assert np.allclose(ours.W.numpy().T, by_w, atol=1e-9)
    assert np.allclose(ours.H.numpy().T, by_h, atol=1e-9)


@pytest.mark.parametrize("tau", [1.0, 2.5])
def test_34_equations_24_to_26_at_collapse(tau):
    """Printed: no tau, no 1/N, |G| with sqrt(nK).

    Right: G = -(K p_w/N) P (x) 1', |G| = p_w/sqrt(n), alpha = -p_w, beta = -p_w/n.
    """
    w, h, slope = collapsed(tau)
    share = math.exp(-1 / (COUNT - 1)) / (math.exp(1) + (COUNT - 1) * math.exp(-1 / (COUNT - 1)))
    p_wrong = 1 / (math.exp(COUNT * tau / (COUNT - 1)) + COUNT - 1)
    spread = np.kron(CENTRED, np.ones(SAMPLES))
    norm = np.linalg.norm(slope, 2)
    alpha = np.einsum("dk,dk->k", w, h @ slope.T)
    beta = np.einsum("di,di->i", h, w @ slope)
    printed = {
        "G": -COUNT * share,
        "norm": math.sqrt(SAMPLES * COUNT) * share,
        "alpha": -SAMPLES * COUNT * share,
    }
    assert np.abs(slope - printed["G"] * spread).max() > 0.1
    assert abs(norm - printed["norm"]) > 0.1
    assert abs(alpha[0] - printed["alpha"]) > 0.1
    assert abs(beta[0] + COUNT * share) > 0.1
    # The printed numbers are not even consistent with each other: (27) asks for alpha = -sqrt(n) |G|.
    assert abs(printed["alpha"] + math.sqrt(SAMPLES) * printed["norm"]) > 0.1
    assert np.allclose(slope, -COUNT * p_wrong / TOTAL * spread, atol=1e-11)
    assert norm == pytest.approx(p_wrong / math.sqrt(SAMPLES), abs=1e-11)
    assert np.allclose(alpha, -p_wrong, atol=1e-11)
    assert np.allclose(beta, -p_wrong / SAMPLES, atol=1e-11)
    problem = NormalizedUFM("ce", COUNT, SAMPLES, DIM, tau)
    state = problem.linearize(problem.optimum().point)
    assert torch.allclose(state.alpha, torch.full_like(state.alpha, -p_wrong), atol=1e-15)
    assert problem.certify(problem.optimum().point).spectral_ratio == pytest.approx(1, abs=1e-12)


def test_35_proposition_1_c1_needs_tau():
    """Printed: c_1 = [(K-1) exp((sum w'q - K w_k'q)/(K-1))]^-1. Equality needs tau in the exponential."""
    gap = -1.3  # sum_l w_l'q - K w_k'q at a q with equal wrong products
    logits = np.zeros((COUNT, 1))
    logits[0] = -TAU * gap / (COUNT - 1)
    loss = float(CrossEntropy()(torch.from_numpy(logits.T.copy()), torch.tensor([0])))

    def slack(c1: float) -> float:
        c2 = math.log((1 + c1) * (COUNT - 1)) / (1 + c1) + c1 / (1 + c1) * math.log((1 + c1) / c1)
        return (1 + c1) * (COUNT - 1) * (loss - c2) - TAU * gap

    printed = 1 / ((COUNT - 1) * math.exp(gap / (COUNT - 1)))
    correct = 1 / ((COUNT - 1) * math.exp(TAU * gap / (COUNT - 1)))
    assert slack(printed) > 0.01
    assert abs(slack(correct)) < 1e-12


def test_36_equations_28_29_penalties_need_tau():
    """Printed: f + (lambda sqrt(n)/2)|W|^2 + lambda/(2 sqrt(n))|H|^2. Both penalties need a factor tau."""
    w, h, slope = collapsed(TAU)
    level, root = np.linalg.norm(slope, 2), math.sqrt(SAMPLES)

    def gradient(factor: float) -> float:
        """Of the penalised problem at collapse, with the temperature taken into the features: H' = tau H."""
        model = RegularizedUFM("ce", COUNT, SAMPLES, DIM, factor * level * root, factor * level / root / TAU**2)
        return model.gradient(Point(torch.from_numpy(w.T.copy()), torch.from_numpy(TAU * h.T))).norm()

    assert gradient(1.0) > 0.02
    assert gradient(TAU) < 1e-10


def test_37_equation_27_root_and_transpose():
    """Printed: alpha_k = -sqrt(n lambda) and M* = tau W*H*. Right: -sqrt(n) lambda and tau W*'H*."""
    w, h, slope = collapsed(TAU)
    level = np.linalg.norm(slope, 2)
    problem = NormalizedUFM("ce", COUNT, SAMPLES, DIM, TAU)
    alpha = problem.linearize(problem.optimum().point).alpha.numpy()
    assert np.allclose(alpha, -math.sqrt(SAMPLES) * level, atol=1e-11)
    assert np.abs(alpha + math.sqrt(SAMPLES * level)).min() > 0.1
    with pytest.raises(ValueError, match="matmul"):
        w @ h
    assert (w.T @ h).shape == slope.shape


def test_38_appendix_B2_derivative_of_the_riemannian_gradient():
    """Printed: D grad f(X)[U] ends in - X ddiag(U' Hess[U]). Right: - X ddiag(X' Hess[U])."""
    problem = NormalizedUFM("ce", COUNT, SAMPLES, DIM, TAU)
    point = problem.random_point(4)
    along = problem.project(point, problem.random_point(5))
    features, direction = point.H.T.numpy(), along.H.T.numpy()
    still = Point(torch.zeros_like(point.W), along.H)

    def euclidean(x: np.ndarray) -> np.ndarray:
        scores = TAU * point.W.numpy() @ x
        return TAU * point.W.numpy().T @ (softmax(scores) - np.eye(COUNT)[:, problem.labels.numpy()]) / TOTAL

    def riemannian(x: np.ndarray) -> np.ndarray:
        return euclidean(x) - x * (x * euclidean(x)).sum(0)

    def derivative(function) -> np.ndarray:
        return (function(features + 1e-5 * direction) - function(features - 1e-5 * direction)) / 2e-5

    truth, hessian, slope = derivative(riemannian), derivative(euclidean), euclidean(features)
    common = hessian - direction * (features * slope).sum(0) - features * (direction * slope).sum(0)
    assert np.allclose(common - features * (features * hessian).sum(0), truth, atol=1e-9)
    assert np.abs(common - features * (direction * hessian).sum(0) - truth).max() > 0.01
    # The package's Riemannian Hessian is the tangential part of the right one.
    tangential = truth - features * (features * truth).sum(0)
    assert np.allclose(problem.hessian_vector(point, still).H.numpy().T, tangential, atol=1e-9)


def equal_classifiers(count: int, samples: int, dim: int, tau: float) -> tuple[NormalizedUFM, Point]:
    """All classifiers equal; features of each class spread evenly over the sphere perpendicular to them."""
    problem = NormalizedUFM("ce", count, samples, dim, tau)
    weight = torch.zeros(count, dim, dtype=torch.float64)
    weight[:, 0] = 1
    axes = torch.eye(dim, dtype=torch.float64)[1:]
    return problem, Point(weight, axes[torch.arange(count * samples) % (dim - 1)])


@pytest.mark.parametrize("count", [3, 4])
def test_39_proposition_2_needs_no_bound_on_tau(count):
    """Printed: tau < 2 (d-2)/(1 + (K mod 2)/K) is assumed. It is sharp for the printed direction only."""
    dim = 4
    samples = dim - 1
    bound = 2 * (dim - 2) / (1 + count % 2 / count)
    for factor in (0.9, 1.1, 10.0):
        problem, point = equal_classifiers(count, samples, dim, factor * bound)
        assert problem.gradient(point).norm() < 1e-14
        sign = torch.tensor([(-1.0) ** k for k in range(count)], dtype=torch.float64)
        axis = torch.eye(dim, dtype=torch.float64)[1]
        turn_w = Point(torch.outer(sign, axis), torch.zeros_like(point.H))
        turn_h = Point(torch.zeros_like(point.W), torch.outer(sign[problem.labels], axis))

        def curvature(t: float, problem=problem, point=point, turn_w=turn_w, turn_h=turn_h) -> float:
            direction = problem.project(point, turn_w + t * turn_h)
            return direction.dot(problem.hessian_vector(point, direction))

        # The printed direction fails beyond the bound: at once for even K, later for odd K.
        if factor == 10 or (factor > 1 and count % 2 == 0):
            assert curvature(1.0) > 0.01
        else:
            assert curvature(1.0) < -0.01
        own, two = curvature(0.0), curvature(2.0)
        slope = (own - two) / 4  # curvature(t) = own - 2 slope t
        assert slope > 0
        assert curvature(5.0) == pytest.approx(own - 10 * slope, rel=1e-9)  # linear in t
        assert curvature(own / (2 * slope) + 1) < 0
        assert np.linalg.eigvalsh(hessian_matrix(problem, point))[0] < -0.01
        assert problem.certify(point).verdict == "strict saddle"


def signs(pattern: list[int], tau: float) -> tuple[NormalizedUFM, Point]:
    """W = H = +-e_1: a critical point for every pattern of signs."""
    count = len(pattern)
    problem = NormalizedUFM("ce", count, 1, count + 1, tau)
    rows = torch.zeros(count, count + 1, dtype=torch.float64)
    rows[:, 0] = torch.tensor(pattern, dtype=torch.float64)
    point = Point(rows, rows.clone())
    assert problem.gradient(point).norm() < 1e-14
    return problem, point


def test_40_case_2_termwise_bound_is_invalid():
    """Printed: "some alpha_k or beta_i above its bound" is used as if all were. Some are below it here."""
    problem, point = signs([1, 1, 1, 1, 1, 1, -1, -1], 0.1)
    state = problem.linearize(point)
    norm = float(torch.linalg.matrix_norm(state.logit_gradient, 2))
    for multiplier in (state.alpha, state.beta):  # n = 1: (23) asks for alpha_k <= -|G| and beta_i <= -|G|
        ratio = -multiplier / norm
        assert float(ratio.max()) > 1.3
        assert float(ratio.min()) < 0.99
    certificate = problem.certify(point)
    assert certificate.verdict == "strict saddle"
    assert certificate.spectral_ratio > 1


def test_40_case_2_direction_can_curve_upwards():
    """The printed direction itself, with the top singular vector (e_1 - e_8)/sqrt(2), has positive curvature.

    The top singular value has multiplicity six, and nothing says which pair to take. The weighted direction
    (-a (u/sqrt(-alpha))', a (v/sqrt(-beta))'), from the top pair of D^-1/2 G D^-1/2, has curvature
    2 tau (1 - sigma) < 0.
    """
    tau = 0.1
    problem, point = signs([1, -1, -1, -1, -1, -1, -1, 1], tau)
    state = problem.linearize(point)
    slope, alpha, beta = state.logit_gradient, state.alpha.squeeze(1), state.beta.squeeze(1)
    assert float(alpha.max()) < 0
    assert float(beta.max()) < 0
    norm = float(torch.linalg.matrix_norm(slope, 2))
    pair = torch.zeros(8, dtype=torch.float64)
    pair[0], pair[7] = math.sqrt(0.5), -math.sqrt(0.5)
    assert (slope @ pair + norm * pair).norm() < 1e-12 * norm  # v = -u: a top singular pair
    null = torch.zeros(9, dtype=torch.float64)
    null[8] = 1
    printed = Point(torch.outer(-pair, null), torch.outer(-pair, null))
    bend = printed.dot(problem.hessian_vector(point, printed))
    assert bend == pytest.approx(0.7751887096 * tau * norm, rel=1e-8)
    weighted = slope / (-beta).sqrt()[:, None] / (-alpha).sqrt()
    left, singular, right = torch.linalg.svd(weighted)
    turn = Point(torch.outer(-right[0] / (-alpha).sqrt(), null), torch.outer(left[:, 0] / (-beta).sqrt(), null))
    expected = 2 * tau * (1 - float(singular[0]))
    assert expected < 0
    assert turn.dot(problem.hessian_vector(point, turn)) == pytest.approx(expected, rel=1e-9)
    step = 0.01
    values = [problem.value(problem.retract(point, turn * (i * step / turn.norm()))) for i in (-1, 0, 1)]
    assert values[0] - 2 * values[1] + values[2] < 0
    certificate = problem.certify(point)
    assert certificate.verdict == "strict saddle"
    assert certificate.curvature < 0


@pytest.mark.parametrize("count", [4, 10])
def test_41_NC2_NC3_need_1_over_K(count):
    """Printed: (I - 11')/sqrt(K-1), at distance sqrt(K-1) from a perfect simplex. Right: I - 11'/K."""
    gram = frames.simplex_gram(count)
    unit, ones = gram / gram.norm(), torch.ones(count, count, dtype=torch.float64)
    eye, root = torch.eye(count, dtype=torch.float64), math.sqrt(count - 1)
    assert float((unit - (eye - ones) / root).norm()) == pytest.approx(root, rel=1e-12)
    labels = torch.arange(count).repeat_interleave(2)
    etf = frames.simplex_etf(count, count + 1, seed=2)
    report = nc.measure(etf[labels], labels, 3 * etf)
    assert report.nc2 < 1e-12
    assert report.nc3 < 1e-12


@pytest.mark.parametrize("count", [3, 5])
def test_42_label_smoothing_leaves_collapse_at_the_critical_temperature(count):
    """Printed: no collapse "for large enough tau", by comparison with log K. It ends at tau*, before that."""
    loss = LabelSmoothing(0.1)
    share = loss.alpha * (count - 1) / count

    def at_collapse(tau: float) -> float:
        return math.log(1 + (count - 1) * math.exp(-count * tau / (count - 1))) + loss.alpha * tau

    critical = (count - 1) / count * math.log(count / loss.alpha - count + 1)
    assert critical_temperature(loss, count) == pytest.approx(critical, rel=1e-12)
    lowest = minimize_scalar(at_collapse, bounds=(0.1, 30), method="bounded", options={"xatol": 1e-10})
    assert lowest.x == pytest.approx(critical, abs=1e-6)
    floor = -(1 - share) * math.log(1 - share) - share * math.log(loss.alpha / count)  # entropy of the smoothed label
    for factor, collapses in ((0.9, True), (1.2, False), (2.0, False)):
        tau = factor * critical
        problem = NormalizedUFM(loss, count, 2, count + 1, tau)
        found = minimise_many(problem, 3).value
        assert at_collapse(tau) < math.log(count)  # the printed comparison does not apply yet
        if collapses:
            assert found == pytest.approx(at_collapse(tau), abs=1e-10)
        else:
            assert found == pytest.approx(floor, abs=1e-10)
            assert at_collapse(tau) > floor + 1e-3
        assert problem.optimum().value == pytest.approx(found, abs=1e-10)


def test_43_domains_and_index_sets():
    """Printed: (W, H) in OB(d, N) x OB(d, K), and blocks H^i of K columns for i in [N]."""
    problem = NormalizedUFM("ce", COUNT, SAMPLES, DIM, TAU)
    point = problem.random_point(0)
    with pytest.raises(ValueError, match=r"point\.W"):
        problem.check(Point(point.H, point.W))  # OB(d, N) x OB(d, K)
    assert problem.check(point) is point
    # n blocks of one sample a class, not N.
    blocks = problem.labels.reshape(COUNT, -1).unbind(1)
    assert [block.tolist() for block in blocks] == [list(range(COUNT))] * SAMPLES
