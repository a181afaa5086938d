"""Figures 3, 4 and 7 of the losses paper: the losses come together as nets grow and train longer."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._pictures import figure, heat_map
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._nets import DATA, EPOCHS, LOSSES, SEEDS, SHORT, WIDTHS, best_accuracy, net, spread

FALL = 10.0


@studies.add("losses/width-epochs")
class WidthEpochs(Study):
    """NC1 and test accuracy for each width, number of epochs and loss."""

    figures = ("3", "4", "7")
    question = "Do the losses differ less in test accuracy the wider the net and the longer its training?"
    claim = (
        "From the narrowest net and shortest training to the widest and longest, the spread of the four losses' test "
        "accuracies (at the best validation epoch, means over the seeds) shrinks, and NC1 falls at least tenfold with "
        "every loss. (Paper, CIFAR10: 1.037 to .36 percentage points, and about three orders of magnitude.)"
    )
    costs = {
        "smoke": "4 s",
        "desk": "12 min on 1 core, 5 of them for the cells of losses/collapse",
        "paper": "about 60 GPU days",
    }
    setting = {
        "smoke": "Perceptrons of width 8 and 32 on 200 digits, 2 and 4 epochs.",
        "desk": (
            "Perceptrons of four hidden layers of 16, 64 and 256 with batch norm, 12, 50 and 200 epochs; the rest as "
            "in losses/collapse, whose nets are the largest ones."
        ),
        "paper": (
            "WideResNet50 of width .25 to 2, CIFAR10 and CIFAR100, 100 to 800 epochs, three seeds; the rest as in "
            "losses/collapse."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for data in DATA[profile]:
            for width in WIDTHS[profile]:
                for epochs in EPOCHS[profile]:
                    for loss in LOSSES:
                        for seed in SEEDS[profile]:
                            labels = {"data": data, "width": width, "epochs": epochs, "loss": loss, "seed": seed}
                            yield Planned(net(profile, data, width, epochs, loss, seed), labels)

    def check(self, results: Results) -> Verdict:
        widths, epochs, words, ratios, falls = results.labels("width"), results.labels("epochs"), [], [], []
        for data in results.labels("data"):
            small = results.where(data=data, width=min(widths), epochs=min(epochs))
            large = results.where(data=data, width=max(widths), epochs=max(epochs))
            ratios.append(spread(large) / max(spread(small), 1e-12))
            fall = min(_nc1(small.where(loss=loss)) / _nc1(large.where(loss=loss)) for loss in LOSSES)
            falls.append(fall)
            words.append(
                f"{data.partition(':')[0]}: the spread goes from {spread(small):.2f} (width {min(widths):g}, "
                f"{min(epochs)} epochs) to {spread(large):.2f} points (width {max(widths):g}, {max(epochs)} epochs), "
                f"NC1 falls {fall:.2g}-fold or more"
            )
        return Verdict.of(
            max(ratios) < 1 and min(falls) >= FALL,
            max(ratios),
            "spread of the test accuracies in the largest setting over that in the smallest",
            "; ".join(words) + ".",
        )

    def draw(self, results: Results) -> Any:
        sets, widths, epochs = (results.labels(name) for name in ("data", "width", "epochs"))
        picture, axes = figure(2 * len(sets), len(LOSSES), size=(1.75, 1.6), sharex=True, sharey=True)
        for place, data in enumerate(sets):
            for column, loss in enumerate(LOSSES):
                found = results.where(data=data, loss=loss)
                cells = [[found.where(width=w, epochs=e) for e in epochs] for w in widths]
                nc1 = np.array([[_nc1(cell) for cell in row] for row in cells])
                best = np.array([[100 * _accuracy(cell) for cell in row] for row in cells])
                names = [f"{w:g}" for w in widths]
                heat_map(axes[2 * place, column], nc1, names, epochs, title=f"{SHORT[loss]}: NC1", log=True)
                heat_map(axes[2 * place + 1, column], best, names, epochs, title="test accuracy, %", shown="{:.1f}")
            for row in axes[2 * place : 2 * place + 2]:
                row[0].set_ylabel("width" if len(sets) == 1 else f"{data}: width")
        for axis in axes[-1]:
            axis.set_xlabel("epochs")
        return picture

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [
            {**dict(zip(names, key, strict=True)), "nc1": _nc1(found), "test_accuracy_at_best": _accuracy(found)}
            for names in [("data", "width", "epochs", "loss")]
            for key, found in results.groups(*names)
        ]


def _nc1(results: Results) -> float:
    """Geometric mean of NC1 at the end over the seeds."""
    return float(np.exp(np.log(results.final("nc1")).mean()))


def _accuracy(results: Results) -> float:
    """Mean over the seeds."""
    return float(np.mean([best_accuracy(entry.value) for entry in results]))
