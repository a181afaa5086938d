"""Optima for any counts against solves that do not know them, Clarabel, and their own certificates."""

import math

import numpy as np
import pytest
import torch

from neuralcollapse import frames, losses
from neuralcollapse.losses import CrossEntropy, LogitAdjusted, VectorScaling
from neuralcollapse.ufm import RegularizedUFM, solve

cvxpy = pytest.importorskip("cvxpy")

EXAMPLES = [
    (("mse", 3, [5, 3, 2], 6, 0.02, 0.01, None), 0.073117674030),
    (("mse", 3, [5, 3, 2], 6, 0.02, 0.01, 0.0), 0.047396356141),
    (("ce", 5, [100, 100, 100, 10, 10], 6, 0.001, 0.0005, 0.0), 0.1165107649751),
    (("ce", 5, [100, 100, 100, 10, 10], 6, 0.001, 0.0005, None), 0.1296170005484),
]


@pytest.mark.parametrize(("arguments", "value"), EXAMPLES)
def test_the_sheets_examples(arguments, value):
    assert RegularizedUFM(*arguments).optimum().value == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("bias", [None, 0.0, 0.05])
@pytest.mark.parametrize("loss", ["ce", "ls:alpha=0.2", "mse", "mse:alpha=3,target=2"])
@pytest.mark.parametrize("counts", [(7, 7, 2), (9, 4, 2, 1), (3, 30)])
def test_clarabel_finds_the_same_minimum(loss, counts, bias):
    """The convex program in the class logits, written for cvxpy from the model's definition."""
    classes, total = len(counts), sum(counts)
    decays = 0.6 * math.sqrt(min(counts)) / total, 0.5 * math.sqrt(min(counts)) / total
    logits = cvxpy.Variable((classes, classes))
    shift = cvxpy.Variable(classes)
    parts = []
    chosen = losses.get(loss)
    for k, n in enumerate(counts):
        row = logits[k] + (shift if bias is not None else 0)
        if isinstance(chosen, losses.SquaredError):
            wrong = sum(cvxpy.square(row[j]) for j in range(classes) if j != k)
            parts.append(n / total * (chosen.alpha * cvxpy.square(row[k] - chosen.target) + wrong) / 2)
        else:
            target = np.full(classes, chosen.smoothing / classes)
            target[k] += 1 - chosen.smoothing
            parts.append(n / total * (cvxpy.log_sum_exp(row) - target @ row))
    nuclear = cvxpy.normNuc(np.diag(np.sqrt(counts)) @ logits)
    objective = sum(parts) + math.sqrt(math.prod(decays)) * nuclear
    if bias:
        objective = objective + bias / 2 * cvxpy.sum_squares(shift)
    program = cvxpy.Problem(cvxpy.Minimize(objective))
    program.solve(solver="CLARABEL")
    optimum = RegularizedUFM(loss, classes, counts, classes, *decays, bias).optimum()
    assert optimum.proved
    assert optimum.value == pytest.approx(program.value, abs=3e-7)


def random_problem(generator):
    """Counts, decays, sizes, losses and biases of all kinds, never balanced."""
    classes = int(generator.integers(2, 7))
    kind = generator.integers(3)
    if kind == 0:
        counts = generator.integers(1, 40, classes)
    elif kind == 1:
        counts = generator.choice(generator.integers(1, 60, 2), classes)
    else:
        counts = np.round(100 * 0.5 ** np.arange(classes)).clip(1).astype(int)
    if len(set(counts.tolist())) == 1:
        counts[0] += 1
    mu = math.sqrt(generator.choice(counts)) / counts.sum() * 10 ** generator.uniform(-3, 0.4)
    balance = 10 ** generator.uniform(-1, 1)
    bias = [None, 0.0, 10 ** generator.uniform(-4, 2)][generator.integers(3)]
    loss = str(generator.choice(["ce", "ls:alpha=0.1", "ls:alpha=0.4", "mse", "mse:alpha=3,target=2"]))
    dim = int(generator.integers(1, classes + 3))
    return RegularizedUFM(loss, classes, counts, dim, mu * balance, mu / balance, bias)


