"""What the geometric and the mse paper share: data, nets at each profile, limits of collapse, margins and pictures."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file

from ...metrics import measure
from ...training import Plan, Run
from .._results import Results
from .._study import Profile
from ..claims import AtMost, Claim, Evidence
from ..pictures import Figure, colour, figure, legend_below, marker, series
from .plans import CODE, METRICS, TEXT, as_in_text, desk_plan, paper_plan, smoke_plan
from .seeds import FITS, fits, listed, worst

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "CLASSES",
    "CODE",
    "COLLAPSED",
    "DATA",
    "DESK_MNIST",
    "DESK_RESNET",
    "FLOOR",
    "MARGIN_METRICS",
    "MEAN_OVER_CLASSES",
    "PAPER_NET",
    "TEXT",
    "PlanChanges",
    "as_in_text",
    "collapse_claims",
    "collapse_evidence",
    "draw_accuracy",
    "draw_margins",
    "draw_rows",
    "epochs_on_log_axis",
    "margins",
    "net_plan",
]

PlanChanges = Mapping[str, Any]
"""Fields of a plan, by name, that are not as its studies have them in common."""

DATA: dict[Profile, dict[str, str]] = {
    "smoke": {"digits": "digits"},
    "desk": {"MNIST": "mnist:size=14", "CIFAR10": "cifar10:size=16"},
    "paper": {"MNIST": "mnist:size=32,channels=3", "CIFAR10": "cifar10"},
}
PAPER_NET = "resnet18:width=64,stem=imagenet"
"""The released code's net for runs without augmentation; those with augmentation have the 3x3 stem."""

CLASSES = 10
MARGIN_METRICS = (*METRICS, "cosine_margin", "numerical_rank", "nc2_projected", "nc3_projected")

DESK: PlanChanges = {
    "model": "mlp:width=256,depth=4",
    "per_class": 200,
    "test_per_class": 800,
    "batch_size": 64,
    "schedule": "cosine",
}
"""A net with batch norm on 2,000 images, which collapses in a minute of one core, and 8,000 test images."""
DESK_MNIST: PlanChanges = {"per_class": 1000, "epochs": 80}
"""As many steps on 10,000 images, where accuracies are to be compared: few images tell decays and heads apart."""
DESK_RESNET: PlanChanges = {"model": "resnet8:width=16", "epochs": 80}
"""Where features are few: means of ReLU outputs over an image do not die as single ReLU units do."""
DESK_EPOCHS = {"cross-entropy": 400, "squared-error": 200}
DESK_DECAY = {"cross-entropy": 5e-3, "squared-error": 2.5e-3}
"""Ten times the paper's for cross-entropy; for the squared error that of the released code, in terms of eq. (2)."""

MEAN_OVER_CLASSES: PlanChanges = {"loss_scale": 2 / CLASSES}
"""The released code's squared error is a mean over the classes, 2/K times eq. (2): with the same rate and decay the
steps of eq. (2) with 2/K times the rate and K/2 times the decay."""


def net_plan(profile: Profile, data: str, loss: str = "cross-entropy", **changes: Any) -> Plan:
    """The plan that the studies of both papers start from, so that their common cells are run once."""
    common = {"data": DATA[profile][data], "loss": loss}
    if profile == "smoke":
        return smoke_plan(**{**common, **changes})
    if profile == "desk":
        own = {"weight_decay": DESK_DECAY[loss], "epochs": DESK_EPOCHS[loss]}
        return desk_plan(**{**DESK, **common, **own, **changes})
    return paper_plan(**{"model": PAPER_NET, **common, **changes})


# claims ---------------------------------------------------------------------------------------------------------

COLLAPSED = {"nc1": 0.1, "nc2": 0.2, "nc3": 0.2}
"""What counts as "converges to zero", for every net of every study: within-class variability a tenth of that between
classes; Gram matrices of norm one that are .2 apart, a cosine of .98."""
NAMES = {
    "nc1": "NC1, within-class variability,",
    "nc2": "NC2, the classifier's distance from a simplex ETF,",
    "nc3": "NC3, the distance from self-duality,",
}
FLOOR = f"every net fits {FITS:.0%} of its training set"


