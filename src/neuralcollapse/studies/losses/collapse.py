"""Figures 1 and 5 of the losses paper: neural collapse under four losses."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._pictures import figure, legend_below, series
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._nets import DATA, EPOCHS, LOSSES, SEEDS, SHORT, WIDTHS, net

METRICS = ("nc1", "nc2", "nc3")
LIMITS = {"nc1": 0.05, "nc2": 0.3, "nc3": 0.3}
"""What each metric must fall below at its end: a tenth, or less, of what random features give."""


def largest_nets(profile: Profile) -> Iterator[Planned]:
    """The widest net, trained longest, with each loss and seed: the cells of Figures 1, 2, 5 and 6."""
    for data in DATA[profile]:
        for loss in LOSSES:
            for seed in SEEDS[profile]:
                cell = net(profile, data, WIDTHS[profile][-1], EPOCHS[profile][-1], loss, seed)
                yield Planned(cell, {"data": data, "loss": loss, "seed": seed})


@studies.add("losses/collapse")
class Collapse(Study):
    """NC1, NC2 and NC3 over the epochs, for CE, FL, LS and MSE."""

    figures = ("1", "5")
    question = "Do the features and the classifier collapse alike under CE, FL, LS and MSE?"
    claim = (
        "With every loss (mean over the seeds) NC1 ends below .05 and at most a tenth of its value after the first "
        "epoch, and NC2 and NC3 end below .3 and below their values after the first epoch."
    )
    costs = {"smoke": "2 s", "desk": "5 min on 1 core", "paper": "about 20 GPU days"}
    setting = {
        "smoke": "Perceptrons on 200 digits, 4 epochs.",
        "desk": (
            "A perceptron of four hidden layers of 256 with batch norm on 2,000 MNIST images of 14 x 14, 10 % of them "
            "held out, 200 epochs, two seeds, no augmentation, ten times the paper's weight decay; else as in the "
            "paper. (A ResNet8 costs six times as much an epoch, and 60 epochs leave FL with NC2 and NC3 of .43.)"
        ),
        "paper": (
            "WideResNet50-2, CIFAR10 and CIFAR100, 800 epochs, three seeds. MSE is the paper's eq. (6), a sum over the "
            "classes; the released code takes their mean (rate .2/K, decay 2.5e-4 K, clipping at K here), and label "
            "smoothing .05 for .1. CIFAR100's decay was tuned by loss in the paper, without values: 5e-4 here."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        return largest_nets(profile)

    def check(self, results: Results) -> Verdict:
        first, last = _ends(results)
        ratio = max(values[name] / LIMITS[name] for values in last.values() for name in METRICS)
        fallen = all(last[k]["nc1"] <= first[k]["nc1"] / 10 for k in last)
        fallen &= all(last[k][name] < first[k][name] for k in last for name in ("nc2", "nc3"))
        words = "; ".join(
            f"{metric.upper()} " + ", ".join(f"{SHORT[loss]} {last[data, loss][metric]:.2g}" for data, loss in last)
            for metric in METRICS
        )
        return Verdict.of(
            ratio < 1 and fallen,
            ratio,
            "largest final metric, as a fraction of its limit (.05 for NC1, .3 for NC2 and NC3)",
            f"At the end {words}; all have fallen since the first epoch: {'yes' if fallen else 'no'}.",
        )

    def draw(self, results: Results) -> Any:
        sets = results.labels("data")
        picture, axes = figure(len(sets), 3, size=(2.2, 1.9), sharex="row")
        for row, data in zip(axes, sets, strict=True):
            for axis, name in zip(row, METRICS, strict=True):
                series(axis, results.where(data=data), name, "loss", labels=SHORT)
            row[0].set_ylabel(data.partition(":")[0])
        for axis in axes[-1]:
            axis.set_xlabel("epoch")
        legend_below(picture, axes[0, 0])
        return picture


def _ends(results: Results) -> tuple[dict[Any, dict[str, float]], dict[Any, dict[str, float]]]:
    """The metrics after the first measured epoch and at the end, by (data, loss): geometric means over the seeds."""
    ends: tuple[dict[Any, dict[str, float]], ...] = ({}, {})
    for key, runs in results.groups("data", "loss"):
        curves = {name: np.exp(np.log(runs.curves(name)[1]).mean(0)) for name in METRICS}
        for place, found in zip((0, -1), ends, strict=True):
            found[key] = {name: float(curve[place]) for name, curve in curves.items()}
    return ends[0], ends[1]
