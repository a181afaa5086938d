"""Any targets: closed form, all critical points and both escape directions, against what does not know them."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from neuralcollapse.ufm import Problem, RegressionUFM, RegularizedUFM, solve
from reference import first_derivative


def targets(samples, outputs, seed=0):
    return torch.randn(samples, outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bias", [None, 0.0, 0.3])
@pytest.mark.parametrize(("samples", "outputs", "dim"), [(9, 3, 2), (6, 4, 5), (5, 1, 2), (4, 6, 3)])
def test_derivatives(samples, outputs, dim, bias):
    model = RegressionUFM(targets(samples, outputs), dim, 0.1, 0.2, bias)
    point, direction = model.random_point(1), model.random_point(2)
    slope = first_derivative(lambda t: model.value(point + t * direction))
    assert model.gradient(point).dot(direction) == pytest.approx(slope, rel=1e-8)
    bend = first_derivative(lambda t: model.gradient(point + t * direction).flatten())
    torch.testing.assert_close(model.hessian_vector(point, direction).flatten(), bend, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("bias", [None, 0.0])
@pytest.mark.parametrize(("samples", "outputs", "dim"), [(9, 3, 1), (9, 3, 2), (6, 4, 5), (5, 1, 2), (3, 6, 2)])
@pytest.mark.parametrize("decay", [0.01, 0.1, 5.0])
def test_optimum_against_scipy(samples, outputs, dim, bias, decay):
    model = RegressionUFM(2 * targets(samples, outputs) + 1, dim, decay, decay / 2, bias)
    optimum = model.optimum()
    assert model.value(optimum.point) == pytest.approx(optimum.value, rel=1e-13)
    assert model.gradient(optimum.point).norm() < 1e-12
    template = model.random_point(0)

    def objective(flat):
        state = model.linearize(template.like(torch.from_numpy(flat.copy())))
        return state.value, state.gradient.flatten().numpy()

    starts = [model.random_point(seed).flatten().numpy() for seed in range(4)]
    options = {"maxiter": 3000, "ftol": 1e-16, "gtol": 1e-11}
    best = min(minimize(objective, x, jac=True, method="L-BFGS-B", options=options).fun for x in starts)
    assert best == pytest.approx(optimum.value, rel=1e-9)
    assert best >= optimum.value * (1 - 1e-12)
    assert model.certify(optimum.point).verdict == "global minimum"
    assert optimum.weight_norm == pytest.approx(float(optimum.point.W.square().sum(1).mean().sqrt()), abs=1e-12)


@pytest.mark.parametrize("bias", [None, 0.0])
def test_one_hot_targets_are_the_squared_error(bias):
    counts = [5, 3, 2]
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    onehot = torch.nn.functional.one_hot(labels, 3)
    for dim in (1, 2, 6):
        regression = RegressionUFM(onehot, dim, 0.02, 0.01, bias)
        classes = RegularizedUFM("mse", 3, counts, dim, 0.02, 0.01, bias)
        assert regression.optimum().value == pytest.approx(classes.optimum().value, rel=1e-13)
        point = classes.random_point(0)
        assert regression.value(point) == pytest.approx(classes.value(point), rel=1e-13)


@pytest.mark.parametrize("bias", [None, 0.0])
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7])
def test_all_critical_points_and_both_escapes(dim, bias):
    model = RegressionUFM(targets(8, 4, 3), dim, 0.05, 0.02, bias)
    found = model.critical_points()
    usable = int((model.singular_values > 8 * model.mu).sum())
    assert usable == 4
    assert len(found) == sum(math.comb(4, k) for k in range(min(4, dim) + 1))
    assert sum(one.is_global for one in found) == 1
    assert found[0].is_global
    assert found[0].value == pytest.approx(model.optimum().value, rel=1e-14)
    cases = set()
    for one in found:
        assert model.value(one.point) == pytest.approx(one.value, rel=1e-13)
        assert model.gradient(one.point).norm() < 1e-13
        if one.is_global:
            continue
        cases.add(one.case)
        assert one.escape.norm() == pytest.approx(1)
        assert one.escape.dot(model.hessian_vector(one.point, one.escape)) == pytest.approx(one.curvature, rel=1e-10)
        assert one.curvature < 0
        assert model.value(one.point + 1e-2 * one.escape) < one.value
        certificate = model.certify(one.point)
        assert certificate.verdict == "strict saddle"
        assert certificate.curvature < 0
    assert cases == ({"Case I"} if dim >= 4 else {"Case I", "Case II"})


def test_a_saddle_without_a_null_vector_is_left():
    model = RegressionUFM(targets(8, 4, 3), 2, 0.05, 0.02)
    saddle = next(one for one in model.critical_points() if one.case == "Case II")
    assert torch.linalg.matrix_rank(saddle.point.W) == 2
    trace = solve(model, "trust-region", start=saddle.point, record=("value",))
    assert trace.value == pytest.approx(model.optimum().value, rel=1e-10)


def test_a_bias_with_a_decay_is_certified_by_duality():
    model = RegressionUFM(targets(8, 3, 1) + 1, 4, 0.05, 0.02, 0.3)
    with pytest.raises(NotImplementedError, match="bias_decay must be None or 0"):
        model.optimum()
    trace = solve(model, "lbfgs", tol=1e-10)
    assert trace.converged
    certificate = model.certify(trace.point)
    assert certificate.verdict == "global minimum"
    assert abs(certificate.gap) < 1e-11


def test_it_is_rebuilt_from_json():
    model = RegressionUFM([[1.0, 2.0], [3.0, 4.5]], 2, 0.1, 0.2, 0.0)
    assert Problem.from_json(model.to_json()) == model
    assert "targets 2 x 2" in repr(model)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([1.0, 2.0], ValueError, "targets must have shape"),
        ("abc", TypeError, "targets must be a matrix"),
        ([[1.0, float("nan")]], ValueError, "targets must be finite"),
        (np.zeros((0, 2)), ValueError, "targets must have shape"),
    ],
)
def test_bad_targets(given, error, words):
    with pytest.raises(error, match=words):
        RegressionUFM(given, 2, 0.1, 0.1)