def collapse_claims(metrics: tuple[str, ...], when: str, source: str) -> tuple[Claim, ...]:
    """One claim for each metric: it goes to zero ``when``."""
    return tuple(
        Claim(
            name,
            f"{NAMES[name]} goes to zero {when}.",
            source,
            AtMost(COLLAPSED[name]),
            floor=FLOOR,
            decides_at="more epochs of the same nets",
        )
        for name in metrics
    )


def collapse_evidence(results: Results, metrics: tuple[str, ...], by: str) -> dict[str, Evidence]:
    """For each metric the largest final value over all runs of a seed."""
    many = len(results.labels("data")) > 1
    found = {}
    for name in metrics:
        texts = [
            (f"{data}: " if many else "") + listed(results.where(data=data), by, name)
            for data in results.labels("data")
        ]
        why = f"Means over seeds: {'; '.join(texts)}."
        found[name] = Evidence(worst(results, name), floor_met=fits(results), why=why)
    return found


def margins(run: Run, split: str = "train") -> np.ndarray:
    """The cosine margins of all samples in ascending order (mse, Section 4), from the features that the run kept.

    NaN for all of them where features or classifier have vanished.
    """
    kept = load_file(run.folder / f"features-{split}.safetensors")
    report = measure(kept["features"], kept["labels"], kept["weight"], kept.get("bias"), metrics=("cosine_margin",))
    if report.cosine_margins is None:
        return np.full(len(kept["labels"]), np.nan)
    return report.cosine_margins.numpy()


# pictures -------------------------------------------------------------------------------------------------------


def draw_accuracy(axis: "Axes", results: Results, by: str) -> None:
    """Test accuracy as lines, training accuracy dashed."""
    series(axis, results, "accuracy", by, split="test", log=False)
    keys = results.labels(by)
    for key in keys:
        steps, runs = results.where(**{by: key}).curves("accuracy")
        axis.plot(steps, runs.mean(0), linestyle=(0, (3, 2)), linewidth=0.9, color=colour(key, keys))
    axis.set_title("accuracy (train dashed)")


def draw_margins(axis: "Axes", results: Results, by: str) -> None:
    """Sorted cosine margins against the share of the training samples; of several seeds, the first."""
    keys = results.labels(by)
    for key in keys:
        values = margins(results.where(**{by: key})[0].value)
        share = np.linspace(0, 1, len(values))
        mark = {"marker": marker(key, keys), "markevery": max(1, len(values) // 5)}
        axis.plot(share, values, color=colour(key, keys), **mark)
    axis.set_title("cosine margins, sorted")
    axis.set_xlabel("share of samples")


def draw_rows(results: Results, by: str, names: tuple[str, ...], kept_features: bool) -> Figure:
    """For each data set a row of panels: metrics over epochs, accuracy and, where features were kept, the margins."""
    rows = results.labels("data")
    count = len(names) + 1 + kept_features
    picture, axes = figure(len(rows), count, size=(1.85, 1.85))
    for line, data in zip(axes, rows, strict=True):
        mine = results.where(data=data)
        for axis, name in zip(line, names, strict=False):
            series(axis, mine, name, by)
        draw_accuracy(line[len(names)], mine, by)
        for axis in line[: len(names) + 1]:
            epochs_on_log_axis(axis)
        if kept_features:
            draw_margins(line[-1], mine, by)
        line[0].set_ylabel(data)
    legend_below(picture, axes[0, 0])
    return picture


def epochs_on_log_axis(axis: "Axes") -> None:
    """Whole epochs, closer together the later they are."""
    last = round(axis.dataLim.x1)
    ticks = [tick for tick in ((1, 10, 100) if last >= 10 else (1, 2, 3, 5)) if 2.5 * tick <= last]
    ticks = [*ticks, last] if ticks else [1, last]
    axis.set_xscale("log")
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.xaxis.set_minor_formatter("")
    axis.set_xlabel("epoch")
