"""Section 3.1 and footnote 2 of the mse paper: the bias decides the frame under the squared error, not under CE."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from ...training import Run
from ...ufm import RegularizedUFM, Trace
from .._cells import Solve, Train
from .._common.geometric_and_mse import (
    CLASSES,
    CODE,
    FLOOR,
    MARGIN_METRICS,
    MEAN_OVER_CLASSES,
    TEXT,
    as_in_text,
    net_plan,
)
from .._common.seeds import fits, known
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, AtMost, Claim, Evidence
from ..pictures import Figure, figure, loss_name

SQUARED, ENTROPY = "squared-error", "cross-entropy"
CASES = {
    "squared-with": (SQUARED, True, "simplex"),
    "squared-without": (SQUARED, False, "orthogonal"),
    "entropy-with": (ENTROPY, True, "simplex"),
    "entropy-without": (ENTROPY, False, "simplex"),
}
"""Loss, whether there is a bias, and the frame that the classifier takes."""
FRAMES = {"simplex": "a simplex ETF", "orthogonal": "an orthogonal frame"}
SOLVED = {"method": "lbfgs", "options": {"tol": 1e-12, "max_iter": 5000, "record": ["value", "nc1"]}}


def _setting_in_words(loss: str, bias: bool) -> str:
    return (
        f"With {'the squared error' if loss == SQUARED else 'cross-entropy'} {'and' if bias else 'but without'} a bias"
    )


@studies.add("mse/bias")
class Bias(Study):
    """The unconstrained model, and nets, with and without a bias in the classifier.

    What is measured is the distance of the classifier's Gram matrix, scaled to norm one, from the frame that theory
    names; in nets, how much farther it is from the other one.
    """

    figures = ("footnote 2",)
    question = "Does the bias decide whether classifiers form a simplex ETF or an orthogonal frame?"
    claims = (
        *(
            Claim(
                f"model-{name}",
                f"{_setting_in_words(loss, bias)} the classifier that minimises the unconstrained model forms "
                f"{FRAMES[frame]} (largest distance over the starts).",
                "Section 3.1, footnote 2" if loss == SQUARED else "Section 1.1, Section 3.1",
                AtMost(1e-6),
                unit="distance",
            )
            for name, (loss, bias, frame) in CASES.items()
        ),
        *(
            Claim(
                name,
                f"{_setting_in_words(loss, bias)} a net's classifier is nearer to {FRAMES[frame]}.",
                "our reading for nets: the paper states the minimisers of the model",
                Above(0.0),
                kind="ours",
                floor=FLOOR,
                decides_at="more epochs of the same nets",
                unit="distance gained over the other frame",
            )
            for name, (loss, bias, frame) in CASES.items()
        ),
    )
    costs = {"smoke": "3 s", "desk": "10 min of one core", "paper": "2 GPU days"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs.",
        "desk": "The model with 10 classes of 10 samples in 16 dimensions, solved by L-BFGS from random starts. A "
        "4 x 256 MLP with batch norm on 2,000 CIFAR10 images of 16 x 16, 200 epochs of cosine annealing (400 "
        "with cross-entropy): the nets of mse/optimizers (SGD), with and without a bias.",
        "paper": "ResNet18 (stem with stride and pooling) on CIFAR10 without augmentation, 200 epochs. The paper "
        "states theorems and runs no such nets; the released code of the geometric paper has runs with and without a "
        "bias. A variant has the squared error as a mean over classes.",
    }
    provenance = {
        "theorem for the unconstrained model": "text",
        "nets with and without bias, mean over classes": "code",
        "sizes and decays of the model": "guess",
        "seeds": "guess",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        data = "digits" if profile == "smoke" else "CIFAR10"
        for seed in self.seeds(profile):
            for loss, bias, _ in CASES.values():
                model = RegularizedUFM(loss, CLASSES, 10, 16, 5e-3, 5e-3, 0.0 if bias else None)
                labels = {"what": "model", "loss": loss, "bias": bias, "seed": seed}
                yield Planned(Solve(model, SOLVED["method"], seed, SOLVED["options"]), labels)
            for loss, bias, _ in CASES.values():
                both = profile == "paper" and loss == SQUARED
                for variant, changes in ({TEXT: {}, CODE: MEAN_OVER_CLASSES} if both else {TEXT: {}}).items():
                    head = "linear" if bias else "linear:bias=False"
                    plan = net_plan(profile, data, loss, head=head, metrics=MARGIN_METRICS, seed=seed, **changes)
                    labels = {"loss": loss, "bias": bias, "seed": seed}
                    if profile == "paper":
                        labels["variant"] = variant
                    yield Planned(Train(plan, features=True), labels)

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        found = {}
        nets, models = _trained_nets(results), _solved_models(results)
        for name, (loss, bias, frame) in CASES.items():
            ends = [frame_distances(entry.value)[frame] for entry in models.where(loss=loss, bias=bias)]
            if ends:
                found[f"model-{name}"] = Evidence.exact(max(ends), why=f"The largest of {len(ends)} starts.")
            mine = nets.where(loss=loss, bias=bias)
            if not len(mine):
                continue
            apart = [frame_distances(entry.value) for entry in mine]
            other = next(one for one in FRAMES if one != frame)
            means = ", ".join(f"{np.mean([d[one] for d in apart]):.3f} from {words}" for one, words in FRAMES.items())
            gains = [distances[other] - distances[frame] for distances in apart]
            found[name] = Evidence(gains, floor_met=fits(mine), why=f"Mean distances: {means}.")
        return found

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = super().table(results)
        for row, entry in zip(rows, results, strict=True):
            row |= {f"distance_from_{name}": known(value) for name, value in frame_distances(entry.value).items()}
        return rows

    def draw(self, results: Results) -> Figure:
        picture, axes = figure(1, len(CASES), size=(1.75, 1.9))
        mine = _trained_nets(results)
        drawn: Any = None
        for axis, (loss, bias, _) in zip(axes[0], CASES.values(), strict=True):
            run = mine.where(loss=loss, bias=bias)[0].value
            drawn = axis.imshow(gram(run), cmap="coolwarm", vmin=-0.4, vmax=0.4)
            apart = frame_distances(run)
            text = "\n".join(f"{name} {value:.2f}" for name, value in apart.items())
            axis.set_title(f"{loss_name(loss)}, {'bias' if bias else 'no bias'}")
            axis.set_xlabel(f"distance:\n{text}")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.grid(False)
        picture.colorbar(drawn, ax=axes[0].tolist(), aspect=25, pad=0.02, label="Gram matrix of W, norm 1")
        return picture


def _trained_nets(results: Results) -> Results:
    return as_in_text(results).select(lambda entry: isinstance(entry.value, Run))


def _solved_models(results: Results) -> Results:
    return results.select(lambda entry: isinstance(entry.value, Trace))


def gram(found: Run | Trace) -> np.ndarray:
    """W W' of the classifier of a net or of a solved model, scaled to Frobenius norm one."""
    if isinstance(found, Trace):
        weight = found.point.classifier.numpy()
    else:
        weight = load_file(found.folder / "features-train.safetensors")["weight"].astype(np.float64)
    product = weight @ weight.T
    with np.errstate(invalid="ignore"):  # a classifier that vanished is at no distance from anything
        return product / np.linalg.norm(product)


def frame_distances(run: Run | Trace) -> dict[str, float]:
    """Frobenius distances of the classifier's Gram matrix from (I - 11'/K)/sqrt(K-1) and I/sqrt(K)."""
    found = gram(run)
    count = len(found)
    simplex = (np.eye(count) - 1 / count) / np.sqrt(count - 1)
    return {
        "simplex": float(np.linalg.norm(found - simplex)),
        "orthogonal": float(np.linalg.norm(found - np.eye(count) / np.sqrt(count))),
    }
