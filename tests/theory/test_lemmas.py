"""Lemmas of the papers that the code uses or could use, as properties of random problems."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar

from neuralcollapse.losses import CrossEntropy, Focal, LabelSmoothing, SquaredError
from neuralcollapse.ufm import NormalizedUFM, Point, RegularizedUFM, solve
from theory.solve import hessian_matrix, minimise

pytestmark = pytest.mark.unchecked

seeds = st.integers(0, 10**6)
few = settings(max_examples=40, deadline=None)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


# mse ------------------------------------------------------------------------------------------------------------------


def shifted_targets(bias: np.ndarray, samples: int) -> np.ndarray:
    """Singular values of Y - b 1', from the largest to the smallest."""
    count = len(bias)
    return np.linalg.svd(np.kron(np.eye(count), np.ones(samples)) - bias[:, None], compute_uv=False)


@given(st.integers(2, 7), st.integers(1, 4), seeds, st.floats(1e-3, 3))
@few
def test_mse_lemma_b3_singular_values_of_shifted_targets(count, samples, seed, size):
    """K - 2 of them are sqrt(n), the largest obeys (25), whatever the bias."""
    bias = size * unit(normal(seed, count))
    values = shifted_targets(bias, samples)
    assert sum(abs(value - math.sqrt(samples)) < 1e-9 for value in values) >= count - 2
    total = bias.sum()
    least = max(math.sqrt(1 + count * (bias @ bias - total**2 / count)), abs(1 - total))
    assert values[0] >= math.sqrt(samples) * least - 1e-9


@given(st.integers(2, 7), st.integers(1, 4), seeds, st.floats(0.01, 1))
@few
def test_mse_lemma_b3_on_spheres_of_the_bias(count, samples, seed, share):
    """(26) for |b| = c <= 1/sqrt(K): both bounds are reached along the ones, and only there."""
    size, root = share / math.sqrt(count), math.sqrt(samples)
    least = root * (1 - math.sqrt(count) * size)
    values = shifted_targets(size * unit(normal(seed, count)), samples)
    assert values[0] >= root - 1e-9
    assert values[-1] >= least - 1e-9
    along = shifted_targets(np.full(count, size / math.sqrt(count)), samples)
    assert along[0] == pytest.approx(root)
    assert along[-1] == pytest.approx(least, abs=1e-9)
    across = np.zeros(count)
    across[:2] = size / math.sqrt(2), -size / math.sqrt(2)
    assert shifted_targets(across, samples)[0] > root * (1 + 0.1 * size**2)


@given(
    st.integers(2, 6),
    st.integers(1, 5),
    st.floats(1e-4, 0.3),
    st.floats(1e-4, 0.3),
    st.floats(0.01, 3),
    st.sampled_from([-1, 0, 2]),
)
@example(4, 3, 0.01, 0.01, 0.5, 0)
@few
def test_mse_12_and_13_the_problem_in_the_norm_of_the_bias(count, samples, weight, feature, bias_decay, extra):
    """Minimised over c = |b|, with (11) for the other singular values, it gives the optimum and its bias."""
    total, dim = count * samples, count + extra
    level = total * math.sqrt(weight * feature)

    def shrunk(value: float) -> float:  # (11)
        return value**2 / 2 if value <= level else level * value - level**2 / 2

    assume(level < math.sqrt(samples))  # otherwise nothing is learned
    rest = (count - 1) * shrunk(math.sqrt(samples)) / total

    def reduced(c: float) -> float:
        last = math.sqrt(samples) * (1 - math.sqrt(count) * c)
        own = last**2 / 2 if dim < count else shrunk(last)
        return bias_decay / 2 * c**2 + own / total + rest

    found = minimize_scalar(reduced, bounds=(0, 1 / math.sqrt(count)), method="bounded", options={"xatol": 1e-10})
    problem = RegularizedUFM(SquaredError(), count, samples, dim, weight, feature, bias_decay)
    optimum = problem.optimum()
    assert found.fun == pytest.approx(optimum.value, rel=1e-7, abs=1e-10)
    inner = 1 / (math.sqrt(count) * (bias_decay + 1))
    edge = (1 - level / math.sqrt(samples)) / math.sqrt(count)
    outer = level / (bias_decay * math.sqrt(total))
    expected = (
        inner
        if dim < count
        else (max(inner, edge) if reduced(max(inner, edge)) <= reduced(min(outer, edge)) else min(outer, edge))
    )
    assert reduced(expected) == pytest.approx(found.fun, rel=1e-9, abs=1e-13)
    assert optimum.point.b is not None
    assert float(optimum.point.b.norm()) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("bias_decay", [0.01, 1.0])
