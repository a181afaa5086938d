"""Figure 4 of the normalized paper: wider normalised nets fit random labels, and collapse."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...training import Plan
from .._cells import Train
from .._common.plans import desk_plan, paper_plan, smoke_plan
from .._common.seeds import rank_correlation
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtLeast, Below, Claim, Evidence
from ..pictures import COLOURS, Figure, band, figure
from ._nets import normalized

WIDTHS: Mapping[Profile, tuple[int, ...]] = {
    "smoke": (4, 8, 32),
    "desk": (1, 2, 4, 8, 16),
    "paper": (4, 8, 16, 32, 64),
}
FITTED = 0.99
FLOOR = "the widest net fits 99 % of its random labels"


@studies.add("normalized/random-labels")
class RandomLabelsOnSpheres(Study):
    """Training error and NC1 over the width of normalised ResNets."""

    figures = ("4",)
    question = "Do wider normalised nets fit random labels better, and collapse more?"
    claims = (
        Claim(
            "fits",
            "The widest normalised net fits completely random labels (training accuracy).",
            "Figure 4, Section 4.1",
            AtLeast(FITTED),
            decides_at="wider nets or longer training",
        ),
        Claim(
            "error",
            "The training error falls with the width (rank correlation of the two).",
            "Figure 4, Section 4.1",
            Below(0.0),
            floor=FLOOR,
        ),
        Claim(
            "nc1",
            "NC1 falls with the width (rank correlation of the two).",
            "Figure 4, Section 4.1",
            Below(0.0),
            floor=FLOOR,
        ),
        Claim(
            "together",
            "Error and NC1 fall together (rank correlation over the widths, ties aside).",
            "this project, as in geometric/random-labels",
            AtLeast(0.5),
            kind="ours",
            floor=FLOOR,
        ),
    )
    costs = {"smoke": "2 s", "desk": "10 min on 1 core", "paper": "3 GPU hours"}
    setting = {
        "smoke": "Perceptrons of width 4, 8 and 32 on 120 digits, 3 epochs.",
        "desk": (
            "Normalised ResNet18 of width 1 to 16 on CIFAR10 of 16 x 16, 50 images a class (paper: 200), balanced "
            "random labels, 100 epochs of batches of 32, a tenth of the rate every 40, three seeds."
        ),
        "paper": (
            "Normalised ResNet18 of width 4 to 64 on CIFAR10, 200 images a class with balanced random labels, tau = 1, "
            "200 epochs; three seeds, where the paper names none."
        ),
    }
    provenance = {
        "learning_rate, momentum, schedule, batch_size": "text",
        "temperature, no bias": "text",
        "data": "text",
        "width, per_class (200), epochs (200), balanced random labels": "code",
        "init (PyTorch's default), stem without pooling": "code",
        "seeds": "guess",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for width in WIDTHS[profile]:
            for seed in self.seeds(profile):
                yield Planned(Train(_plan(profile, width, seed)), {"width": width, "seed": seed})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        widths = results.labels("width")
        widest = results.where(width=max(widths)).final("accuracy")
        fitted = bool((widest >= FITTED).all())
        error, nc1, together = [], [], []
        for seed in results.labels("seed"):
            runs = results.where(seed=seed)
            errors, values = 1 - runs.final("accuracy"), runs.final("nc1")
            error.append(rank_correlation(widths, errors))
            nc1.append(rank_correlation(widths, values))
            together.append(rank_correlation(errors, values))
        words = ", ".join(
            f"{width}: {1 - runs.final('accuracy').mean():.1%} and {runs.final('nc1').mean():.2g}"
            for width, runs in ((width, results.where(width=width)) for width in widths)
        )
        why = f"Error and NC1 by width, {words}."
        return {
            "fits": Evidence(list(widest), why=why),
            "error": Evidence(error, fitted, why=why),
            "nc1": Evidence(nc1, fitted),
            "together": Evidence(together, fitted),
        }

    def table(self, results: Results) -> list[dict[str, Any]]:
        names = ("accuracy", "loss", "nc1", "nc2", "nc3")
        return [{**entry.labels, **{name: entry.value.final()[name] for name in names}} for entry in results]

    def draw(self, results: Results) -> Figure:
        widths = results.labels("width")
        picture, axes = figure(1, 4, size=(1.9, 1.9))
        for axis, name in zip(axes[0], ("accuracy", "nc1", "nc2", "nc3"), strict=True):
            values = np.array([results.where(width=width).final(name) for width in widths]).T
            error = name == "accuracy"
            band(axis, np.array(widths), 1 - values if error else values, log=not error, color=COLOURS[0], marker="o")
            axis.set_xscale("log", base=2)
            axis.set_xticks(widths, [str(width) for width in widths])
            axis.set_yscale("linear" if error else "log")
            axis.set_xlabel("width")
            axis.set_title("training error" if error else name.upper())
        return picture


def _plan(profile: Profile, width: int, seed: int) -> Plan:
    chosen: dict[str, Any] = {**normalized(), "random_labels": True, "seed": seed}
    if profile == "smoke":
        return smoke_plan(**chosen, model=f"mlp:width={width},depth=2")
    chosen |= {"model": f"resnet18:width={width}"}
    if profile == "paper":
        return paper_plan(**chosen, per_class=200)
    data = {"data": "cifar10:size=16", "per_class": 50, "test_per_class": 50, "batch_size": 32}
    return desk_plan(**data, **chosen, epochs=100, schedule="step:every=40", measure=(1, 10, 20, 40, 60, 80, 100))
