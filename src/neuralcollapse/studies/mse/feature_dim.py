"""Figure 4 of the mse paper: how many dimensions the features need, under the squared error and cross-entropy."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...training import Plan
from .._cells import Train
from .._pictures import figure, legend_below, loss_name, series
from .._plans import METRICS, desk_plan, paper_plan, smoke_plan
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from .._twins import draw_margins, margins

CLASSES = 10
LOSSES = ("squared-error", "cross-entropy")
DIMENSIONS: dict[Profile, tuple[int, ...]] = {
    "smoke": (3, 32),
    "desk": (3, 5, 8, 9, 10, 32),
    "paper": (3, 5, 8, 9, 10, 512),
}
NEAR = 0.1
"""Cosine margins in [-NEAR, NEAR] count as lying on the decision boundary."""


@studies.add("mse/feature-dim")
class FeatureDim(Study):
    """Feature dimensions below and above K - 1."""

    figures = ("4",)
    question = "Which feature dimension d does the squared error need, and does cross-entropy need it too?"
    claim = ""
    costs = {"smoke": "3 s", "desk": "8 min of one core", "paper": "2 GPU days"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs, d = 3 and 32.",
        "desk": "",
        "paper": "",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for loss in LOSSES:
            for dim in DIMENSIONS[profile]:
                yield Planned(Train(dimension_plan(profile, loss, dim), features=True), {"loss": loss, "d": dim})

    def check(self, results: Results) -> Verdict:
        falls, texts = {}, []
        for (loss,), mine in results.groups("loss"):
            dims = np.array(mine.labels("d"))
            train, test = mine.final("accuracy"), mine.final("accuracy", "test")
            near = np.array([_near(entry.value) for entry in mine])
            enough = dims >= CLASSES - 1
            falls[loss] = float(test[enough].mean() - test[dims.argmin()])
            texts.append(
                f"{loss_name(loss)}: from d = {dims.min()} to d >= {CLASSES - 1} training accuracy goes from "
                f"{train[dims.argmin()]:.1%} to {train[enough].mean():.1%}, test accuracy from "
                f"{test[dims.argmin()]:.1%} to {test[enough].mean():.1%}, and the share of samples with a margin near 0 "
                f"from {near[dims.argmin()]:.1%} to {near[enough].mean():.1%}"
            )
        squared, entropy = (falls[loss] for loss in LOSSES)
        return Verdict.of(
            squared >= 0.1 and entropy <= squared / 2,
            100 * squared,
            "test accuracy that the squared error loses at the smallest d, in percentage points",
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
    common: dict[str, Any] = {"loss": loss, "metrics": (*METRICS, "nc2_projected", "nc3_projected", "cosine_margin")}
    if profile == "smoke":
        return smoke_plan(**common, model=f"mlp:width=32,depth=2,feature_dim={dim}")
    if profile == "desk":
        model = f"resnet8:width=8,feature_dim={dim}"
        return desk_plan(**common, data="cifar10:size=16", model=model, per_class=100, epochs=60, batch_size=32)
    return paper_plan(**common, model=f"resnet18:width=64,feature_dim={dim}", augment=True)


def _near(run: Any) -> float:
    return float((np.abs(margins(run)) <= NEAR).mean())
