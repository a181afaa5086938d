"""What the normalized paper's nets share: the two ways to keep features bounded, and the least possible losses."""

import math
from collections.abc import Iterator
from typing import Any, Literal

from ... import losses
from ..._support.registry import Spec
from ...training import Run
from ...ufm import NormalizedUFM
from .._common.plans import CODE, TEXT, as_in_text
from .._study import Profile

__all__ = [
    "CODE",
    "MODELS",
    "PROVENANCE",
    "REGULARIZED",
    "TEXT",
    "as_in_text",
    "epochs_to_fit",
    "least_loss",
    "least_loss_of_relu",
    "net_name",
    "normalized",
    "regularized",
    "released",
    "variants",
]

MODELS = ("normalized", "regularized")

PROVENANCE: dict[str, Literal["text", "code", "guess"]] = {
    "model, data, epochs": "text",
    "learning_rate, momentum, schedule, batch_size": "text",
    "no bias": "text",
    "init (PyTorch's default)": "code",
    "stem without pooling": "code",
    "variant: biases, no shuffling of the whole set": "code",
    "seeds": "guess",
}
REGULARIZED: dict[str, Literal["text", "code", "guess"]] = {
    "temperature, weight_decay, feature_decay": "text",
    "feature decay on the features of a batch": "code",
    "variant: unit rows of the regularised net": "code",
}
"""What a study adds that has regularised nets beside the normalised."""


def normalized(temperature: float = 1.0) -> dict[str, Any]:
    """Features on the sphere of radius tau, unit classifier rows, no bias, and no decay, as the paper names none."""
    return {"head": f"normalized:temperature={temperature:g}", "weight_decay": 0.0, "init": "torch"}


def regularized() -> dict[str, Any]:
    """Weight and feature decay 1e-4 and no bias: 1e-4/2 (|W|^2 + |H|^2) besides the mean loss of a batch.

    H are the features of the batch, as in the released code. With 1e-4 on the features of the whole set their decay
    outweighs the loss of a new net, which then does not learn.
    """
    decay = {"decay_on": "features", "weight_decay": 1e-4, "feature_decay": 1e-4, "feature_decay_over": "batch"}
    return {"head": "linear:bias=False", "init": "torch", **decay}


def released(model: str, changes: dict[str, Any], *, subset: bool) -> dict[str, Any]:
    """The same as the released code has it: the regularised net's rows are scaled to norm one too, both have a bias,
    and the whole set is never shuffled.
    """
    head = "linear:unit_rows=True" if model == "regularized" else changes["head"] + ",bias=True"
    return {**changes, "head": head, "shuffle": subset}


def variants(profile: Profile, model: str, *, subset: bool) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Head, decay and initialisation for one of :data:`MODELS`, with a label for the variant at the paper profile."""
    chosen = normalized() if model == "normalized" else regularized()
    if profile != "paper":
        yield chosen, {}
        return
    yield chosen, {"variant": TEXT}
    yield released(model, chosen, subset=subset), {"variant": CODE}


def net_name(net: str, separator: str = ", ") -> str:
    """``resnet18:width=8`` as "ResNet18, width 8"."""
    spec = Spec.parse(net, "net")
    sizes = [f"{name} {size}" for name, size in spec.arguments.items()]
    return separator.join([spec.name.replace("resnet", "ResNet"), *sizes[:1]])


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
