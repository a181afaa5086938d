"""Codes, SELI and one-versus-rest distances against programs that do not know the formulas."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from neuralcollapse import frames
from neuralcollapse.frames.codes import SHARP

cvxpy = pytest.importorskip("cvxpy")


def hull_distances(rows):
    """Distance of each row to the hull of the others, one quadratic program each."""
    result = []
    for k in range(len(rows)):
        others = np.delete(rows, k, axis=0)
        x = cvxpy.Variable(len(others), nonneg=True)
        problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(others.T @ x - rows[k])), [cvxpy.sum(x) == 1])
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
        result.append(math.sqrt(max(problem.value, 0.0)))
    return np.array(result)


@pytest.mark.parametrize(("classes", "dim", "seed"), [(2, 1, 0), (5, 3, 1), (8, 2, 2), (6, 9, 3), (15, 4, 4)])
@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e6])
def test_distances_are_those_of_quadratic_programs(classes, dim, seed, scale):
    rows = torch.randn(classes, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.5
    found = frames.one_vs_rest(scale * rows)
    np.testing.assert_allclose(found.distances.numpy() / scale, hull_distances(rows.numpy()), atol=2e-6)
    assert (found.lower_bounds <= found.distances).all()
    assert found.gap <= 1e-12 * scale * rows.norm()


def test_lower_bounds_hold_where_a_row_is_inside_the_hull_or_repeated():
    rows = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    found = frames.one_vs_rest(rows)
    assert found.distances[[0, 1, 4]].max() <= 1e-15
    assert (found.lower_bounds[[0, 1, 4]] == 0).all()
    assert found.lower_bounds[2] > 1
    same = frames.one_vs_rest(torch.ones(3, 2))
    assert float(same.distances.max()) == 0


def test_a_far_origin_costs_no_digits_and_large_numbers_do_not_overflow():
    rows = frames.simplex_etf(5, 6, 0)
    far = frames.one_vs_rest(rows + 1e6)
    np.testing.assert_allclose(far.distances, 1.25, rtol=1e-9)
    assert float(far.lower_bounds.max()) <= 1.25 * (1 + 1e-9)
    np.testing.assert_allclose(frames.one_vs_rest(1e200 * rows).distances, 1.25e200, rtol=1e-12)


@pytest.mark.parametrize(("classes", "dim"), SHARP)
def test_sharp_codes_have_their_distance(classes, dim):
    code = frames.softmax_code(classes, dim)
    assert code.shape == (classes, dim)
    np.testing.assert_allclose(code.norm(dim=1), 1, atol=1e-14)
    found = frames.one_vs_rest(code)
    np.testing.assert_allclose(found.distances, SHARP[classes, dim], atol=1e-13)
    assert found.gap < 1e-13


@pytest.mark.parametrize(
    ("classes", "dim"), [(2, 1), (4, 7), (4, 3), (5, 3), (6, 3), (9, 6), (11, 6), (3, 2), (5, 2), (9, 2), (5, 1)]
)
def test_closed_forms_of_the_distance(classes, dim):
    code = frames.softmax_code(classes, dim)
    known = frames.known_code_distance(classes, dim)
    assert code.shape == (classes, dim)
    assert frames.one_vs_rest(code).smallest == pytest.approx(known, abs=1e-13)
    # No random unit rows, and no step from the code, do better.
    generator = torch.Generator().manual_seed(3)
    for size in (1e-4, 1e-2, 10.0):
        rows = code + size * torch.randn(classes, dim, dtype=torch.float64, generator=generator)
        rows = rows / rows.norm(dim=1, keepdim=True)
        assert frames.one_vs_rest(rows).smallest <= known + 1e-12


@pytest.mark.parametrize(("classes", "dim", "cosine"), [(7, 3, 0.2101383), (8, 3, 0.2612039), (9, 3, 1 / 3)])
def test_the_search_finds_tammes_optimal_codes(classes, dim, cosine):
    """The known solutions of Tammes' problem for 7, 8 and 9 points on the sphere."""
    found = frames.one_vs_rest(frames.softmax_code(classes, dim))
    assert found.smallest == pytest.approx(1 - cosine, abs=1e-6)
    assert frames.known_code_distance(classes, dim) is None


def test_seeds_decide_the_search():
    assert torch.equal(frames.softmax_code(7, 3, seed=1), frames.softmax_code(7, 3, seed=1))


