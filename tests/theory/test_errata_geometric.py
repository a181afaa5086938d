"""Errata of "A Geometric Analysis of Neural Collapse with Unconstrained Features" (geometric).

Rows 11 and 13 of the table (the Gram matrix of rows, the ratio of the norms) are slips of both this paper and
losses; they are tested in test_errata_losses.py. Arrays have samples in rows; G is the gradient of the mean
loss in the logits.
"""

import math

import numpy as np
import pytest
import torch

from neuralcollapse.losses import CrossEntropy, Focal, LabelSmoothing
from neuralcollapse.ufm import Point, RegularizedUFM
from theory.solve import hessian_matrix, minimise

COUNT, SAMPLES = 4, 2


def saddle(loss, rank: int, dim: int, bias_decay: float | None = None) -> tuple[RegularizedUFM, Point]:
    """A critical point of rank ``rank``: a minimiser in R^rank, padded by zeros."""
    arguments = {"weight_decay": 0.03, "feature_decay": 0.01, "bias_decay": bias_decay}
    found = minimise(RegularizedUFM(loss, COUNT, SAMPLES, rank, **arguments), 0)
    pad = torch.nn.functional.pad
    point = Point(pad(found.point.W, (0, dim - rank)), pad(found.point.H, (0, dim - rank)), found.point.b)
    problem = RegularizedUFM(loss, COUNT, SAMPLES, dim, **arguments)
    assert problem.gradient(point).norm() < 1e-8
    return problem, point


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_28_E1_balance_of_the_factors(rank):
    """Printed: W'W = sqrt(lH/lW) HH'. Right: lH/lW, at every critical point (as Lemma D.2 says)."""
    _, point = saddle(CrossEntropy(), rank, 5)
    left, right = point.W.T @ point.W, point.H.T @ point.H
    assert (left - 0.01 / 0.03 * right).norm() < 1e-7
    assert (left - math.sqrt(0.01 / 0.03) * right).norm() > 0.1 * left.norm()


def escape(problem: RegularizedUFM, point: Point) -> tuple[Point, float]:
    """geometric, after (39): the direction from the top singular vectors of G, and |G|."""
    state = problem.linearize(point)
    left, singular, right = torch.linalg.svd(state.logit_gradient, full_matrices=False)
    null = torch.linalg.eigh(point.W.T @ point.W)[1][:, 0]
    ratio = (problem.feature_decay / problem.weight_decay) ** 0.25
    bias = None if point.b is None else torch.zeros_like(point.b)
    return Point(ratio * torch.outer(right[0], null), -torch.outer(left[:, 0], null) / ratio, bias), float(singular[0])


def along(problem: RegularizedUFM, point: Point, direction: Point) -> tuple[float, float]:
    """First and second derivative of the value along ``direction``, by differences of fourth order."""
    step = 0.02
    values = np.array([problem.value(point + direction * (i * step)) for i in range(-2, 3)])
    first = np.array([1, -8, 0, 8, -1]) @ values / (12 * step)
    return float(first), float(np.array([-1, 16, -30, 16, -1]) @ values / (12 * step**2))


@pytest.mark.parametrize("bias_decay", [None, 0.0, 0.1])
def test_29_E1_four_slips_around_the_escape_direction(bias_decay):
    """Printed: Z = HW; singular vectors of the Hessian of g; grad f[D, D]; b > 0.

    In the paper's shapes, W (K, d) and H (d, N), only WH exists; u in R^K and v in R^N are singular vectors
    of the gradient (the Hessian is no K x N matrix); it is the second derivative equal to -2 (|G| - mu), the
    first is zero; and b has entries of both signs.
    """
    problem, point = saddle(CrossEntropy(), 1, 5, bias_decay)
    features = point.H.T
    assert (point.W @ features).shape == (COUNT, problem.num_samples)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        features @ point.W
    direction, norm = escape(problem, point)
    first, second = along(problem, point, direction)
    expected = -2 * (norm - problem.mu)
    assert expected < -0.01
    assert abs(first) < 1e-7
    assert second == pytest.approx(expected, rel=1e-4)
    assert direction.dot(problem.hessian_vector(point, direction)) == pytest.approx(expected, rel=1e-8)
    if point.b is not None:
        assert float(point.b.min()) < -0.01
    certificate = problem.certify(point)
    assert certificate.verdict == "strict saddle"
    assert certificate.curvature == pytest.approx(expected / direction.norm() ** 2, rel=1e-6)


