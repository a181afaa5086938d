"""Figure 10 of the normalized paper: the temperature decides whether a normalised net trains, and how it collapses."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._cells import Train
from .._pictures import MARKERS, band, figure, legend_below, metric_name
from .._plans import desk_plan, paper_plan, smoke_plan
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._nets import least_loss, least_loss_of_relu, normalized

CLASSES = 10
TEMPERATURES = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 100.0)
TRAINABLE = (0.1, 10.0)
BEST = (1.0, 10.0)
FITTED = 0.99
METRICS = ("nc1", "nc2", "nc3", "accuracy", "loss")


@studies.add("normalized/temperature-net")
class TemperatureNet(Study):
    """NC1 to NC3, training accuracy and loss for eight temperatures."""

    figures = ("10",)
    question = "For which temperatures does a normalised net fit its training set, and where does it collapse best?"
    claim = (
        "The training accuracy ends at 99 % or more exactly for the temperatures from .1 to 10, and the temperature of "
        "the smallest NC1, NC2 and NC3 (by the sum of the three ranks) lies from 1 to 10."
    )
    costs = {"smoke": "2 s", "desk": "8 min on 1 core", "paper": "20 GPU minutes"}
    setting = {
        "smoke": "A perceptron on 120 digits, 3 epochs, three temperatures.",
        "desk": (
            "ResNet18 of width 8 on 1,000 CIFAR10 images of 16 x 16 (the paper's n = 100), 80 epochs of batches of 50: "
            "as many steps as the paper's 200 of 128. A tenth of the rate every 16 epochs, one seed."
        ),
        "paper": "ResNet18 on 1,000 CIFAR10 images, 200 epochs, one seed (the paper does not say how many).",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for temperature in (0.01, 1.0, 100.0) if profile == "smoke" else TEMPERATURES:
            yield Planned(Train(_plan(profile, temperature)), {"temperature": temperature})

    def check(self, results: Results) -> Verdict:
        temperatures = np.array(results.labels("temperature"))
        fitted = results.final("accuracy") >= FITTED
        expected = (temperatures >= TRAINABLE[0]) & (temperatures <= TRAINABLE[1])
        ranks = sum(np.argsort(np.argsort(results.final(name))) for name in ("nc1", "nc2", "nc3"))
        best = float(temperatures[np.argmin(ranks)])
        return Verdict.of(
            (fitted == expected).all() and BEST[0] <= best <= BEST[1],
            best,
            "temperature of the best collapse",
            f"Training accuracy of 99 % at temperatures {', '.join(f'{t:g}' for t in temperatures[fitted]) or 'none'}; "
            f"collapse is best at {best:g} (NC1 {results.where(temperature=best).final('nc1')[0]:.2g}).",
        )

    def draw(self, results: Results) -> Any:
        import matplotlib as mpl

        temperatures = results.labels("temperature")
        shades = mpl.colormaps["viridis"](np.linspace(0, 0.95, len(temperatures)))
        picture, axes = figure(2, len(METRICS), size=(1.75, 1.75))
        for column, name in enumerate(METRICS):
            log = name != "accuracy"
            for place, temperature in enumerate(temperatures):
                found = results.where(temperature=temperature)
                mark = {"marker": MARKERS[place % len(MARKERS)], "color": shades[place]}
                label = rf"$\tau$ = {temperature:g}"
                steps, runs = found.curves(name)
                band(axes[0, column], steps, runs, log=log, label=label, markevery=max(1, len(steps) // 4), **mark)
                axes[1, column].plot(temperature, found.final(name)[0], **mark, ms=4.5)
            axes[0, column].set_title(metric_name(name).partition(":")[0] if column < 3 else f"training {name}")
            axes[0, column].set_xlabel("epoch")
            axes[1, column].set_xscale("log")
            axes[1, column].set_xlabel(r"temperature $\tau$")
            for axis in axes[:, column] if log else ():
                axis.set_yscale("log")
        axes[0, 0].set_ylabel("over the epochs")
        axes[1, 0].set_ylabel("at the end")
        for style, bound, text in (("-", least_loss, "closed form"), ("--", least_loss_of_relu, "after a ReLU")):
            grid = np.geomspace(min(temperatures), max(temperatures), 200)
            line = {"color": "#666666", "linewidth": 0.9, "zorder": 1}
            axes[1, -1].plot(grid, [bound(CLASSES, t) for t in grid], style, **line)
            axes[0, 0].plot([], [], style, **line, label=f"least loss, {text}")
        final = results.final("loss")
        axes[1, -1].set_ylim(max(1e-6, final.min() / 5), 3 * final.max())
        legend_below(picture, axes[0, 0], 5)
        return picture


def _plan(profile: Profile, temperature: float) -> Any:
    settings = normalized(temperature)
    if profile == "smoke":
        return smoke_plan(**settings)
    if profile == "desk":
        small = {"data": "cifar10:size=16", "per_class": 100, "test_per_class": 50, "model": "resnet18:width=8"}
        return desk_plan(**small, **settings, epochs=80, batch_size=50, schedule="step:every=16")
    return paper_plan(**settings, per_class=100)
