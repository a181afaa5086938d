"""Figure 4 of the mse paper: how many dimensions the features need, under the squared error and cross-entropy."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...training import Plan
from .._cells import Train
from .._pictures import figure, legend_below, loss_name, series
from .._plans import desk_plan, paper_plan, smoke_plan
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from .._twins import DATA, MARGIN_METRICS, MLP, draw_margins, margins

CLASSES = 10
LOSSES = ("squared-error", "cross-entropy")
DIMENSIONS: dict[Profile, tuple[int, ...]] = {
    "smoke": (3, 32),
    "desk": (3, 5, 8, 9, 10, 256),
    "paper": (3, 5, 8, 9, 10, 512),
}
TRAIN_FALL, TEST_FALL, NEAR_SHARE = 0.2, 0.05, 0.25
NEAR = 0.1
"""Cosine margins in [-NEAR, NEAR] count as lying on the decision boundary."""


@studies.add("mse/feature-dim")
class FeatureDim(Study):
    """Feature dimensions below and above K - 1."""

    figures = ("4",)
    question = "Which feature dimension d does the squared error need, and does cross-entropy need it too?"
    claim = (
        f"At the smallest d the squared error loses at least {100 * TRAIN_FALL:.0f} points of training and "
        f"{100 * TEST_FALL:.0f} of test accuracy against d >= K - 1, and at least {NEAR_SHARE:.0%} of its cosine "
        "margins lie near 0; cross-entropy loses at most a quarter as much training accuracy, and less test accuracy."
    )
    costs = {"smoke": "3 s", "desk": "6 min of one core", "paper": "2 GPU days"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs, d = 3 and 32.",
        "desk": "A 4 x 256 MLP with batch norm, its last layer of d units, on 2,000 CIFAR10 images of 16 x 16 instead "
        "of ResNet18 on all of them; 100 epochs, no augmentation, ten times the paper's weight decay.",
        "paper": "ResNet18 on CIFAR10 with augmentation; d changes the last block's last convolution.",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for loss in LOSSES:
            for dim in DIMENSIONS[profile]:
                yield Planned(Train(dimension_plan(profile, loss, dim), features=True), {"loss": loss, "d": dim})

    def check(self, results: Results) -> Verdict:
        falls: dict[str, dict[str, float]] = {}
        texts = []
        for (loss,), mine in results.groups("loss"):
            dims = np.array(mine.labels("d"))
            low, enough = dims.argmin(), dims >= CLASSES - 1
            columns = {split: mine.final("accuracy", split) for split in ("train", "test")}
            near = np.array([_near(entry.value) for entry in mine])
            falls[loss] = {split: float(values[enough].mean() - values[low]) for split, values in columns.items()}
            falls[loss]["near"] = float(near[low])
            words = [
                f"{split} accuracy {values[low]:.1%} and {values[enough].mean():.1%}"
                for split, values in columns.items()
            ]
            shares = f"{near[low]:.1%} and {near[enough].mean():.1%} of the margins near 0"
            texts.append(f"{loss_name(loss)} at d = {dims[low]} and d >= {CLASSES - 1}: {', '.join(words)}, {shares}")
        squared, entropy = (falls[loss] for loss in LOSSES)
        needs = squared["train"] >= TRAIN_FALL and squared["test"] >= TEST_FALL and squared["near"] >= NEAR_SHARE
        spared = entropy["train"] <= squared["train"] / 4 and entropy["test"] < squared["test"]
        return Verdict.of(
            needs and spared,
            100 * squared["train"],
            "training accuracy that the squared error loses at the smallest d, in percentage points",
            "; ".join(texts) + ".",
        )

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [
            {**row, "margins_near_zero": _near(entry.value)}
            for row, entry in zip(super().table(results), results, strict=True)
        ]

    def draw(self, results: Results) -> Any:
        picture, axes = figure(len(LOSSES), 4, size=(1.85, 1.85))
        for line, loss in zip(axes, LOSSES, strict=True):
            mine = results.where(loss=loss)
            names = {dim: f"d = {dim}" for dim in mine.labels("d")}
            series(line[0], mine, "nc1", "d", labels=names)
            draw_margins(line[1], mine, "d")
            for axis, split in zip(line[2:], ("train", "test"), strict=True):
                series(axis, mine, "accuracy", "d", split=split, log=False)
                axis.set_title(f"{split} accuracy")
            for axis in (line[0], *line[2:]):
                axis.set_xlabel("epoch")
            line[0].set_ylabel(loss_name(loss))
        legend_below(picture, axes[0, 0], columns=6)
        return picture


def dimension_plan(profile: Profile, loss: str, dim: int) -> Plan:
    """A net with features of dimension d, which the study in three dimensions shares."""
    common: dict[str, Any] = {"loss": loss, "metrics": (*MARGIN_METRICS, "nc2_projected", "nc3_projected")}
    if profile == "smoke":
        return smoke_plan(**common, model=f"mlp:width=32,depth=2,feature_dim={dim}")
    if profile == "desk":
        model = f"{MLP['model']},feature_dim={dim}"
        return desk_plan(**{**MLP, **common, "data": DATA["desk"]["CIFAR10"], "model": model})
    return paper_plan(**common, model=f"resnet18:width=64,feature_dim={dim}", augment=True)


def _near(run: Any) -> float:
    return float((np.abs(margins(run)) <= NEAR).mean())