@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_descents_with_a_bias_and_few_dimensions_reach_the_closed_form(dim, bias_decay):
    """Believed after Theorem 3.3, which asks for d > K: all starts end at the optimum, and lower ranks are saddles."""
    problem = RegularizedUFM("mse", 4, 2, dim, 0.02, 0.03, bias_decay)
    best = problem.optimum().value
    for seed in range(4):
        assert minimise(problem, seed).value == pytest.approx(best, rel=1e-10)
    if dim > 1:
        lower = minimise(RegularizedUFM("mse", 4, 2, dim - 1, 0.02, 0.03, bias_decay), 0)
        pad = torch.nn.functional.pad
        point = Point(pad(lower.point.W, (0, 1)), pad(lower.point.H, (0, 1)), lower.point.b)
        assert problem.gradient(point).norm() < 1e-8
        if lower.value > best * (1 + 1e-9):
            assert np.linalg.eigvalsh(hessian_matrix(problem, point))[0] < -1e-3


# losses ---------------------------------------------------------------------------------------------------------------


@given(st.integers(2, 7), seeds, st.floats(-5, -0.01))
@few
def test_losses_lemma_3_diagonal_plus_rank_one(size, seed, tau):
    """Case 1: eigenvalues are the roots of w and interlace. Cases 2 and 3: what stays where it was."""
    draw = np.random.default_rng(seed)
    diagonal = np.sort(draw.uniform(0, 5, size))[::-1] + 0.3 * np.arange(size)[::-1]
    vector = draw.choice([-1, 1], size) * draw.uniform(0.3, 2, size)
    values = np.linalg.eigvalsh(np.diag(diagonal) + tau * np.outer(vector, vector))[::-1]
    assert (diagonal > values).all()
    assert (values[:-1] > diagonal[1:]).all()
    lows = np.append(diagonal[1:], diagonal[-1] + tau * vector @ vector - 1)
    for value, low, high in zip(values, lows, diagonal, strict=True):
        root = brentq(lambda x: 1 + tau * (vector**2 / (diagonal - x)).sum(), low + 1e-12, high - 1e-12, xtol=1e-13)
        assert value == pytest.approx(root, abs=1e-9)
    vector[0] = 0  # case 2
    kept = np.linalg.eigvalsh(np.diag(diagonal) + tau * np.outer(vector, vector))
    smaller = np.linalg.eigvalsh(np.diag(diagonal[1:]) + tau * np.outer(vector[1:], vector[1:]))
    assert np.allclose(kept, np.sort([*smaller, diagonal[0]]))
    equal = np.full(size, 2.0)  # case 3
    values = np.linalg.eigvalsh(np.diag(equal) + tau * np.outer(vector, vector))
    assert np.allclose(values[1:], 2.0)
    assert values[0] == pytest.approx(2 + tau * vector @ vector)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_losses_lemma_4_two_valued_spectra(count):
    """Among all patterns of sizes 0, 1, 2 and signs: one nonzero singular value exactly in the two stated cases."""
    centred = np.eye(count) - 1 / count
    for rho in itertools.product((-2.0, -1.0, 0.0, 1.0, 2.0), repeat=count):
        sizes = np.sort(np.abs(rho))[::-1]
        if not sizes[0]:
            continue
        values = np.linalg.svd(centred * rho, compute_uv=False)
        nonzero = values[values > 1e-9]
        flat = bool(np.ptp(nonzero) < 1e-9)
        equal, single = sizes[0] == sizes[-1], not sizes[1]
        assert flat == (equal or single), rho
        if flat:
            assert nonzero[0] == pytest.approx(sizes[0] * (1 if equal else math.sqrt((count - 1) / count)))


