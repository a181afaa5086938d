"""Figures 3, 4 and 7 of the losses paper: the losses come together as nets grow and train longer."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, AtLeast, AtMost, Claim, Evidence
from ..pictures import Figure, figure, heat_map
from ._nets import (
    EPOCHS,
    LOSSES,
    PROVENANCE,
    SEEDS,
    SETS,
    SHORT,
    WIDTHS,
    best_accuracy,
    by_loss,
    described,
    last_tenth,
    name_of,
    net,
    spread_ratio,
)

HALF = 0.5
"""The spread shrinks at least to a half; in the paper to .35."""
ORDERS = 2.5
"""Orders of magnitude that round to the paper's three."""


@studies.add("losses/width-epochs")
class WidthEpochs(Study):
    """NC1 and test accuracy for each width, number of epochs and loss."""

    figures = ("3", "4", "7")
    question = "Do the losses differ less in test accuracy the wider the net and the longer its training?"
    claims = (
        Claim(
            "wider",
            "With the number of epochs fixed, a wider net has the higher test accuracy under every loss (widest minus "
            "narrowest, the least of all losses and numbers of epochs).",
            "Figure 3, Section 4.2",
            Above(0.0),
            unit="points",
        ),
        Claim(
            "longer",
            "With the width fixed, longer training gives the higher test accuracy under every loss (longest minus "
            "shortest, the least of all losses and widths).",
            "Figure 3, Section 4.2",
            Above(0.0),
            unit="points",
        ),
        Claim(
            "spread",
            "From the narrowest net and shortest training to the widest and longest the spread of the four test "
            "accuracies shrinks (ratio, with a bootstrap over the seeds).",
            "Figures 3 and 4, A.1",
            AtMost(HALF),
            decides_at="more seeds",
        ),
        Claim(
            "nc1",
            "Between the same two settings NC1 falls by about three orders of magnitude (median over the losses).",
            "Figure 4, A.1",
            AtLeast(ORDERS),
            unit="orders of magnitude",
            floor="the largest nets have converged: over the last tenth of the epochs NC1 falls by less than a tenth",
            decides_at="longer training of the largest nets",
        ),
    )
    costs = {
        "smoke": "4 s",
        "desk": "60 min on 1 core, 27 of them for the cells of losses/collapse",
        "paper": "about 60 GPU days",
    }
    setting = {
        "smoke": "Perceptrons of width 8 and 32 on 200 digits, 2 and 4 epochs.",
        "desk": (
            "Perceptrons of four hidden layers of 16, 64 and 256 with batch norm on MNIST, 5, 30 and 1,000 epochs, "
            "four seeds; the rest as in losses/collapse, whose nets are the largest ones."
        ),
        "paper": (
            "WideResNet50 of width .25 to 2, CIFAR10 and CIFAR100, 100 to 800 epochs, three seeds; the rest as in "
            "losses/collapse."
        ),
    }
    provenance = PROVENANCE
    paper_values = {
        "spread": "1.037 to .36 points on CIFAR10: a ratio of .35",
        "nc1": "about three orders of magnitude, on CIFAR10 and CIFAR100",
    }
    final_seeds = SEEDS

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for data in SETS[profile][:1] if profile == "desk" else SETS[profile]:
            for width in WIDTHS[profile]:
                for epochs in EPOCHS[profile]:
                    for loss in LOSSES:
                        for seed in self.seeds(profile):
                            labels = {"data": data, "width": width, "epochs": epochs, "loss": loss, "seed": seed}
                            yield Planned(net(profile, data, width, epochs, loss, seed), labels)

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        widths, epochs = results.labels("width"), results.labels("epochs")
        small, large = (results.where(width=f(widths), epochs=f(epochs)) for f in (min, max))
        corners = [(small.where(data=data), large.where(data=data)) for data in results.labels("data")]
        named = [name_of(data) for data in results.labels("data")]
        accuracies = [(by_loss(first, best_accuracy), by_loss(last, best_accuracy)) for first, last in corners]
        ratios = [spread_ratio(first, last) for first, last in accuracies]
        orders = [[_orders_of_magnitude(*corner, seed) for corner in corners] for seed in results.labels("seed")]
        sizes = [f"width {f(widths):g}, {f(epochs)} epochs" for f in (min, max)]
        spreads = "; ".join(
            f"{name}: {' to '.join(described(losses) for losses in pair)}"
            for name, pair in zip(named, accuracies, strict=True)
        )
        fall = "; ".join(
            f"{name}: {', '.join(_fall_in_words(*corner, loss) for loss in LOSSES)}"
            for name, corner in zip(named, corners, strict=True)
        )
        return {
            "wider": _trend(results, "width", "epochs"),
            "longer": _trend(results, "epochs", "width"),
            "spread": Evidence.interval(*max(ratios), why=f"From {sizes[0]} to {sizes[1]}, {spreads}."),
            "nc1": Evidence(
                [min(of_sets) for of_sets in orders],
                bool((last_tenth(large, "nc1") >= 0.9).all()),
                why=f"Between the same, {fall}.",
            ),
        }

    def draw(self, results: Results) -> Figure:
        sets, widths, epochs = (results.labels(name) for name in ("data", "width", "epochs"))
        picture, axes = figure(2 * len(sets), len(LOSSES), size=(1.75, 1.6), sharex=True, sharey=True)
        names = [f"{w:g}" for w in widths]
        for place, data in enumerate(sets):
            rows = ((_mean_nc1, "NC1", "{:.3g}"), (_accuracy_in_percent, "test accuracy, %", "{:.1f}"))
            for line, (number, title, shown) in zip(axes[2 * place :], rows, strict=False):
                grids = {
                    loss: np.array(
                        [
                            [number(results.where(data=data, loss=loss, width=w, epochs=e)) for e in epochs]
                            for w in widths
                        ]
                    )
                    for loss in LOSSES
                }
                # One scale for all losses: the same colour is the same number.
                limits = (min(grid.min() for grid in grids.values()), max(grid.max() for grid in grids.values()))
                for axis, (loss, grid) in zip(line, grids.items(), strict=True):
                    log = title == "NC1"
                    words = f"{SHORT[loss]}: {title}" if log else title
                    heat_map(
                        axis,
                        grid,
                        names,
                        epochs,
                        title=words,
                        shown=shown,
                        log=log,
                        limits=limits,
                        bright="low" if log else "high",
                    )
            for row in axes[2 * place : 2 * place + 2]:
                row[0].set_ylabel("width" if len(sets) == 1 else f"{name_of(data)}: width")
        for axis in axes[-1]:
            axis.set_xlabel("epochs")
        return picture

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [
            {**dict(zip(names, key, strict=True)), "nc1": _mean_nc1(found), "test_accuracy_at_best": _accuracy(found)}
            for names in [("data", "width", "epochs", "loss")]
            for key, found in results.groups(*names)
        ]


