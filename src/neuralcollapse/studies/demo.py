"""The study behind ``neuralcollapse demo``: four losses, one net, the embedded digits, and the matching models.

It is not one of the papers' figures, so it is not registered among them.
"""

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from .._support.files import write_json
from .._support.numerics import svd
from ..data import load
from ..frames import simplex_etf
from ..models import create
from ..training import Plan, Progress, checkpoint_path, closed_form_loss, measured_epochs, read_checkpoint, train
from ..ufm import RegularizedUFM
from ._cells import Report, Solve, Train
from ._common.plans import METRICS
from ._results import Planned, Results
from ._study import Profile, Study
from .claims import AtLeast, AtMost, Claim, Evidence
from .pictures import GREY, Figure, colour, figure, legend_below, loss_name, series

__all__ = ["LOSS_WORDS", "NUM_CLASSES", "WATCHED", "Demo", "WatchedTrain", "sizes"]

DECAYS: dict[str, Any] = {"weight_decay": 0.01, "feature_decay": 5e-5, "bias_decay": 0.0}
SPECS = ("cross-entropy", "focal:gamma=3", "label-smoothing:alpha=0.1", "squared-error")
LOSS_WORDS = {
    "cross-entropy": "cross-entropy",
    "focal:gamma=3": "focal loss",
    "label-smoothing:alpha=0.1": "label smoothing",
    "squared-error": "squared error",
}
NUM_CLASSES = 10
PER_CLASS = {"smoke": 12, "desk": 150, "paper": 150}
WIDTH = {"smoke": 32, "desk": 256, "paper": 256}
EPOCHS = {"smoke": 5, "desk": 300, "paper": 300}
WATCHED = (3, 5, 8, 9)
"""Four digits that look alike; their class means span three dimensions, so a picture loses nothing of them."""
SHOWN = 30
"""Samples of each watched class in the picture."""
EVERY_CHECKPOINT = 10**6
NC1_FACTOR, NC_LEVEL, THEORY, GAP = 100.0, 0.1, 0.1, 1e-8


@dataclass(frozen=True)
class WatchedTrain(Train):
    """Train, and keep where the features of four classes are at every measured epoch, in ``watched.json``."""

    watched: tuple[int, ...] = WATCHED
    kind: ClassVar[str] = "train"

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "watched": list(self.watched)}

    def run(self, folder: Path, *, root: str | None, report: Report) -> None:
        def after_step(progress: Progress) -> None:
            report((progress.epoch + progress.step / progress.steps) / progress.epochs)

        run = train(self.plan, folder / "run", root=root, resume=True, keep=EVERY_CHECKPOINT, on_step=after_step)
        kept = run.folder / "watched.json"
        if not kept.is_file():
            write_json(kept, _features_over_training(self.plan, run.folder, self.watched, root))
        shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)


@torch.no_grad()
def _features_over_training(plan: Plan, folder: Path, watched: tuple[int, ...], root: str | None) -> dict[str, Any]:
    """Features and classifier of some classes before training and at each checkpoint, in the span of their means."""
    data = load(plan.data, root, per_class=plan.per_class, test_per_class=plan.test_per_class, seed=plan.seed)
    model = create(plan.model, data.image_shape, data.num_classes, head=plan.head, seed=plan.seed).eval()
    labels = data.train.labels
    members = [torch.nonzero(labels == k).flatten() for k in watched]
    images = [data.train.batch(member)[0] for member in members]
    states: dict[int, Any] = {0: model.state_dict()}
    for epoch in sorted(measured_epochs(plan)):
        states[epoch] = read_checkpoint(checkpoint_path(folder / "checkpoints", epoch)).state["model"]
    frames = []
    for epoch, state in states.items():
        model.load_state_dict(state)
        features = [model.features(batch).double() for batch in images]
        weight = model.head.weight.detach().double()[list(watched)]
        frames.append({"epoch": epoch, **_in_three_dimensions(features, weight)})
    return {"classes": list(watched), "frames": frames}


def _in_three_dimensions(features: list[torch.Tensor], weight: torch.Tensor) -> dict[str, Any]:
    """Coordinates in the affine space through the means of four classes, turned to fit a fixed regular tetrahedron.

    Means keep their exact shape, as four points span three dimensions; features and classifier rows are projected. The
    unit is the root mean square distance of a class mean from the centre of the four.
    """
    count = len(features)
    means = torch.stack([rows.mean(0) for rows in features])
    centre = means.mean(0)
    axes = svd(means - centre, full_matrices=False)[2][: count - 1]
    inside = (means - centre) @ axes.T
    size = float(inside.square().sum(1).mean().sqrt())
    left, _, right = svd(inside.T @ simplex_etf(count, count - 1))
    turned = axes.T @ (left @ right) / size
    rows = (weight - weight.mean(0)) @ (turned * size)
    rows = rows / float(rows.square().sum(1).mean().sqrt())
    return {
        "means": _rounded((means - centre) @ turned),
        "classifier": _rounded(rows),
        "features": [_rounded((group[:SHOWN] - centre) @ turned) for group in features],
    }


def _rounded(values: torch.Tensor) -> list[list[float]]:
    return [[round(entry, 3) for entry in row] for row in values.tolist()]


