"""Decompositions where LAPACK's divide and conquer gives up, as it does on the means of some collapsed features."""

import numpy as np
import pytest
import torch

import neuralcollapse as nc
from neuralcollapse._support.numerics import eigh, svd, svdvals


@pytest.fixture
def giving_up(monkeypatch):
    """torch's decompositions end as they end on such matrices."""

    def give_up(*_args, **_options):
        raise torch.linalg.LinAlgError("linalg.svd: The algorithm failed to converge")

    for name in ("svd", "svdvals", "eigh"):
        monkeypatch.setattr(torch.linalg, name, give_up)


@pytest.fixture
def matrix():
    """Nine equal singular values and one of zero: centred means of collapsed classes."""
    frame = torch.as_tensor(np.linalg.qr(np.random.default_rng(0).normal(size=(14, 10)))[0])
    return 3 * (frame - frame.mean(1, keepdim=True))


@pytest.mark.parametrize("full", [False, True])
def test_a_singular_value_decomposition_all_the_same(matrix, giving_up, full):
    left, values, right = svd(matrix, full_matrices=full)
    assert left.shape == (14, 14 if full else 10)
    torch.testing.assert_close(left[:, :10] @ torch.diag(values) @ right, matrix, atol=1e-13, rtol=0)
    torch.testing.assert_close(left.T @ left, torch.eye(left.shape[1], dtype=torch.float64), atol=1e-13, rtol=0)
    np.testing.assert_allclose(values, [3] * 9 + [0], atol=1e-13)
    np.testing.assert_allclose(svdvals(matrix), values, atol=1e-13)
    assert svd(matrix.float())[1].dtype == torch.float32


def test_eigenvalues_all_the_same(matrix, giving_up):
    values, vectors = eigh(matrix.T @ matrix)
    np.testing.assert_allclose(values, [0] + [9] * 9, atol=1e-12)
    torch.testing.assert_close(vectors @ torch.diag(values) @ vectors.T, matrix.T @ matrix, atol=1e-12, rtol=0)


def test_what_is_not_finite_has_none(giving_up):
    for decompose in (svd, svdvals, eigh):
        with pytest.raises(torch.linalg.LinAlgError):
            decompose(torch.full((3, 3), float("nan"), dtype=torch.float64))


def test_collapsed_features_are_measured_all_the_same(matrix, monkeypatch, request):
    labels = torch.arange(10).repeat_interleave(5)
    features = matrix.T[labels] + 1e-3 * torch.randn(50, 14, generator=torch.Generator().manual_seed(0)).double()
    usual = nc.measure(features, labels, matrix.T, metrics="all")
    request.getfixturevalue("giving_up")
    again = nc.measure(features, labels, matrix.T, metrics="all")
    assert again.to_dict()["nc1"] == pytest.approx(usual.nc1, rel=1e-9)
    assert again["vci"] == pytest.approx(usual["vci"], rel=1e-9)


def test_certificates_do_not_stop_there(giving_up):
    model = nc.ufm.RegularizedUFM("ce", 4, [9, 9, 2, 2], 6, 0.01, 0.01)
    assert model.certify(model.optimum().point).verdict == "global minimum"
