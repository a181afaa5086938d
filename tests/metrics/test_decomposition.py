"""The three parts of the squared error against the loss over all samples and a least-squares solver."""

import numpy as np
import pytest
import torch

from neuralcollapse.metrics import ClassStatistics, squared_error_parts


def sample(seed, counts=(30, 12, 20), d=5):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), counts)
    H = rng.normal(size=(len(counts), d))[y] + 0.3 * rng.normal(size=(len(y), d)) + 0.4
    statistics = ClassStatistics(len(counts), d)
    statistics.update(torch.tensor(H), torch.tensor(y))
    return H, y, rng.normal(size=(len(counts), d)), rng.normal(size=len(counts)), statistics


def loss(H, y, W, b, decay):
    outputs = H @ W.T + (0 if b is None else b)
    size = (W**2).sum() + (0 if b is None else (b**2).sum())
    return ((outputs - np.eye(len(W))[y]) ** 2).sum() / (2 * len(y)) + decay / 2 * size


@pytest.mark.parametrize("decay", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("biased", [True, False])
def test_parts_add_up_and_the_best_classifier_is_a_solvers(decay, biased):
    H, y, W, b, statistics = sample(0)
    b = b if biased else None
    parts = squared_error_parts(
        statistics, torch.tensor(W), None if b is None else torch.tensor(b), decay=decay
    )  # fmt: skip
    assert parts.loss == pytest.approx(loss(H, y, W, b, decay), rel=1e-12)
    assert parts.nc1 + parts.nc23 + parts.perp == pytest.approx(parts.loss, rel=1e-11)
    X = np.hstack([H, np.ones((len(H), 1))]) if biased else H
    stacked = np.vstack([X, np.sqrt(decay * len(H)) * np.eye(X.shape[1])])
    targets = np.vstack([np.eye(len(W))[y], np.zeros((X.shape[1], len(W)))])
    best = np.linalg.lstsq(stacked, targets, rcond=None)[0].T
    assert np.allclose(parts.weight.numpy(), best[:, : H.shape[1]], rtol=1e-9, atol=1e-11)
    assert (parts.bias is None) == (b is None)
    least = loss(H, y, best[:, : H.shape[1]], best[:, -1] if biased else None, decay)
    assert parts.nc1 + parts.nc23 == pytest.approx(least, rel=1e-10)
    M = np.stack([X[y == k].mean(0) for k in range(len(W))])
    share = np.bincount(y) / len(y)
    assert parts.nc23 == pytest.approx((share * ((M @ best.T - np.eye(len(W))) ** 2).sum(1)).sum() / 2, rel=1e-9)


def test_collapsed_features_cost_nothing_within_classes():
    _, _, W, b, _ = sample(1)
    frame = np.linalg.qr(np.random.default_rng(2).normal(size=(5, 5)))[0][:3]
    statistics = ClassStatistics(3, 5)
    y = torch.arange(3).repeat_interleave(4)
    statistics.update(torch.tensor(frame)[y], y)
    parts = squared_error_parts(statistics, torch.tensor(W), torch.tensor(b))
    assert parts.nc1 == pytest.approx(0.0, abs=1e-14)
    assert parts.nc23 == pytest.approx(0.0, abs=1e-14)
    assert parts.perp == pytest.approx(parts.loss, rel=1e-12)


@pytest.mark.unchecked
def test_bad_input_is_named():
    *_, statistics = sample(3)
    W = torch.zeros(3, 5)
    with pytest.raises(TypeError, match="statistics must be ClassStatistics"):
        squared_error_parts("no", W)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="decay must be at least 0"):
        squared_error_parts(statistics, W, decay=-1.0)
    with pytest.raises(ValueError, match="passes=1"):
        squared_error_parts(ClassStatistics(3, 5, passes=2), W)
    with pytest.raises(ValueError, match="no samples"):
        squared_error_parts(ClassStatistics(3, 5), W)