@pytest.mark.parametrize("counts", [(5, 3, 2), (20, 7, 3, 1), (4, 4, 4), (100, 1)])
@pytest.mark.parametrize("kind", ["plain", "scaled", "margins", "both"])
def test_seli_solves_the_nuclear_norm_program(counts, kind):
    """min |Z D^(1/2)|_* subject to the margins: the program whose solution SELI is, by Clarabel."""
    generator = np.random.default_rng(len(counts))
    classes = len(counts)
    delta = generator.uniform(0.5, 2, classes) if kind in ("scaled", "both") else np.ones(classes)
    margins = generator.uniform(0.5, 2, classes) if kind in ("margins", "both") else np.ones(classes)
    weight, means = frames.seli(
        np.array(counts), multiplicative=delta if kind in ("scaled", "both") else None,
        margins=margins if kind in ("margins", "both") else None, dim=classes + 1, seed=2,
    )  # fmt: skip
    logits = (means @ weight.T).numpy()
    for k in range(classes):
        for j in range(classes):
            if j != k:
                assert delta[k] * logits[k, k] - delta[j] * logits[k, j] == pytest.approx(margins[k], abs=1e-12)
    root = np.sqrt(np.array(counts, dtype=float))
    variable = cvxpy.Variable((classes, classes))
    constraints = [
        delta[k] * variable[k, k] - delta[j] * variable[k, j] >= margins[k]
        for k in range(classes)
        for j in range(classes)
        if j != k
    ]
    program = cvxpy.Problem(cvxpy.Minimize(cvxpy.normNuc(cvxpy.diag(root) @ variable)), constraints)
    program.solve(solver="CLARABEL")
    cost = (weight.square().sum() + (torch.tensor(counts)[:, None] * means.square()).sum()) / 2
    assert float(cost) == pytest.approx(program.value, rel=1e-6)
    assert np.linalg.svd(root[:, None] * logits, compute_uv=False).sum() == pytest.approx(float(cost), rel=1e-12)


def test_seli_of_equal_counts_is_a_simplex_and_so_is_the_classifier_of_root_margins():
    weight, means = frames.seli([6] * 5)
    for rows in (weight, means):
        assert frames.nearest_etf(rows).relative_distance < 1e-14
    weight, means = frames.seli([20, 7, 3, 1], margins=[n**-0.5 for n in (20, 7, 3, 1)])
    assert frames.nearest_etf(weight).relative_distance < 1e-14
    assert frames.nearest_etf(means).relative_distance > 0.1


def test_seli_is_the_limit_of_a_free_minimisation():
    """Least norm subject to margins, by a penalty method that knows nothing of the geometry."""
    counts, classes, dim = np.array([9.0, 3.0, 1.0]), 3, 3
    weight, _ = frames.seli(counts, dim)
    gram = weight @ weight.T

    def objective(flat, strength):
        w, m = (block.reshape(classes, dim) for block in np.split(flat, 2))
        z = m @ w.T
        short = np.maximum(0, 1 - (np.diag(z)[:, None] - z))
        np.fill_diagonal(short, 0)
        slope_z = -strength * short
        slope_z[np.diag_indices(classes)] = strength * short.sum(1)
        slope_z = -slope_z
        value = (w**2).sum() / 2 + (counts[:, None] * m**2).sum() / 2 + strength / 2 * (short**2).sum()
        return value, np.concatenate([(w + slope_z.T @ m).ravel(), (counts[:, None] * m + slope_z @ w).ravel()])

    start = np.random.default_rng(0).standard_normal(2 * classes * dim)
    for strength in (1e1, 1e2, 1e3, 1e4, 1e5, 1e6):
        start = minimize(objective, start, (strength,), jac=True, method="L-BFGS-B", options={"maxiter": 5000}).x
    w = start[: classes * dim].reshape(classes, dim)
    np.testing.assert_allclose(w @ w.T, gram, atol=2e-3)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: frames.seli([3]), ValueError, "counts must name at least 2 classes"),
        (lambda: frames.seli([3, 0]), ValueError, "counts must be positive and finite"),
        (lambda: frames.seli("ab"), TypeError, "counts must be a list, array or tensor"),
        (lambda: frames.seli([3, 2], multiplicative=[1.0]), ValueError, "multiplicative must be 2 numbers"),
        (lambda: frames.seli([3, 2, 1], margins=[1, math.nan, 1]), ValueError, "margins must be positive"),
        (lambda: frames.seli([3, 2, 1], dim=1), ValueError, "dim must be at least"),
        (lambda: frames.one_vs_rest(torch.zeros(1, 3)), ValueError, "K >= 2"),
        (lambda: frames.one_vs_rest(torch.full((3, 2), math.inf)), ValueError, "weight must be finite"),
        (lambda: frames.softmax_code(1, 2), ValueError, "num_classes must be at least 2"),
        (lambda: frames.softmax_code(5, 2, seed=-1), ValueError, "seed must be at least 0"),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