@pytest.mark.parametrize("loss", [CrossEntropy(), LabelSmoothing(0.2)])
def test_30_theorem_E1_needs_only_d_at_least_K(loss):
    """Printed: d > K. Right: d >= K: 1'W = 0 at every critical point, so W has a null vector already."""
    for rank in (1, 2):
        problem, point = saddle(loss, rank, COUNT)
        assert float(point.W.sum(0).norm()) < 1e-7
        direction, norm = escape(problem, point)
        assert norm > problem.mu * 1.01
        assert float((point.H @ direction.W.T).norm()) < 1e-7
        assert along(problem, point, direction)[1] < -1e-3
        assert problem.certify(point).verdict == "strict saddle"
    # Every start ends at the global minimum.
    narrow = RegularizedUFM(loss, COUNT, SAMPLES, COUNT, 0.03, 0.01)
    for seed in range(4):
        found = minimise(narrow, seed, scale=0.3)
        assert found.value == pytest.approx(narrow.optimum().value, abs=1e-10)
        assert float(found.point.W.sum(0).norm()) < 1e-6


def test_31_lemma_E4_needs_a_convex_loss():
    """Printed (and used for the focal loss): |G| <= mu at a critical point makes it global."""
    loss = Focal(3.0)
    transition = loss.transition(30)
    s = 0.6 * transition.zero_stable_above + 0.4 * transition.exchange
    problem = RegularizedUFM(loss, 30, 1, 30, s, s)
    zero = problem.random_point(0) * 0.0
    state = problem.linearize(zero)
    assert state.gradient.norm() == 0
    assert float(torch.linalg.matrix_norm(state.logit_gradient, 2)) < problem.mu
    assert problem.optimum().value < state.value - 1e-3
    certificate = problem.certify(zero)
    assert certificate.spectral_ratio < 1
    assert certificate.verdict == "undecided"
    assert certificate.gap > 1e-3
    # For a convex loss the test is right: it fails exactly where zero is no minimum.
    for decay, passes in ((0.2, False), (0.3, True)):
        convex = RegularizedUFM(CrossEntropy(), 4, 1, 4, decay, decay)
        origin = convex.random_point(0) * 0.0
        lowest = float(np.linalg.eigvalsh(hessian_matrix(convex, origin))[0])
        assert (convex.certify(origin).spectral_ratio <= 1) is passes
        assert (lowest >= 0) is passes
        assert (convex.optimum().regime == "zero") is passes


@pytest.mark.parametrize("learned", [25, 28])
def test_31_partly_collapsed_focal_minima_pass_lemma_E4(learned):
    """Local minima that learn only some of the classes have |G| = mu, yet a value above the global one."""
    loss, count = Focal(3.0), 30
    transition = loss.transition(count)
    s = 0.1 * transition.zero_stable_above + 0.9 * transition.exchange
    problem = RegularizedUFM(loss, count, 1, count, s, s)
    rows = torch.zeros(count, count, dtype=torch.float64)
    block = torch.eye(learned, dtype=torch.float64) - 1 / learned
    rows[:learned, :learned] = math.sqrt(problem.optimum().logit_scale) * block
    found = minimise(problem, Point(rows, rows.clone()))
    assert found.gradient_norm < 1e-9
    assert int((found.point.W.norm(dim=1) > 0.3).sum()) == learned
    assert found.value > problem.optimum().value + 1e-4
    norm = torch.linalg.matrix_norm(problem.linearize(found.point).logit_gradient, 2)
    assert float(norm) / problem.mu == pytest.approx(1, abs=1e-8)
    assert problem.certify(found.point).verdict == "undecided"
