"""The lowest eigenvalues of the Hessian, against dense ones from autograd of an objective written out here."""

import pytest
import torch

from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, Point, RegressionUFM, RegularizedUFM, spectrum


def euclidean(model, point):
    """All eigenvalues of the regularised model's Hessian, by autograd."""

    def objective(flat):
        classifier, features, *bias = torch.split(flat, [block.numel() for block in point.blocks])
        logits = features.view_as(point.H) @ classifier.view_as(point.W).T + (bias[0] if bias else 0.0)
        value = torch.nn.functional.cross_entropy(logits, model.labels)
        value = value + model.weight_decay / 2 * classifier.square().sum()
        value = value + model.feature_decay / 2 * features.square().sum()
        return value + model.bias_decay / 2 * bias[0].square().sum() if bias else value

    return torch.linalg.eigvalsh(torch.autograd.functional.hessian(objective, point.flatten()))


def spherical(model, point):
    """All eigenvalues on the tangent space: the Hessian of the objective after each row is scaled to unit norm.

    Near a unit point x -> x/|x| is the retraction of second order, so on tangent directions this is the Riemannian one.
    """

    def objective(flat):
        rows = torch.nn.functional.normalize(flat.view(-1, model.dim))
        classifier, features = rows[: model.num_classes], rows[model.num_classes :]
        return torch.nn.functional.cross_entropy(model.temperature * features @ classifier.T, model.labels)

    matrix = torch.autograd.functional.hessian(objective, point.flatten())
    rows = torch.cat(point.blocks)
    normals = torch.block_diag(*rows).T
    tangent = torch.linalg.svd(normals)[0][:, len(rows) :]
    return torch.linalg.eigvalsh(tangent.T @ matrix @ tangent)


@pytest.mark.parametrize("limit", [1000, 10])
@pytest.mark.parametrize("bias", [None, 0.3])
def test_regularised_model(limit, bias, monkeypatch):
    monkeypatch.setattr(spectrum, "DENSE_LIMIT", limit)
    model = RegularizedUFM("ce", 4, [3, 2, 2, 1], 5, 0.02, 0.03, bias)
    point = model.random_point(0)
    torch.testing.assert_close(model.hessian_spectrum(point), euclidean(model, point)[:6], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("limit", [1000, 10])
def test_repeated_eigenvalues_are_repeated(limit, monkeypatch):
    """At zero, and at the optimum with its flat directions, nearly all eigenvalues are multiple."""
    monkeypatch.setattr(spectrum, "DENSE_LIMIT", limit)
    model = RegularizedUFM("ce", 4, 5, 6, 0.02, 0.003)
    zero = Point(torch.zeros(4, 6).double(), torch.zeros(20, 6).double())
    for point, count in ((zero, 25), (model.optimum().point, 14), (model.optimum().point, 40)):
        expected = euclidean(model, point)[:count]
        torch.testing.assert_close(model.hessian_spectrum(point, count=count), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("limit", [1000, 10])
def test_spheres(limit, monkeypatch):
    monkeypatch.setattr(spectrum, "DENSE_LIMIT", limit)
    model = NormalizedUFM("ce", 4, 3, 4, temperature=2.0)
    for point in (model.random_point(1), model.optimum().point):
        expected = spherical(model, point)[:9]
        torch.testing.assert_close(model.hessian_spectrum(point, 9), expected, rtol=1e-7, atol=1e-9)


def test_all_of_a_small_spectrum_and_no_more():
    model = NormalizedUFM("ce", 2, 1, 3, temperature=2.0)
    point = model.random_point(1)
    torch.testing.assert_close(model.hessian_spectrum(point, count=8), spherical(model, point))
    with pytest.raises(ValueError, match="count must be at most 8, got 9"):
        model.hessian_spectrum(point, count=9)
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        model.hessian_spectrum(point, count=0)


def test_a_certified_saddle_shows_a_negative_eigenvalue_and_a_minimum_none():
    for model in (ContrastiveUFM(3, 2, 4, 1.5), RegressionUFM(torch.eye(3).double().tolist(), 3, 0.01, 0.02)):
        assert float(model.hessian_spectrum(model.optimum().point)[0]) > -1e-9
    model = RegularizedUFM("ce", 3, 4, 3, 0.01, 0.01)
    zero = Point(torch.zeros(3, 3).double(), torch.zeros(12, 3).double())
    curvature = model.certify(zero).curvature
    assert curvature is not None
    assert float(model.hessian_spectrum(zero, 1)[0]) <= curvature * (1 - 1e-9) < 0