def _trend(results: Results, along: str, at: str) -> Evidence:
    """The gain in test accuracy from one end of an axis of the grid to the other, where it is least: one a seed.

    The least of the means over the seeds says which loss and place; its own seeds give the interval.
    """
    places = results.labels(along)
    gains: dict[str, np.ndarray] = {}
    for data in results.labels("data"):
        for loss in LOSSES:
            for value in results.labels(at):
                found = results.where(data=data, loss=loss, **{at: value})
                ends = [by_loss(found.where(**{along: f(places)}), best_accuracy)[loss] for f in (min, max)]
                gains[f"{name_of(data)}, {SHORT[loss]}, {at} {value:g}"] = ends[1] - ends[0]
    least = min(gains, key=lambda name: float(gains[name].mean()))
    return Evidence(list(gains[least]), why=f"Least for {least}: {gains[least].mean():+.2f} points.")


def _orders_of_magnitude(small: Results, large: Results, seed: int) -> float:
    """How far NC1 falls between two settings of one data set: the median over the losses."""
    ends = ([found.where(loss=loss, seed=seed).final("nc1")[0] for loss in LOSSES] for found in (small, large))
    return float(np.median(np.subtract(*np.log10(list(ends)))))


def _fall_in_words(small: Results, large: Results, loss: str) -> str:
    ends = (_mean_nc1(found.where(loss=loss)) for found in (small, large))
    return f"{SHORT[loss]} {' to '.join(f'{nc1:.2g}' for nc1 in ends)}"


def _mean_nc1(results: Results) -> float:
    """Geometric mean of NC1 at the end over the seeds."""
    return float(np.exp(np.log(results.final("nc1")).mean()))


def _accuracy_in_percent(results: Results) -> float:
    return 100 * _accuracy(results)


def _accuracy(results: Results) -> float:
    """Mean over the seeds."""
    return float(np.mean([best_accuracy(entry.value) for entry in results]))