@given(st.integers(2, 9), seeds, st.floats(0.1, 20))
@few
def test_losses_section_3_1_the_best_logits_on_a_sphere(count, seed, radius):
    """z_k = sqrt((K-1)/K), z_j = -1/sqrt(K(K-1)): most contrast, and the least cross-entropy, of all on the sphere."""
    best = np.full(count, -1 / math.sqrt(count * (count - 1)))
    best[0] = math.sqrt((count - 1) / count)
    assert best @ best == pytest.approx(1)
    other = unit(normal(seed, count))

    def contrast(z: np.ndarray) -> float:
        return (count - 1) * z[0] - z[1:].sum()

    assert contrast(best) >= contrast(other) - 1e-12
    assert contrast(best) == pytest.approx(math.sqrt(count * (count - 1)))
    label = torch.tensor([0])
    for loss in (CrossEntropy(), LabelSmoothing(0.0)):
        least = float(loss(torch.tensor(radius * best)[None], label))
        assert least <= float(loss(torch.tensor(radius * other)[None], label)) + 1e-12


def probability_at_optimum(gamma: float, count: int, decay: float) -> float:
    """p_y of every sample at the closed form's global minimum."""
    problem = RegularizedUFM(Focal(gamma), count, 1, count, decay, decay)
    optimum = problem.optimum()
    assert optimum.regime == "neural collapse"
    point = optimum.point
    logits = point.H @ point.W.T
    own = torch.softmax(logits, 1).diagonal()
    assert float(own.max() - own.min()) < 1e-9
    return float(own[0])


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0, 5.0])
@pytest.mark.parametrize("count", [3, 10, 30, 100])
def test_losses_corollary_2_minimisers_lie_where_the_focal_loss_is_convex(gamma, count):
    """At every collapsed minimum p_y >= p_inf, the exact edge; at ordinary decay p_y >= .21, the printed one."""
    transition = Focal(gamma).transition(count)
    edge = transition.exchange
    for share in (0.01, 0.1, 0.5, 0.9, 0.999):
        assert probability_at_optimum(gamma, count, share * edge) >= Focal(gamma).convex_from
    assert probability_at_optimum(gamma, count, 0.1 * edge) > 0.21


def test_losses_corollary_2_the_printed_region_misses_minimisers_near_the_threshold():
    edge = Focal(3.0).transition(10).exchange
    assert probability_at_optimum(3.0, 10, 0.999 * edge) < 0.21


# normalized -----------------------------------------------------------------------------------------------------------


def slopes(problem: NormalizedUFM, point: Point) -> tuple[np.ndarray, np.ndarray]:
    """tau alpha_k and tau beta_i of (19): the radial parts of the Euclidean gradient, by automatic differentiation."""
    w, h = point.W.clone().requires_grad_(), point.H.clone().requires_grad_()
    CrossEntropy()(problem.temperature * h @ w.T, problem.labels).backward()
    return (w * w.grad).detach().sum(1).numpy(), (h * h.grad).detach().sum(1).numpy()


@given(st.integers(2, 5), st.integers(1, 4), st.integers(2, 6), st.floats(0.1, 20), seeds)
@few
def test_normalized_lemma_1_one_feature_a_class_is_enough(count, samples, dim, tau, seed):
    """(11): the value is the mean over i of those with one feature a class, the i-th; equal ones attain the least."""
    problem, single = (NormalizedUFM("ce", count, n, dim, tau) for n in (samples, 1))
    point = problem.random_point(seed)
    parts = [Point(point.W, point.H[i::samples]) for i in range(samples)]  # rows of H are sorted by class
    values = [single.value(part) for part in parts]
    assert problem.value(point) == pytest.approx(np.mean(values), rel=1e-12)
    best = parts[int(np.argmin(values))]
    repeated = Point(point.W, best.H.repeat_interleave(samples, 0))
    assert problem.value(repeated) == pytest.approx(min(values), rel=1e-12)
    assert min(values) >= single.optimum().value - 1e-12


