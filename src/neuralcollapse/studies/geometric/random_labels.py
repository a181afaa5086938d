"""Figures 4 and 8 of the geometric paper: collapse on random labels as the net gets wider."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...training import Plan
from .._cells import Train
from .._pictures import MARKERS, colour, figure, legend_below, metric_name
from .._plans import METRICS, desk_plan, paper_plan, smoke_plan
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies

NETS = {"MLP": "mlp:width={width},depth=4", "ResNet18": "resnet18:width={width}", "ResNet8": "resnet8:width={width}"}
WIDTHS: dict[Profile, dict[str, tuple[int, ...]]] = {
    "smoke": {"MLP": (4, 32), "ResNet8": (1, 4)},
    "desk": {"MLP": (8, 16, 32, 64, 128, 256), "ResNet8": (2, 4, 8, 16)},
    "paper": {"MLP": (32, 64, 128, 256, 512, 1024, 2048), "ResNet18": (1, 2, 4, 8, 16, 32, 64)},
}
SHOWN = ("nc1", "nc2", "nc3")
FIT, COLLAPSED, TOGETHER = 0.01, 0.2, 0.9


@studies.add("geometric/random-labels")
class RandomLabels(Study):
    """Nets of growing width fit labels that mean nothing."""

    figures = ("4", "8")
    question = "Do nets collapse on labels drawn at random, and does that go with their width?"
    claim = (
        f"The widest net of each family fits all but {FIT:.0%} of the random labels with NC1 below {COLLAPSED:g}, and "
        f"of all pairs of widths with different training errors, at least {TOGETHER:.0%} have NC1 in the same order."
    )
    costs = {"smoke": "4 s", "desk": "3 min of one core", "paper": "5 GPU days"}
    setting = {
        "smoke": "MLPs of width 4 and 32 and ResNet8 of width 1 and 4 on 120 embedded digits, 3 epochs.",
        "desk": "4-layer MLPs with batch norm and ResNet8 on 500 CIFAR10 images of 16 x 16 with random labels; 100 "
        "epochs, the desk's rate and weight decay. Widths start where d is 8: below, NC1 adds up fewer directions.",
        "paper": "4-layer MLPs with batch norm (the text names no widths) and ResNet18 on CIFAR10 with random labels.",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for family, widths in WIDTHS[profile].items():
            for width in widths:
                plan = _plan(profile, NETS[family].format(width=width))
                yield Planned(Train(plan), {"net": family, "width": width})

    def check(self, results: Results) -> Verdict:
        shares, texts, fits = [], [], True
        for (family,), mine in results.groups("net"):
            errors, collapse = 1 - mine.final("accuracy"), mine.final("nc1")
            shares.append(same_order(errors, collapse))
            fits &= bool(errors[-1] <= FIT and collapse[-1] <= COLLAPSED)
            widths = mine.labels("width")
            texts.append(
                f"{family}: from width {widths[0]} to {widths[-1]} the training error goes from {errors[0]:.1%} to "
                f"{errors[-1]:.1%} and NC1 from {collapse[0]:.2g} to {collapse[-1]:.2g} "
                f"({shares[-1]:.0%} of the pairs in the same order)"
            )
        least = min(shares)
        return Verdict.of(
            fits and least >= TOGETHER,
            least,
            "share of pairs of widths with training error and NC1 in the same order, the smaller of the two families",
            "; ".join(texts) + ".",
        )

    def draw(self, results: Results) -> Any:
        families = results.labels("net")
        panels = (*SHOWN, "error")
        picture, axes = figure(1, len(panels), size=(1.85, 1.95))
        for place, family in enumerate(families):
            mine = results.where(net=family)
            for axis, name in zip(axes[0], panels, strict=True):
                values = 1 - mine.final("accuracy") if name == "error" else _metric(mine, name)
                style = {"color": colour(family, families), "marker": MARKERS[place], "label": family}
                axis.plot(mine.labels("width"), values, **style)
                axis.set_title("training error" if name == "error" else metric_name(name))
                axis.set_xscale("log", base=2)
                axis.set_xlabel("width")
                if name != "error":
                    axis.set_yscale("log")
        legend_below(picture, axes[0, 0])
        return picture

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [{**row, "train_error": 1 - row["train_accuracy"]} for row in super().table(results)]


def _metric(results: Results, name: str) -> np.ndarray:
    """Final values; of NC2 and NC3 where d < K - 1, the distance from the nearest projection of an ETF."""
    values = results.final(name)
    return values if name == "nc1" else np.where(np.isnan(values), results.final(f"{name}_projected"), values)


def same_order(errors: np.ndarray, collapse: np.ndarray) -> float:
    """Of the pairs whose errors differ, the share in which the other number differs in the same sense.

    Nets that fit every label tie at error 0, where NC1 still falls: those pairs say nothing.
    """
    first, second = np.triu_indices(len(errors), 1)
    change = errors[first] - errors[second]
    agree = change * (collapse[first] - collapse[second]) > 0
    return float(agree[change != 0].mean()) if change.any() else 0.0


def _plan(profile: Profile, model: str) -> Plan:
    metrics = (*METRICS, "nc2_projected", "nc3_projected")
    common = {"model": model, "random_labels": True, "metrics": metrics}
    if profile == "smoke":
        return smoke_plan(**common)
    if profile == "desk":
        size = {"data": "cifar10:size=16", "per_class": 50, "test_per_class": 50, "epochs": 100, "batch_size": 32}
        return desk_plan(**common, **size)
    return paper_plan(**common, learning_rate=0.01, batch_size=64, weight_decay=1e-4)