def sizes(profile: str) -> tuple[int, int, int]:
    """Classes, samples a class and feature dimension of a profile."""
    return NUM_CLASSES, PER_CLASS[profile], WIDTH[profile]


class Demo(Study):
    """Collapse under four losses, beside its theory."""

    id = "demo/four-losses"
    figures = ()
    question = "Does a net collapse whatever the loss, and to the sizes that the theory predicts?"
    claims = tuple(
        Claim(name, says, "the embedded digits", limit, kind="ours")
        for name, says, limit in (
            ("fit", "Under all four losses the net fits its training set.", AtLeast(1.0)),
            ("nc1", "nc1 falls from the first epoch to the last by this factor at least.", AtLeast(NC1_FACTOR)),
            ("nc2-nc3", "nc2 and nc3 end below this.", AtMost(NC_LEVEL)),
            ("sizes", "Classifier norm, feature norm and margin are this near the closed form.", AtMost(THEORY)),
            ("gap", "The solved models are proved to be this near their global minima.", AtMost(GAP)),
        )
    )
    costs = {"smoke": "10 s", "desk": "2 min", "paper": "2 min"}
    setting = {
        "smoke": "A tiny net on 120 digits for 5 epochs: shows that the path works.",
        "desk": "The 1,500 embedded training digits of 8 x 8 pixels; a perceptron of 4 hidden layers of 256 units with "
        "batch norm; 300 epochs of SGD; decay of 0.01 on the classifier W and 5e-5 on the features H, as in the "
        "theory. The models have the same constants, with free features, and are solved by L-BFGS from random starts.",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        count, per_class, dim = sizes(profile)
        plan = {
            "data": "digits",
            "per_class": per_class,
            "model": f"mlp:width={dim},depth=4",
            "epochs": EPOCHS[profile],
            "decay_on": "features",
            "metrics": METRICS,
            **DECAYS,
        }
        for loss in SPECS:
            yield Planned(WatchedTrain(Plan(**plan, loss=loss)), {"what": "net", "loss": loss})
        record = ("value", "gap", "nc1", "nc2", "nc3")
        for loss in SPECS:
            problem = RegularizedUFM(loss, count, per_class, dim, **DECAYS)
            yield Planned(Solve(problem, "lbfgs", options={"record": record}), {"what": "model", "loss": loss})

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = []
        for loss in results.labels("loss"):
            run, trace = results.only(what="net", loss=loss), results.only(what="model", loss=loss)
            train_row, test_row, first = run.final("train"), run.final("test"), run.history[0]
            theory = run.done["theory"]
            certificate = trace.problem.certify(trace.point)
            row: dict[str, Any] = {"loss": loss_name(loss)}
            row |= {"train_accuracy": train_row["accuracy"], "test_accuracy": test_row["accuracy"]}
            row |= {"nc1_at_epoch_1": first["nc1"]}
            row |= {name: train_row[name] for name in ("nc1", "nc2", "nc3", "nc4_mismatch")}
            for name in ("weight_norm", "feature_norm", "logit_scale"):
                row |= {f"{name}_predicted": theory["predicted"][name], f"{name}_net": theory["measured"][name]}
            row |= {"model_value": trace.value, "lower_bound": certificate.lower_bound}
            rows.append({**row, "certified_gap": certificate.gap, "certificate": certificate.verdict})
        return rows

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        rows = self.table(results)
        fallen = min(row["nc1_at_epoch_1"] / row["nc1"] for row in rows)
        level = max(max(row["nc2"], row["nc3"]) for row in rows)
        sized = ("weight_norm", "feature_norm", "logit_scale")
        off = max(abs(row[f"{name}_net"] / row[f"{name}_predicted"] - 1) for row in rows for name in sized)
        proved = all(row["certificate"] == "global minimum" for row in rows)
        gap = max(row["certified_gap"] for row in rows) if proved else math.inf
        fitted = min(row["train_accuracy"] for row in rows)
        # One run, the same on every machine: what it shows is a fact about it, without an interval.
        return {
            "fit": Evidence.exact(fitted, why=f"The lowest training accuracy is {fitted:.1%}."),
            "nc1": Evidence.exact(fallen, why=f"It falls by a factor of at least {fallen:.0f}."),
            "nc2-nc3": Evidence.exact(level, why=f"They end at {level:.2g} or less."),
            "sizes": Evidence.exact(off, why=f"They are within {off:.1%}."),
            "gap": Evidence.exact(gap, why=f"The largest certified gap is {gap:.0e}."),
        }

    def draw(self, results: Results) -> Figure:
        nets = results.where(what="net")
        picture, axes = figure(1, 4, size=(1.85, 1.9))
        for axis, name in zip(axes[0], ("nc1", "nc2", "nc3", "loss"), strict=True):
            series(axis, nets, name, "loss")
            axis.set_xscale("log")
            axis.set_xlabel("epoch")
        last = axes[0, 3]
        last.set_title("training loss and theory")
        for loss in nets.labels("loss"):
            predicted = closed_form_loss(nets.only(loss=loss))
            if predicted is not None:
                last.axhline(predicted, color=colour(loss), linestyle=(0, (4, 2)), linewidth=1.0)
        axes[0, 0].plot([], [], color=GREY, linestyle=(0, (4, 2)), linewidth=1.0, label="closed form")
        legend_below(picture, axes[0, 0], columns=5)
        return picture