@pytest.mark.unchecked
def test_no_solve_beats_a_proved_optimum_and_its_certificate_closes():
    generator = np.random.default_rng(7)
    regimes = set()
    for _ in range(60):
        problem = random_problem(generator)
        try:
            optimum = problem.optimum()
        except NotImplementedError:
            assert problem.dim < problem.num_classes
            continue
        assert optimum.proved
        certificate = problem.certify(optimum.point)
        assert abs(certificate.gap) <= 1e-12 * optimum.value
        assert certificate.value == pytest.approx(optimum.value, rel=1e-13)
        assert certificate.verdict == "global minimum"
        found = solve(problem, "lbfgs", seed=1, tol=1e-8, max_iter=300, record=())
        assert found.value >= optimum.value * (1 - 1e-11)
        regimes.add(optimum.regime)
    assert {"convex program", "imbalanced collapse", "zero", "low rank"} <= regimes


@pytest.mark.parametrize("bias", [None, 0.0, 0.02])
@pytest.mark.parametrize("loss", ["ce", "ls:alpha=0.1", "mse"])
def test_nearly_equal_counts_tend_to_the_balanced_optimum(loss, bias):
    """A thousandth more samples in one class changes the value by about a thousandth, in the same direction field."""
    sizes = 4, 6
    scale = 1000
    near = RegularizedUFM(loss, sizes[0], [scale, scale, scale, scale + 1], sizes[1], 0.01, 1e-5, bias).optimum()
    equal = RegularizedUFM(loss, sizes[0], scale, sizes[1], 0.01, 1e-5, bias).optimum()
    assert near.value == pytest.approx(equal.value, rel=2e-3)
    assert near.logit_scale == pytest.approx(equal.logit_scale, rel=2e-3)
    assert near.weight_norm == pytest.approx(equal.weight_norm, rel=2e-3)
    torch.testing.assert_close(near.weight_gram, equal.weight_gram, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("bias", [None, 0.0, 0.3])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_two_groups_agree_with_the_program(smoothing, bias):
    """The closed form against the convex program, on both sides of every threshold, K = 2 included."""
    generator = np.random.default_rng(3)
    from neuralcollapse.ufm.regularized.convex_program import convex_program_optimum

    regimes = set()
    for sizes in ((1, 1), (1, 3), (3, 1), (2, 3)):
        for _ in range(3):
            counts = [int(n) for n in generator.integers(1, 50, 2)]
            counts[1] += counts[0] == counts[1]
            per_class = [counts[0]] * sizes[0] + [counts[1]] * sizes[1]
            mu = math.sqrt(generator.choice(counts)) / sum(per_class) * 10 ** generator.uniform(-2, 0.3)
            problem = RegularizedUFM(f"ls:alpha={smoothing}", sum(sizes), per_class, sum(sizes), mu, mu, bias)
            closed, program = problem.optimum(), convex_program_optimum(problem)
            assert closed.value == pytest.approx(program.value, rel=1e-12)
            assert problem.value(closed.point) == pytest.approx(closed.value, rel=1e-13)
            torch.testing.assert_close(closed.weight_gram, program.weight_gram, rtol=1e-5, atol=1e-6)
            regimes.add(closed.regime)
    assert "imbalanced collapse" in regimes


@pytest.mark.parametrize("bias", [1e-17, 1e-13, 1e-8, 1.0, 1e5, 1e9, 1e13])
@pytest.mark.parametrize("size", [0.1, 0.5, 0.9, 1.5])
def test_two_groups_for_every_size_of_the_bias_decay(bias, size):
    """From nearly free to nearly none: bias and contrasts keep their digits."""
    for per_class, loss in (
        ([9] * 4 + [2] * 4, "ce"),
        ([3] * 4 + [1] * 3, "ls:alpha=0.1"),
        ([44, 44, 9], "ls:alpha=0.9"),
    ):
        mu = size * math.sqrt(max(per_class)) / sum(per_class)
        problem = RegularizedUFM(loss, len(per_class), per_class, 8, mu, mu, bias)
        optimum = problem.optimum()
        assert problem.value(optimum.point) == pytest.approx(optimum.value, rel=1e-13)
        assert problem.gradient(optimum.point).norm() < 1e-7
        assert problem.certify(optimum.point).gap < 1e-13 * optimum.value


@pytest.mark.parametrize("bias", [None, 0.0, 0.1])
@pytest.mark.parametrize("loss", ["ce", "ls:alpha=0.2"])
def test_minority_collapse_at_exactly_the_predicted_count(loss, bias):
    for excess, learned in ((0.999, (0, 1, 2)), (1.001, (0, 1, 2, 3, 4))):
        counts = [40, 40, 40, 6, 6]
        slack = 1 - losses.get(loss).smoothing
        mu = math.sqrt(6 / excess) / sum(counts) * slack
        problem = RegularizedUFM(loss, 5, counts, 6, mu, mu, bias)
        assert problem.count_threshold() == pytest.approx(6 / excess, rel=1e-12)
        assert problem.learned_classes() == learned
        assert problem.optimum().regime == ("minority collapse" if excess < 1 else "imbalanced collapse")
        found = solve(problem, "trust-region", seed=0, tol=1e-12).point
        probabilities = torch.softmax(found.H[[120, 126]] @ found.W.T + (0 if found.b is None else found.b), 1)
        gap = max(0.0, slack - sum(counts) * mu / math.sqrt(6))
        assert float(probabilities[0, 3] - probabilities[0, 4]) == pytest.approx(gap, abs=1e-6)


def gaps_at(problem):
    """p_k(k) - p_k(k') of the first two classes, at a solve."""
    point = solve(problem, "trust-region", seed=0, tol=1e-12).point
    logits = point.H[[0, problem.counts[0]]] @ point.W.T
    if point.b is not None:
        logits = logits + point.b
    if isinstance(problem.loss, LogitAdjusted):
        logits = logits + problem.loss.strength * torch.tensor(problem.loss.prior).log()
    p = torch.softmax(logits, 1)
    return float(p[0, 0] - p[0, 1]), float(p[1, 1] - p[1, 0])


@pytest.mark.parametrize(
    ("decay", "learned", "regime"),
    [(0.01, 3, "imbalanced collapse"), (0.05, 2, "minority collapse"), (0.1, 0, "zero")],
)
def test_the_squared_error_learns_a_class_up_to_its_own_decay(decay, learned, regime):
    """Class k has the logit M - N mu / sqrt(n_k) as long as that is positive: mu = sqrt(40)/84 = .075, 2/84 = .024."""
    problem = RegularizedUFM("squared-error", 3, (40, 40, 4), 5, decay, decay)
    optimum = problem.optimum()
    assert optimum.regime == regime
    logits = optimum.point.H @ optimum.point.classifier.T
    own = logits[torch.arange(84), problem.labels]
    counts = torch.tensor(problem.counts, dtype=torch.float64)[problem.labels]
    torch.testing.assert_close(own, (1 - 84 * decay / counts.sqrt()).clamp(min=0), atol=1e-10, rtol=0)
    assert int((optimum.point.classifier.norm(dim=1) > 1e-8).sum()) == learned


@pytest.mark.parametrize("bias", [None, 0.0])
@pytest.mark.parametrize("kind", ["weights", "adjusted", "both"])
def test_the_gap_law_with_weights_and_adjustment(kind, bias):
    """p_k(k) - p_k(k') = max(0, 1 - N mu/(omega_k sqrt n_k)) for two classes of equal count and weight."""
    counts, weight = [8, 8, 30, 3], 1.7
    inner = CrossEntropy([weight, weight, 0.4, 3.0]) if kind != "adjusted" else CrossEntropy()
    loss = inner if kind == "weights" else LogitAdjusted(inner, [1.0, 1.0, 5.0, 0.2])
    omega = 1.0 if kind == "adjusted" else weight
    for mu in (0.01, 0.04):
        problem = RegularizedUFM(loss, 4, counts, 5, mu, mu, bias)
        wanted = max(0.0, 1 - sum(counts) * mu / (omega * math.sqrt(8)))
        assert gaps_at(problem) == pytest.approx((wanted, wanted), abs=1e-7)
        optimum = problem.optimum()
        assert optimum.proved
        assert optimum.regime == "convex program"
        assert abs(problem.certify(optimum.point).gap) <= 1e-12 * optimum.value


def test_inverse_frequency_weights_turn_the_threshold_round():
    """With weights N/(K n_k) the *large* classes collapse first: n_k >= 1/(K mu)^2."""
    counts = [50, 50, 50, 2, 2]
    weights = [sum(counts) / (5 * n) for n in counts]
    problem = RegularizedUFM(CrossEntropy(weights), 5, counts, 6, 0.04, 0.04)
    thresholds = problem.count_threshold()
    assert [n > threshold for n, threshold in zip(counts, thresholds, strict=True)] == [False] * 3 + [True] * 2
    assert all((n >= 1 / (5 * 0.04) ** 2) == (n == 50) for n in counts)
    assert problem.learned_classes() == (3, 4)


def test_vector_scaling_has_a_certified_optimum():
    problem = RegularizedUFM(VectorScaling([0.5, 1.0, 2.0], [0.3, 0.0, -0.4]), 3, [9, 4, 2], 4, 0.01, 0.01, 0.0)
    optimum = problem.optimum()
    assert optimum.proved
    assert solve(problem, "lbfgs", seed=3, tol=1e-9).value == pytest.approx(optimum.value, rel=1e-12)


def test_vanishing_decay_tends_to_seli_at_the_slow_rate_of_the_sheet():
    counts = [20, 7, 3, 1]
    weight, _ = frames.seli(counts)
    limit = weight @ weight.T
    limit /= limit.norm()
    distances = []
    for decay in (1e-3, 1e-5, 1e-7, 1e-9):
        gram = RegularizedUFM("ce", 4, counts, 5, decay, decay).optimum().weight_gram
        distances.append(float((gram / gram.norm() - limit).norm()))
    assert distances == pytest.approx([0.103, 0.061, 0.043, 0.033], abs=6e-4)


def test_long_tail_of_a_hundred_classes():
    counts = [round(500 * (5 / 500) ** (k / 99)) for k in range(100)]
    problem = RegularizedUFM("ce", 100, counts, 128, 5e-4, 5e-4, 0.0)
    optimum = problem.optimum()
    assert optimum.proved
    assert optimum.regime == "convex program"
    assert abs(problem.certify(optimum.point).gap) <= 1e-12 * optimum.value


def test_the_rank_deficient_squared_error_is_certified():
    problem = RegularizedUFM("mse", 4, [12, 5, 2, 1], 2, 0.01, 0.01)
    certificate = problem.certify(problem.optimum().point)
    assert certificate.verdict == "global minimum"
    assert certificate.bound_source == "closed form"
    best = min(solve(problem, "trust-region", seed=seed, tol=1e-10).value for seed in range(4))
    assert best == pytest.approx(problem.optimum().value, rel=1e-12)


@pytest.mark.unchecked
def test_counts_may_be_a_list_array_or_tensor():
    wanted = RegularizedUFM("ce", 3, [5, 3, 2], 4, 0.01, 0.01)
    for counts in (np.array([5, 3, 2]), torch.tensor([5, 3, 2]), (5, 3, 2)):
        assert RegularizedUFM("ce", 3, counts, 4, 0.01, 0.01) == wanted
    with pytest.raises(ValueError, match="per_class must name 3 counts"):
        RegularizedUFM("ce", 3, np.array([5, 3]), 4, 0.01, 0.01)
    with pytest.raises(TypeError, match=r"per_class\[1\] must be an integer"):
        RegularizedUFM("ce", 3, [5, 2.5, 1], 4, 0.01, 0.01)


@pytest.mark.parametrize("loss", ["focal:gamma=3", "mse:alpha=2"])
def test_what_is_not_known_is_refused(loss):
    with pytest.raises(NotImplementedError, match="no closed form is known"):
        RegularizedUFM(loss, 4, [9, 4, 2, 1], 1, 0.001, 0.001).optimum()
