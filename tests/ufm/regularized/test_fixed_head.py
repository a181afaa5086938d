"""The optimum under a fixed simplex-ETF head, against a solver that moves the features alone."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from neuralcollapse import losses, ufm

LOSSES = ["ce", "label-smoothing:alpha=0.2", "focal:gamma=2", "mse", "mse:alpha=3,target=2"]


def free_features(loss, classifier, counts, decay, seed):
    """L-BFGS on H from a random start: value and H."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    kind = losses.get(loss)

    def objective(flat):
        features = torch.tensor(flat.reshape(len(labels), -1), requires_grad=True)
        value = kind(features @ classifier.T, labels) + decay / 2 * features.square().sum()
        (slope,) = torch.autograd.grad(value, features)
        return value.item(), slope.numpy().ravel()

    start = np.random.default_rng(seed).normal(size=len(labels) * classifier.shape[1])
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 0, "gtol": 1e-11})
    return found.fun, torch.tensor(found.x.reshape(len(labels), -1))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("counts", "dim", "decay", "norm"),
    [([5, 2, 1], 2, 1e-2, 1.0), ([1, 7, 2, 2], 5, 3e-3, 2.5), ([4, 1], 3, 0.1, 0.6), ([2, 2, 1, 1, 3], 4, 1e-4, 1.3)],
)
def test_no_features_are_better(loss, counts, dim, decay, norm):
    optimum = ufm.fixed_head_optimum(counts, dim, decay, norm, loss)
    classifier = optimum.point.classifier
    cosines = classifier @ classifier.T / norm**2
    expected = torch.full_like(cosines, -1 / (len(counts) - 1)).fill_diagonal_(1.0)
    assert torch.allclose(cosines, expected, atol=1e-12)
    found = [free_features(loss, classifier, counts, decay, seed) for seed in range(2)]
    value, features = min(found, key=lambda pair: pair[0])
    assert optimum.value == pytest.approx(value, rel=1e-9)
    assert float((optimum.point.H - features).norm()) < 1e-3 * float(features.norm())
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    logits = optimum.point.H @ classifier.T
    attained = float(losses.get(loss)(logits, labels)) + decay / 2 * float(optimum.point.H.square().sum())
    assert attained == pytest.approx(optimum.value, rel=1e-13)
    assert optimum.feature_norm == pytest.approx(float(optimum.point.H[0].norm()), rel=1e-12)
    assert optimum.logit_scale == pytest.approx(float(logits[0, 0] - logits[0, 1]), rel=1e-12)


def test_a_focal_loss_with_two_minima_in_the_margin_takes_the_lower():
    """Against a dense scan of the scalar objective, through the exchange of the two."""
    loss = losses.Focal(gamma=8)
    margins = np.linspace(0, 12, 200_001)
    for decay in np.geomspace(1e-6, 0.1, 23):
        found = ufm.fixed_head_optimum([3] * 30, 29, float(decay), 1.0, loss)
        curve = loss.margin_value(margins, 30) + 90 * decay * (29 / 30) ** 2 / 2 * margins**2
        assert found.value <= curve.min() + 1e-15
        assert found.value == pytest.approx(curve.min(), rel=1e-7)


def test_only_the_number_of_samples_matters():
    values = {ufm.fixed_head_optimum(counts, 3, 1e-3).value for counts in ([97, 1, 2], np.array([30, 30, 40]))}
    assert len(values) == 1
    assert ufm.fixed_head_optimum([97, 1, 3], 3, 1e-3).value not in values


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"counts": [3]}, ValueError, "counts must name at least 2 classes"),
        ({"counts": 3}, TypeError, "counts"),
        ({"counts": [3, 0, 1]}, ValueError, r"counts\[1\] must be at least 1"),
        ({"dim": 1}, ValueError, "dim must be at least 2"),
        ({"feature_decay": 0.0}, ValueError, "feature_decay must be greater than 0"),
        ({"row_norm": -1.0}, ValueError, "row_norm must be greater than 0"),
        ({"row_norm": math.nan}, ValueError, "row_norm must be finite"),
        ({"loss": losses.CrossEntropy(class_weights=[1.0, 2.0, 3.0])}, NotImplementedError, "fixed head"),
    ],
)
def test_what_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        ufm.fixed_head_optimum(**{"counts": [3, 2, 1], "dim": 4, "feature_decay": 0.1, **arguments})