@given(st.integers(3, 6), st.integers(1, 3), st.floats(0.5, 5), seeds)
@settings(max_examples=15, deadline=None)
def test_normalized_lemma_2_critical_points_beside_collapse(count, samples, tau, seed):
    """(20), H'G_k = alpha_k w_k and W'g_i = beta_i h_i, at saddles (ends of descents in a plane) and not elsewhere."""
    plane = NormalizedUFM("ce", count, samples, 2, tau)
    end = solve(plane, "trust-region", seed=seed, tol=1e-11, record=()).point
    problem = NormalizedUFM("ce", count, samples, 4, tau)
    saddle = Point(*(torch.nn.functional.pad(rows, (0, 2)) for rows in (end.W, end.H)))

    def off(point: Point) -> float:
        p = torch.softmax(tau * point.H @ point.W.T, 1)
        g = (p - torch.nn.functional.one_hot(problem.labels, count)) / len(p)
        pairs = ((g.T @ point.H, point.W), (g @ point.W, point.H))
        return max(float((pull - (pull * rows).sum(1, keepdim=True) * rows).norm()) for pull, rows in pairs)

    assert off(saddle) < 1e-9
    assert problem.value(saddle) > problem.optimum().value - 1e-12
    assert off(problem.random_point(seed)) > 1e-3


@given(st.integers(2, 5), st.integers(1, 4), st.integers(2, 6), st.floats(0.1, 20), seeds)
@few
def test_normalized_lemma_4_the_multipliers_have_equal_sums(count, samples, dim, tau, seed):
    problem = NormalizedUFM("ce", count, samples, dim, tau)
    alpha, beta = slopes(problem, problem.random_point(seed))
    assert alpha.sum() == pytest.approx(beta.sum(), rel=1e-10, abs=1e-13)


@given(st.integers(2, 5), st.integers(1, 3), st.integers(2, 6), st.floats(0.1, 10), seeds)
@few
def test_normalized_lemma_5_a_zero_multiplier_needs_equal_classifiers(count, samples, dim, tau, seed):
    """At a critical point W g_i is along h_i: beta_i = 0 asks for W g_i = 0. But w_y is not orthogonal to W g_i.

    -<w_y, W g_i> = sum_j p_j (1 - <w_j, w_y>)/N, which is positive unless all w_j are equal.
    """
    problem = NormalizedUFM("ce", count, samples, dim, tau)
    point = problem.random_point(seed)
    p = torch.softmax(tau * point.H @ point.W.T, 1)
    g = (p - torch.nn.functional.one_hot(problem.labels, count)) / len(p)
    pulls = g @ point.W
    own = point.W[problem.labels]
    expected = (p * (1 - own @ point.W.T)).sum(1) / len(p)
    assert torch.allclose(-(pulls * own).sum(1), expected, atol=1e-14)
    spread = float((1 - own @ point.W.T).max())
    assert float(pulls.norm(dim=1).min()) > 0 or spread < 1e-12
    same = Point(point.W[:1].expand(count, -1).clone(), point.H)
    assert np.abs(slopes(problem, same)[1]).max() < 1e-14


@given(st.integers(3, 7), st.integers(1, 30), st.integers(2, 6), seeds, st.floats(0.01, 0.999))
@few
def test_normalized_lemma_6_a_direction_that_few_features_share(dim, total, count, seed, share):
    """The two smallest eigenvalues of H'H leave a unit a with <a, w> = 0 and |H a|^2 < Gamma, for the printed tau."""
    odd = 1 + count % 2 / count
    tau = share * 2 * (dim - 2) / odd
    features, w = unit(normal(seed, total, dim)), unit(normal(seed + 1, dim))
    _, vectors = np.linalg.eigh(features.T @ features)
    plane = vectors[:, :2]
    inside = plane.T @ w
    a = plane @ unit(np.array([-inside[1], inside[0]]))
    assert abs(a @ w) < 1e-12
    assert float(((features @ a) ** 2).sum()) < 2 * total / (tau * odd + 2)


