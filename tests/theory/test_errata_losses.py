"""Errata of "Are All Losses Created Equal" (losses): each printed formula fails, the corrected one holds.

s = sqrt(n lW lH), P = I - 11'/K, t = sum_{j != k} (z_j - z_k), rho = t/(K-1). Arrays have samples in rows.
"""

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar

import neuralcollapse as nc
from neuralcollapse import frames
from neuralcollapse.losses import CrossEntropy, Focal, LabelSmoothing, SquaredError
from neuralcollapse.ufm import Point, RegularizedUFM
from theory.solve import minimise, minimise_many


def phi_cross_entropy(total: float, count: int) -> float:
    """losses, B.1: log(1 + (K-1) exp(t/(K-1)))."""
    return float(np.logaddexp(0.0, math.log(count - 1) + total / (count - 1)))


def scalar_minimum(function, low: float = -200.0) -> float:
    """The minimum over [low, 0] of a scalar function: a grid, then a bounded search."""
    grid = np.linspace(low, 0.0, 4001)
    best = int(np.argmin([function(x) for x in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    inner = minimize_scalar(function, bounds=bounds, method="bounded", options={"xatol": 1e-12})
    return min(float(inner.fun), function(0.0))


@pytest.fixture(scope="module")
def problem() -> RegularizedUFM:
    return RegularizedUFM(CrossEntropy(), 5, 3, 6, weight_decay=0.01, feature_decay=0.02)


@pytest.fixture(scope="module")
def solved(problem):
    found = minimise_many(problem, 3)
    assert found.gradient_norm < 1e-7
    return found


def test_1_appendix_C1_constant_in_front_of_the_norm(problem, solved):
    """Printed: c = K s (a caption even has -K s)."""
    count, s = 5, problem.s

    def value(constant: float, per_unit: float) -> float:
        return scalar_minimum(lambda x: phi_cross_entropy(per_unit * x, count) + constant * abs(x))

    right = {"sum, s": value(s, 1), "mean, (K-1) s": value((count - 1) * s, count - 1)}
    wrong = {"sum, K s": value(count * s, 1), "mean, K s": value(count * s, count - 1)}
    for found in right.values():
        assert found == pytest.approx(solved.value, abs=1e-10)
    assert wrong["sum, K s"] - solved.value > 0.9
    assert wrong["mean, K s"] - solved.value > 0.08
    # With the caption's sign the objective falls without bound.
    assert phi_cross_entropy(-1e6, count) - count * s * 1e6 < -1e4
    assert problem.optimum().value == pytest.approx(solved.value, abs=1e-10)


def test_2_appendix_27_32_33_phi_takes_the_sum(problem, solved):
    """Printed: f >= phi(rho*) + (K-1) s |rho*| with rho the mean; (27) has no absolute value."""
    count, slope = 5, 4 * problem.s
    printed = scalar_minimum(lambda rho: phi_cross_entropy(rho, count) + slope * abs(rho))
    assert printed > solved.value + 0.5  # so it is no lower bound
    correct = scalar_minimum(lambda rho: phi_cross_entropy(4 * rho, count) + slope * abs(rho))
    assert correct == pytest.approx(solved.value, abs=1e-10)
    # (27) without |.| has no minimum: it goes to minus infinity with rho.
    values = [phi_cross_entropy(4 * rho, count) + slope * rho for rho in (-1e2, -1e4, -1e6)]
    assert values[2] < values[1] < values[0] < solved.value
    assert problem.loss.phi(-8.0, count) == pytest.approx(phi_cross_entropy(-8.0, count), rel=1e-14)


def test_3_appendix_lemma_8_minimises_over_too_small_a_set(problem):
    """Printed: the last bound is minimised over those Z only that attain equality in the one before it.

    Over all rho the bound goes lower than the claimed minimum. The sign matrices give the inequality at once.
    """
    count, s = 5, problem.s
    claimed = problem.optimum().value

    def bound(rho: np.ndarray) -> float:
        projector = np.eye(count) - 1 / count
        top = np.linalg.norm(projector * rho, 2)
        return float(np.mean([phi_cross_entropy(4 * r, count) + 4 * s * r**2 / top for r in rho]))

    start = np.array([-8.0, -3.0, -3.0, -3.0, -3.0])
    free = minimize(bound, start, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-8, "fatol": 1e-12})
    assert free.fun < claimed - 1e-3
    equal = minimize(lambda r: bound(np.full(count, r[0])), [-3.0], method="Nelder-Mead", options={"xatol": 1e-9})
    assert equal.fun == pytest.approx(claimed, abs=1e-9)

    generator = torch.Generator().manual_seed(0)
    labels = problem.labels
    projector = torch.eye(count, dtype=torch.float64) - 1 / count
    for _ in range(300):
        logits = torch.randn(15, count, dtype=torch.float64, generator=generator) @ torch.diag(
            torch.rand(count).double()
        )
        rho = (logits.sum(1) - count * logits.gather(1, labels[:, None]).squeeze(1)) / (count - 1)
        signs = problem.mu / math.sqrt(3) * -rho.sign()[:, None] * projector[labels]
        assert torch.linalg.matrix_norm(signs, 2) <= problem.mu * (1 + 1e-12)
        nuclear = problem.mu * torch.linalg.matrix_norm(logits, "nuc")
        assert nuclear >= (4 * s * rho.abs()).mean() - 1e-12


def test_4_appendix_lemma_7_bias_of_a_critical_point():
    """Printed: any critical point has b proportional to 1. A rank-one critical point does not."""
    line = RegularizedUFM(CrossEntropy(), 3, 2, 1, weight_decay=0.02, feature_decay=0.01, bias_decay=0.01)
    found = minimise_many(line, 6)
    wide = RegularizedUFM(CrossEntropy(), 3, 2, 4, weight_decay=0.02, feature_decay=0.01, bias_decay=0.01)
    pad = torch.nn.functional.pad
    point = Point(pad(found.point.W, (0, 3)), pad(found.point.H, (0, 3)), found.point.b)
    state = wide.linearize(point)
    assert state.gradient.norm() < 1e-8
    assert float(point.b.max() - point.b.min()) > 1.0
    assert torch.allclose(point.b, -state.logit_gradient.sum(0) / 0.01, atol=1e-6)
    assert wide.certify(point).verdict == "strict saddle"


def partly_collapsed(count: int, learned: int, margin: float, shift: float) -> Point:
    """``learned`` classes at a simplex, the others at zero, bias higher by ``shift`` there (n = 1)."""
    rows = torch.zeros(count, count, dtype=torch.float64)
    rows[:learned, :learned] = math.sqrt(margin) * (torch.eye(learned, dtype=torch.float64) - 1 / learned)
    bias = torch.zeros(count, dtype=torch.float64)
    bias[:learned] = shift
    return Point(rows, rows.clone(), bias - bias.mean())


def test_5_appendix_theorem_3_fails_for_the_focal_loss_with_a_bias():
    """Printed: collapse is the only global minimiser of any contrastive loss, with any bias."""
    loss = Focal(3.0)
    s = loss.transition(100).exchange
    problem = RegularizedUFM(loss, 100, 1, 100, s, s, bias_decay=0.0)
    symmetric = loss.optimal_margin(99 * s, 100).value
    assert symmetric == pytest.approx(4.468392026294, abs=1e-11)
    broken = partly_collapsed(100, 55, 2.354248, 0.088492)
    assert problem.value(broken) == pytest.approx(4.467475180422, abs=1e-9)
    assert problem.value(broken) < symmetric - 9e-4
    best = problem.optimum()
    assert best.regime == "broken symmetry"
    assert not best.proved
    assert best.value <= problem.value(broken)
    assert problem.value(best.point) == pytest.approx(best.value, abs=1e-12)
    # Without a bias the theorem's value is right at every s.
    assert RegularizedUFM(loss, 100, 1, 100, s, s).optimum().proved


def test_6_appendix_15_uniqueness_for_the_focal_loss():
    """Printed: argmin phi(t) + c|t| is unique for any c > 0. From s_lo to s_hi there are two local minima."""
    loss, count = Focal(3.0), 100
    transition = loss.transition(count)
    assert transition.first_order
    t = np.linspace(-99 * 12, 0.0, 200_001)
    phi = loss.phi(t, count)
    for c, lowest_at_zero in ((transition.exchange * 0.999, False), (transition.exchange * 1.001, True)):
        values = phi + c * np.abs(t)
        falls, rises = np.diff(values)[:-1] < 0, np.diff(values)[1:] > 0
        assert np.count_nonzero(falls & rises) == 1  # one minimum inside ...
        assert values[-1] < values[-2]  # ... and one at t = 0
        assert (int(np.argmin(values)) == len(t) - 1) is lowest_at_zero
    values = phi + transition.exchange * np.abs(t)
    inner = values[t < -20].min()
    assert inner == pytest.approx(values[-1], abs=1e-8)  # a tie at c = s_t: not unique
    assert values[(t > -20) & (t < -1)].min() > inner + 1e-4


def test_7_appendix_B2_second_derivative_of_phi():
    """Printed: + gamma + (gamma+1)/gamma in the bracket. Right: + 2 + 1/gamma; the same at gamma = 1 only."""
    mp.mp.dps = 40

    def phi(t, gamma, count):
        xi = 1 + (count - 1) * mp.exp(t / (count - 1))
        return (1 - 1 / xi) ** gamma * mp.log(xi)

    def second(t, gamma, count, constant):
        xi = 1 + (count - 1) * mp.exp(t / (count - 1))
        bracket = -mp.log(xi) + gamma * mp.log(xi) / (xi - 1) + constant
        return gamma * (xi - 1) ** (gamma + 1) / xi ** (gamma + 2) / (count - 1) ** 2 * bracket

    for gamma, count, t in ((5, 100, -50), (3, 10, -4), (0.5, 30, -20), (1, 20, -10)):
        gamma, t = mp.mpf(gamma), mp.mpf(t)
        truth = mp.diff(lambda x, g=gamma, k=count: phi(x, g, k), t, 2)
        printed = second(t, gamma, count, gamma + (gamma + 1) / gamma)
        correct = second(t, gamma, count, 2 + 1 / gamma)
        assert abs(correct - truth) < 1e-12 * abs(truth)
        assert (abs(printed - truth) < 1e-12 * abs(truth)) == (gamma == 1)
        logits = torch.zeros(1, count, dtype=torch.float64)
        logits[0, 0] = -float(t) / (count - 1)
        along = torch.zeros(1, count, dtype=torch.float64)
        along[0, 0] = -1 / (count - 1)
        ours = along.mul(Focal(float(gamma)).hessian_vector(logits, torch.tensor([0]), along)).sum()
        assert float(ours) == pytest.approx(float(truth), rel=1e-9)
    mp.mp.dps = 20
    truth = mp.diff(lambda x: phi(x, 5, 100), mp.mpf(-50), 2)
    assert float(truth) == pytest.approx(-1.188214799985e-05, rel=1e-10)
    assert second(mp.mpf(-50), 5, 100, mp.mpf(5) + mp.mpf(6) / 5) > 1.8e-5


def smallest_hessian_eigenvalue(loss: Focal, probability: float, generator: torch.Generator) -> float:
    wrong = torch.randn(1, 6, dtype=torch.float64, generator=generator)
    logits = torch.cat([torch.zeros(1, 1, dtype=torch.float64), wrong], dim=1)
    logits[0, 0] = wrong.logsumexp(1) + math.log(probability / (1 - probability))
    basis = torch.eye(7, dtype=torch.float64)
    state = loss.linearize(logits, torch.tensor([0]))
    hessian = torch.stack([state.hessian_vector(basis[i : i + 1].clone())[0] for i in range(7)])
    return float(torch.linalg.eigvalsh((hessian + hessian.T) / 2)[0])


def test_8_corollary_2_convexity_of_the_focal_loss(generator):
    """Printed: convex for p >= 0.21. Exactly: for p >= p_inf(gamma), at most 0.058444."""
    for gamma in (0.5, 1.0, 2.0, 3.0, 5.0):
        loss = Focal(gamma)
        for _ in range(8):
            assert smallest_hessian_eigenvalue(loss, loss.convex_from * 1.01, generator) > -1e-12
            assert smallest_hessian_eigenvalue(loss, 0.1, generator) > -1e-12  # outside the printed region
            assert smallest_hessian_eigenvalue(loss, loss.convex_from * 0.98, generator) < -1e-7
    top = minimize_scalar(lambda g: -Focal(g).convex_from, bounds=(1, 5), method="bounded", options={"xatol": 1e-9})
    assert -top.fun == pytest.approx(0.058444, abs=5e-7)
    assert top.x == pytest.approx(2.3819, abs=1e-4)
    assert -top.fun < 0.21 / 3.5


def test_9_after_corollary_2_descent_can_stop_at_zero():
    """Printed: gradient descent always reaches a global solution for the focal loss."""
    loss, count = Focal(3.0), 30
    transition = loss.transition(count)
    s = (transition.zero_stable_above + transition.exchange) / 2
    problem = RegularizedUFM(loss, count, 1, 30, s, s)
    assert problem.optimum().regime == "neural collapse"
    found = minimise(problem, 0, scale=0.05)
    assert found.gradient_norm < 1e-9
    assert found.point.norm() < 1e-6
    assert found.value > problem.optimum().value + 1e-3
    # A lower decay has no such trap, even from a confidently wrong start.
    easy = RegularizedUFM(loss, count, 1, 30, 0.9 * transition.zero_stable_above, 0.9 * transition.zero_stable_above)
    wrong = easy.optimum().point
    start = Point(wrong.W, -wrong.H + 0.01 * easy.random_point(0).H)
    assert minimise(easy, start).value == pytest.approx(easy.optimum().value, abs=1e-9)


def test_10_appendix_C1_d_factor_of_the_gram_matrix(problem, solved):
    """Printed: WW' = |w|^2 (K-1)/K P. Right: |w|^2 K/(K-1) P."""
    gram = solved.point.W @ solved.point.W.T
    square = gram.diagonal().mean()
    projector = torch.eye(5, dtype=torch.float64) - 1 / 5
    assert (gram - square * 4 / 5 * projector).norm() > 0.3 * gram.norm()
    assert (gram - square * 5 / 4 * projector).norm() < 1e-6 * gram.norm()
    assert torch.allclose(problem.optimum().weight_gram, gram, atol=1e-6)


def test_11_theorem_1_gram_matrix_is_of_rows():
    """Printed: W*'W* (d x d) equals a K x K matrix. Right: W*W*'; for d = K the two differ."""
    problem = RegularizedUFM(CrossEntropy(), 4, 2, 4, 0.02, 0.01)
    weight = minimise(problem, 1).point.W
    target = float(weight.square().sum()) / 3 * (torch.eye(4, dtype=torch.float64) - 1 / 4)
    assert (weight @ weight.T - target).norm() < 1e-6
    assert (weight.T @ weight - target).norm() > 0.1
    wider = minimise(RegularizedUFM(CrossEntropy(), 4, 2, 6, 0.02, 0.01), 1).point.W
    assert (wider.T @ wider).shape != target.shape == (wider @ wider.T).shape


def test_12_appendix_lemma_9_feature_scale_lacks_n(problem, solved):
    """Printed: Htilde = (rho^2 lW/lH)^(1/4) P. Right: (rho^2 lW/(n lH))^(1/4) P."""
    margin, means = problem.optimum().logit_scale, solved.point.H[::3]
    assert (solved.point.H - means[problem.labels]).norm() < 1e-6
    printed, correct = (math.sqrt(4) * (margin**2 * 0.01 / (0.02 * n)) ** 0.25 for n in (1, 3))
    assert float(means.norm()) == pytest.approx(correct, rel=1e-7)
    assert printed / float(means.norm()) == pytest.approx(3**0.25, rel=1e-7)


def test_13_appendix_C1_ratio_of_the_norms(solved):
    """Printed: |H|^2 = (lH/lW) |W|^2. Right: (lW/lH) |W|^2."""
    ratio = float(solved.point.H.square().sum() / solved.point.W.square().sum())
    assert ratio == pytest.approx(0.01 / 0.02, rel=1e-7)
    assert abs(ratio - 0.02 / 0.01) > 1


def test_14_appendix_B1_B3_three_slips():
    """Printed: one z_j - z_k instead of their sum; phi_LS(0) = (1-alpha)/K; xi/(K-1) as the gradient."""
    count = 5
    logits = torch.tensor([[0.0, 0.0, -50.0, -50.0, -50.0]], dtype=torch.float64)
    value = float(CrossEntropy()(logits, torch.tensor([0])))
    printed = phi_cross_entropy(float(logits[0, 1] - logits[0, 0]), count)
    assert printed > value + 0.5  # one summand: no lower bound
    total = float(logits[0].sum() - count * logits[0, 0])
    assert float(CrossEntropy().phi(total, count)) <= value
    smoothed = LabelSmoothing(0.2)
    assert float(smoothed.phi(0.0, count)) == pytest.approx(math.log(count), rel=1e-14)
    assert float(smoothed.phi_derivative(0.0, count)) == pytest.approx(0.8 / count, rel=1e-13)
    step, gamma, t = 1e-5, 2.0, -3.0
    slope = float(Focal(gamma).phi(t + step, count) - Focal(gamma).phi(t - step, count)) / (2 * step)
    xi = 1 + 4 * math.exp(t / 4)
    varsigma = (xi - 1) ** gamma / xi ** (gamma + 1) * (xi - 1 + gamma * math.log(xi))
    assert varsigma / 4 == pytest.approx(slope, rel=1e-8)
    assert abs(xi / 4 - slope) > 0.2


@pytest.mark.parametrize("count", [3, 10])
def test_15_NC2_NC3_need_a_root(count):
    """Printed: P/(K-1), which leaves 1 - 1/sqrt(K-1) at a perfect simplex. Right: P/sqrt(K-1)."""
    etf = frames.simplex_etf(count, count)
    gram = etf @ etf.T
    projector = torch.eye(count, dtype=torch.float64) - 1 / count
    printed = (gram / gram.norm() - projector / (count - 1)).norm()
    assert float(printed) == pytest.approx(1 - 1 / math.sqrt(count - 1), rel=1e-12)
    # What the package reports of collapsed features is the corrected distance, and so is what it reports of others.
    labels = torch.arange(count).repeat_interleave(3)
    report = nc.measure(2 * etf[labels], labels, etf)
    assert report.nc2 < 1e-12
    assert report.nc3 < 1e-12
    other = torch.randn(count, count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grams = {"nc2": other @ other.T, "nc3": other @ (etf - etf.mean(0)).T}
    report = nc.measure(2 * etf[labels], labels, other)
    for name, matrix in grams.items():
        expected = (matrix / matrix.norm() - projector / math.sqrt(count - 1)).norm()
        assert report[name] == pytest.approx(float(expected), rel=1e-10)


def test_16_equation_6_is_twice_the_mse_papers_4(generator):
    """kappa (z_k - beta)^2 + sum z_j^2 has no 1/2: the same optimum at half the decays, twice the value."""
    kappa, beta = 3.0, 2.0
    logits = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    true = logits.gather(1, labels[:, None])[:, 0]
    printed = kappa * (true - beta) ** 2 + logits.square().sum(1) - true**2
    loss = SquaredError(kappa, beta)
    assert float(printed.mean()) == pytest.approx(2 * float(loss(logits, labels)), rel=1e-13)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight, feature, bias = np.split(flat, [20, 40])
        weight, feature = weight.reshape(4, 5), feature.reshape(4, 5)
        residual = feature @ weight.T + bias - beta * np.eye(4)
        scale = np.where(np.eye(4) > 0, kappa, 1.0)
        slope = 2 * scale * residual / 4  # d/dz of eq. (6), mean over the four samples
        value = (scale * residual**2).sum() / 4 + 0.1 * (flat[:40] ** 2).sum() + 0.25 * (bias**2).sum()
        gradient = [
            slope.T @ feature + 0.2 * weight,
            slope @ weight + 0.2 * feature,
            slope.sum(0) + 0.5 * bias,
        ]
        return value, np.concatenate([block.ravel() for block in gradient])

    start = np.random.default_rng(0).standard_normal(44)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"gtol": 1e-10, "ftol": 0, "maxiter": 5000})
    halved = RegularizedUFM(loss, 4, 1, 5, 0.1, 0.1, 0.25).optimum().value
    assert found.fun == pytest.approx(2 * halved, rel=1e-9)
    assert abs(found.fun - RegularizedUFM(loss, 4, 1, 5, 0.2, 0.2, 0.5).optimum().value) > 0.05
