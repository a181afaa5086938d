"""Figures 4 and 8 of the geometric paper: collapse on random labels as the net gets wider."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...training import Plan, Run
from .._cells import Train
from .._common.geometric_and_mse import COLLAPSED
from .._common.plans import METRICS, desk_plan, paper_plan, smoke_plan
from .._common.seeds import per_seed, rank_correlation
from .._results import Planned, Result, Results
from .._study import Profile, Study, studies
from ..claims import Above, AtLeast, AtMost, Claim, Evidence
from ..pictures import MARKERS, Figure, colour, figure, legend_below, metric_name

NETS = {"MLP": "mlp:width={width},depth=4", "ResNet18": "resnet18:width={width}", "ResNet8": "resnet8:width={width}"}
WIDTHS: dict[Profile, dict[str, tuple[int, ...]]] = {
    "smoke": {"MLP": (4, 32), "ResNet8": (1, 4)},
    "desk": {"MLP": (8, 16, 32, 64, 128, 256), "ResNet8": (2, 4, 8, 16, 32)},
    "paper": {"MLP": (32, 64, 128, 256, 512, 1024, 2048), "ResNet18": (1, 2, 4, 8, 16, 32, 64)},
}
SHOWN = ("nc1", "nc2", "nc3")
HIGH = 0.7
"""From here on a correlation is commonly called high."""
WIDEST_FITS = "the widest net of each family fits 99 % of its random labels"
SOURCE = "Figures 4 and 8, Appendix B.2.2"
FALLING = {
    "error": "The training error",
    "nc1": "NC1, within-class variability,",
    "nc2": "NC2, the classifier's distance from a simplex ETF,",
    "nc3": "NC3, the distance from self-duality,",
}


@studies.add("geometric/random-labels")
class RandomLabelsByWidth(Study):
    """Nets of growing width fit labels that mean nothing."""

    figures = ("4", "8")
    question = "Do nets collapse on labels drawn at random, and does that go with their width?"
    claims = (
        Claim(
            "collapse",
            "With completely random labels the widest net of each family still collapses: NC1 goes to zero.",
            SOURCE,
            AtMost(COLLAPSED["nc1"]),
            floor=WIDEST_FITS,
            decides_at="wider nets or more epochs",
        ),
        *(
            Claim(
                f"{name}-with-width",
                f"{words} falls as the net gets wider, in both families.",
                SOURCE,
                Above(0.0),
                floor=WIDEST_FITS,
                decides_at="more seeds",
                unit="rank correlation with falling values",
            )
            for name, words in FALLING.items()
        ),
        Claim(
            "together",
            "Training error and NC1 are highly correlated over the widths.",
            SOURCE,
            AtLeast(HIGH),
            floor=WIDEST_FITS,
            decides_at="more seeds",
            unit="rank correlation",
        ),
    )
    final_seeds = {"smoke": (0,), "desk": tuple(range(60, 66)), "paper": (0, 1, 2)}
    """Six at desk size: with three, wide nets that tie at error 0 leave the correlation with NC1 open."""
    costs = {"smoke": "4 s", "desk": "45 min of one core", "paper": "15 GPU days"}
    setting = {
        "smoke": "MLPs of width 4 and 32 and ResNet8 of width 1 and 4 on 120 embedded digits, 3 epochs.",
        "desk": "4-layer MLPs with batch norm (width 8 to 256) and ResNet8 (2 to 32) on 1,500 CIFAR10 images of "
        "16 x 16 with a permutation of balanced labels; 200 epochs, the desk's rate and weight decay. Widths start "
        "where d is 8: below, NC1 adds up fewer directions.",
        "paper": "4-layer MLPs with batch norm (the text names no widths) and ResNet18 of first-stage width 1 to 64 on "
        "CIFAR10 with a permutation of balanced labels; batch 64.",
    }
    provenance = {
        "depth 4, rate .01, weight decay 1e-4": "text",
        "momentum, schedule, 200 epochs": "text",
        "permutation of balanced labels, batch 64, widths 1 to 64, 3 x 3 stem": "code",
        "initialisation: no initialiser is called, so PyTorch's default": "code",
        "widths of the MLPs": "guess",
        "three seeds": "guess",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for seed in self.seeds(profile):
            for family, widths in WIDTHS[profile].items():
                for width in widths:
                    plan = _plan(profile, NETS[family].format(width=width), seed)
                    yield Planned(Train(plan), {"net": family, "width": width, "seed": seed})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        widest = Results(results.profile, tuple(_widest_nets(results)))
        met = bool((widest.final("accuracy") >= 0.99).all())

        def least(number: Callable[[Results], float]) -> list[float]:
            """Of both families the worse, one a seed."""
            return per_seed(results, lambda runs: min(number(mine) for _, mine in runs.groups("net")))

        found = {
            "collapse": Evidence(
                per_seed(widest, lambda mine: mine.final("nc1").max()),
                floor_met=met,
                why=_means_by_width(results, "nc1"),
            ),
            "together": Evidence(
                least(lambda mine: rank_correlation(_final_values(mine, "error"), _final_values(mine, "nc1"))),
                floor_met=met,
            ),
        }
        for name in FALLING:
            with_width = least(
                lambda mine, name=name: -rank_correlation(mine.labels("width"), _final_values(mine, name))
            )
            found[f"{name}-with-width"] = Evidence(with_width, floor_met=met, why=_means_by_width(results, name))
        return found

    def draw(self, results: Results) -> Figure:
        families = results.labels("net")
        panels = (*SHOWN, "error")
        picture, axes = figure(1, len(panels), size=(1.85, 1.95))
        for place, family in enumerate(families):
            mine = results.where(net=family)
            for axis, name in zip(axes[0], panels, strict=True):
                runs = np.array([_final_values(one, name) for _, one in mine.groups("seed")])
                style = {"color": colour(family, families), "marker": MARKERS[place], "label": family}
                axis.plot(mine.labels("width"), runs.mean(0), **style)
                axis.fill_between(
                    mine.labels("width"), runs.min(0), runs.max(0), color=style["color"], alpha=0.18, linewidth=0
                )
                axis.set_title("training error" if name == "error" else metric_name(name))
                axis.set_xscale("log", base=2)
                axis.xaxis.set_major_formatter("{x:g}")
                axis.set_xlabel("width")
                if name != "error":
                    axis.set_yscale("log")
        legend_below(picture, axes[0, 0])
        return picture

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [{**row, "train_error": 1 - row["train_accuracy"]} for row in super().table(results)]


def _widest_nets(results: Results) -> Iterator[Result[Run]]:
    for _, mine in results.groups("net", "seed"):
        yield max(mine, key=lambda entry: entry.labels["width"])


def _final_values(results: Results, name: str) -> np.ndarray:
    """Final values; of NC2 and NC3 where d < K - 1, the distance from the nearest projection of an ETF."""
    if name == "error":
        return 1 - results.final("accuracy")
    values = results.final(name)
    return values if name == "nc1" else np.where(np.isnan(values), results.final(f"{name}_projected"), values)


def _means_by_width(results: Results, name: str) -> str:
    texts = []
    for (family,), mine in results.groups("net"):
        means = [(width, float(_final_values(one, name).mean())) for (width,), one in mine.groups("width")]
        texts.append(f"{family} " + ", ".join(f"{value:.2g} at {width}" for width, value in means))
    return f"Means over seeds by width: {'; '.join(texts)}."


def _plan(profile: Profile, model: str, seed: int) -> Plan:
    metrics = (*METRICS, "nc2_projected", "nc3_projected")
    common = {"model": model, "random_labels": True, "metrics": metrics, "seed": seed}
    if profile == "smoke":
        return smoke_plan(**common)
    if profile == "desk":
        size = {"data": "cifar10:size=16", "per_class": 150, "test_per_class": 50, "epochs": 200, "batch_size": 32}
        return desk_plan(**common, **size)
    return paper_plan(**common, init="torch", learning_rate=0.01, batch_size=64, weight_decay=1e-4)