# geometric ------------------------------------------------------------------------------------------------------------


def intercept(c: float, count: int) -> float:
    """c_2 of Lemmas D.3 and D.5."""
    return (math.log((1 + c) * (count - 1)) + c * math.log((1 + c) / c)) / (1 + c)


@given(st.integers(2, 8), seeds, st.floats(0.01, 30), st.floats(1e-3, 1e3))
@few
def test_geometric_lemma_d5_for_every_constant(count, seed, size, c):
    """CE(z) >= (sum z - K z_k)/((1 + c)(K - 1)) + c_2, with equality for equal wrong logits and the c of (34)."""
    z = size * normal(seed, count)
    loss = float(CrossEntropy()(torch.tensor(z)[None], torch.tensor([0])))
    slope = (z.sum() - count * z[0]) / (count - 1)
    assert loss >= slope / (1 + c) + intercept(c, count) - 1e-10
    level = np.array([0.3 * size / 10, *([-0.7 * size / 10] * (count - 1))])
    slope = (level.sum() - count * level[0]) / (count - 1)
    best = 1 / ((count - 1) * math.exp(slope))
    loss = float(CrossEntropy()(torch.tensor(level)[None], torch.tensor([0])))
    assert loss == pytest.approx(slope / (1 + best) + intercept(best, count), rel=1e-9)


@pytest.mark.parametrize("bias_decay", [None, 0.05])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_geometric_lemma_d3_at_critical_points(rank, bias_decay):
    """g(WH + b) >= -rho sqrt(lW/(lH n))/((1 + c)(K - 1)) + c_2 at saddles and minima, for every c."""
    count, samples, weight, feature = 4, 3, 0.03, 0.01
    found = minimise(RegularizedUFM(CrossEntropy(), count, samples, rank, weight, feature, bias_decay), 0)
    assert found.gradient_norm < 1e-8
    point = found.point
    logits = point.H @ point.W.T + (0 if point.b is None else point.b)
    loss = float(CrossEntropy()(logits, torch.arange(count).repeat_interleave(samples)))
    slope = float(point.W.square().sum()) * math.sqrt(weight / (feature * samples)) / (count - 1)
    bounds = [-slope / (1 + c) + intercept(c, count) for c in np.geomspace(1e-4, 1e4, 400)]
    assert loss >= max(bounds) - 1e-9
    if rank == count - 1:  # the global minimum: the bound is reached
        assert loss == pytest.approx(max(bounds), abs=1e-3)
    else:
        assert loss > max(bounds) + 1e-3


@given(
    st.integers(2, 6), st.integers(1, 4), st.integers(0, 2), st.floats(1e-4, 0.02), st.floats(1e-4, 0.02),
    st.floats(0.01, 2),
)  # fmt: skip
@few
def test_geometric_lemma_e3_conditions_of_the_convex_program(count, samples, extra, weight, feature, bias_decay):
    """(40) at the closed form: G V = -mu U, G'U = -mu V, |G| <= mu and sum G + lb b = 0."""
    problem = RegularizedUFM(CrossEntropy(), count, samples, count + extra, weight, feature, bias_decay)
    optimum = problem.optimum()
    assume(optimum.regime == "neural collapse")
    point, mu = optimum.point, math.sqrt(weight * feature)
    logits = (point.H @ point.W.T + point.b).detach().requires_grad_()
    CrossEntropy()(logits, problem.labels).backward()
    slope = logits.grad.T.numpy()
    left, sizes, right = np.linalg.svd((point.H @ point.W.T).T.numpy(), full_matrices=False)
    kept = sizes > 1e-8 * sizes[0]
    left, right = left[:, kept], right[kept].T
    assert np.abs(slope @ right + mu * left).max() < 1e-8 * mu
    assert np.abs(slope.T @ left + mu * right).max() < 1e-8 * mu
    assert np.linalg.norm(slope, 2) <= mu * (1 + 1e-8)
    assert np.abs(slope.sum(1) + bias_decay * point.b.numpy()).max() < 1e-10
