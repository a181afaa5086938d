"""What the normalized paper's nets share: the two ways to keep features bounded, and the least possible losses."""

import math
from typing import Any

from ... import losses
from ...training import Run
from ...ufm import NormalizedUFM

__all__ = ["MODELS", "epochs_to_fit", "least_loss", "least_loss_of_relu", "model_settings", "normalized", "regularized"]

MODELS = ("normalized", "regularized")


def normalized(temperature: float = 1.0) -> dict[str, Any]:
    """Features on the sphere of radius tau, unit classifier rows, no bias, and no decay, as the paper names none."""
    return {"head": f"normalized:temperature={temperature:g}", "weight_decay": 0.0}


def regularized(samples: int, batch_size: int) -> dict[str, Any]:
    """Weight and feature decay 1e-4 and no bias: 1e-4/2 (|W|^2 + |H|^2) besides the mean loss of a batch.

    H are the features of the batch, B of the N samples, as in the released code; hence B/N times 1e-4 in the terms of a
    plan, which means all features. With 1e-4 on all of them their decay outweighs the loss of a new net, which then
    does not learn.
    """
    share = batch_size / samples
    return {"head": "linear:bias=False", "decay_on": "features", "weight_decay": 1e-4, "feature_decay": 1e-4 * share}


def model_settings(model: str, samples: int, batch_size: int) -> dict[str, Any]:
    """Head, decay and batch size of a plan for one of :data:`MODELS`."""
    chosen = normalized() if model == "normalized" else regularized(samples, batch_size)
    return {**chosen, "batch_size": batch_size}


def least_loss(num_classes: int, temperature: float) -> float:
    """Cross-entropy's minimum over unit features and classifiers, log(1 + (K-1) exp(-K tau/(K-1))) (Theorem 1)."""
    return NormalizedUFM(losses.CrossEntropy(), num_classes, 1, num_classes, temperature).optimum().value


def least_loss_of_relu(num_classes: int, temperature: float) -> float:
    """The same over features without negative entries, as a ReLU gives: log(1 + (K-1) exp(-tau sqrt(K/(K-1)))).

    By convexity the loss is at least that of the mean margin, which is tau K/(K-1) times the mean over the classes of
    <h_k - h_G, w_k>, with h_k the class means. This is at most sqrt(mean |h_k|^2 - |h_G|^2), and as no inner product is
    negative, |h_G|^2 is at least mean |h_k|^2 / K. Orthogonal unit class means and an ETF of classifiers attain it.
    """
    margin = temperature * math.sqrt(num_classes / (num_classes - 1))
    return math.log1p((num_classes - 1) * math.exp(-margin))


def epochs_to_fit(run: Run, accuracy: float) -> float:
    """The first measured epoch with this training accuracy; infinite if there is none."""
    epochs, values = run.curve("accuracy")
    return next((float(e) for e, value in zip(epochs, values, strict=True) if value and value >= accuracy), math.inf)
