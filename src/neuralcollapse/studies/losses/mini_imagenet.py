"""Figure 8 of the losses paper: a small net trained shortly and a large one trained long, on miniImageNet."""

from collections.abc import Iterator, Mapping

import numpy as np

from ...training import Run
from .._cells import Train
from .._common.plans import desk_plan
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtMost, Below, Claim, Evidence
from ..pictures import Figure, band, colour, figure, legend_below, marker
from ._nets import DECAY, LOSSES, PROVENANCE, SHORT, by_loss, net, optimisation, spread, spread_ratio

SIZES: Mapping[Profile, tuple[tuple[float, int], ...]] = {
    "smoke": ((8, 2), (32, 4)),
    "desk": ((2, 4), (16, 40)),
    "paper": ((0.25, 100), (2, 800)),
}
"""The small and the large setting: width and epochs."""
NAMES = ("small", "large")
FLOOR = 0.4
FLOOR_WORDS = "the large nets reach 40 % test accuracy"


@studies.add("losses/mini-imagenet")
class LossesOnMiniImageNet(Study):
    """NC1 and test accuracy over the epochs, for each loss."""

    figures = ("8",)
    question = "Do the losses come together on a harder problem as well?"
    claims = (
        Claim(
            "spread",
            "From the small net and short training to the large and long the spread of the four losses' last test "
            "accuracies shrinks, to a half or less (ratio, with a bootstrap over the seeds).",
            "Figure 8, A.3",
            AtMost(0.5),
            floor=FLOOR_WORDS,
            decides_at="more seeds, or the data itself",
        ),
        Claim(
            "nc1",
            "NC1 is smaller in the large setting under every loss (largest ratio to the small one).",
            "Figure 8, A.3",
            Below(1.0),
            floor=FLOOR_WORDS,
        ),
        Claim(
            "falls",
            "In the large setting NC1 falls as training goes on under every loss (largest ratio of the end to the "
            "first epoch).",
            "Figure 8, A.3",
            Below(1.0),
            floor=FLOOR_WORDS,
        ),
    )
    costs = {"smoke": "2 s", "desk": "20 min on 1 core", "paper": "about 20 GPU days"}
    setting = {
        "smoke": "Perceptrons of width 8 and 32 on 200 digits, 2 and 4 epochs.",
        "desk": (
            "A stand-in, since miniImageNet has no public address: 5,000 CIFAR10 images of 16 x 16, 5,000 for "
            "testing, ResNet8 of width 2 for 4 epochs and of width 16 for 40, both with 128 features, three seeds, no "
            "augmentation. On 100 classes nets of this size stay below 20 % test accuracy, where nothing could be "
            "told apart."
        ),
        "paper": (
            "WideResNet18-0.25 for 100 and WideResNet18-2 for 800 epochs on miniImageNet, three seeds, nothing held "
            "out, as last accuracies are reported; the rest as in losses/collapse."
        ),
    }
    provenance = {
        **{name: source for name, source in PROVENANCE.items() if "CIFAR100" not in name and "validation" not in name},
        "validation (none: last accuracies)": "guess",
    }
    paper_values = {
        "spread": "CE .7195, MSE .6915, FL .7020, LS .7040 to CE .7930, MSE .7962, FL .7932, LS .8020: 2.80 to .90 "
        "points, a ratio of .32",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for name, (width, epochs) in zip(NAMES, SIZES[profile], strict=True):
            for loss in LOSSES:
                for seed in self.seeds(profile):
                    yield Planned(_cell(profile, width, epochs, loss, seed), {"size": name, "loss": loss, "seed": seed})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        sides = {name: results.where(size=name) for name in NAMES}
        last = {name: by_loss(found, _last_test_accuracy) for name, found in sides.items()}
        met = bool((sides["large"].final("accuracy", "test") >= FLOOR).all())
        ratio, low, high = spread_ratio(last["small"], last["large"])
        words = "; ".join(
            f"{name} " + ", ".join(f"{SHORT[loss]} {values.mean():.1f} %" for loss, values in last[name].items())
            for name in NAMES
        )
        seeds = results.labels("seed")
        nc1 = {
            (name, loss): np.array([found.where(loss=loss, seed=seed).final("nc1")[0] for seed in seeds])
            for name, found in sides.items()
            for loss in LOSSES
        }
        fall = [_fall(sides["large"].where(seed=seed)) for seed in seeds]
        return {
            "spread": Evidence.interval(
                ratio,
                low,
                high,
                floor_met=met,
                why=f"Test accuracy: {words}; spread {spread(last['small']):.2f} to {spread(last['large']):.2f}.",
            ),
            "nc1": Evidence(
                list(np.max([nc1["large", loss] / nc1["small", loss] for loss in LOSSES], 0)),
                met,
                why=", ".join(
                    f"{SHORT[loss]} {nc1['small', loss].mean():.2g} to {nc1['large', loss].mean():.2g}"
                    for loss in LOSSES
                )
                + ".",
            ),
            "falls": Evidence(fall, met),
        }

    def draw(self, results: Results) -> Figure:
        picture, axes = figure(2, 2, size=(2.35, 1.75), sharex="col")
        for column, size in enumerate(NAMES):
            found = results.where(size=size)
            # CE last and thinner: FL lies on it.
            for place, loss in enumerate(reversed(LOSSES)):
                runs = found.where(loss=loss)
                line = {"color": colour(loss), "linewidth": 1.0 if loss == LOSSES[0] else 1.8, "label": SHORT[loss]}
                for axis, name, split in ((axes[0, column], "nc1", "train"), (axes[1, column], "accuracy", "test")):
                    steps, values = runs.curves(name, split)
                    every = (place, max(4, len(steps) // 3))
                    band(axis, steps, values, log=name == "nc1", **line, marker=marker(loss), markevery=every)
            width, epochs = SIZES[results.profile][column]  # pyright: ignore[reportArgumentType]
            axes[0, column].set_yscale("log")
            axes[0, column].set_title(f"width {width:g}, {epochs} epochs")
            axes[1, column].set_xlabel("epoch")
            axes[1, column].locator_params(axis="x", integer=True, nbins=5)
        axes[0, 0].set_ylabel("NC1: variability")
        axes[1, 0].set_ylabel("test accuracy")
        legend_below(picture, axes[0, 0])
        return picture


def _cell(profile: Profile, width: float, epochs: int, loss: str, seed: int) -> Train:
    if profile == "smoke":
        return net(profile, "digits", width, epochs, loss, seed)
    if profile == "paper":
        return net(profile, "mini-imagenet", width, epochs, loss, seed, {"validation": 0.0})
    size = {"data": "cifar10:size=16", "per_class": 500, "test_per_class": 500}
    model = {"model": f"resnet8:width={width:g},feature_dim=128", "init": "torch", "batch_size": 100}
    change = {"epochs": epochs, "loss": loss, "seed": seed, "metrics": ("nc1", "nc2", "nc3")}
    return Train(desk_plan(**size, **model, **change, **optimisation(loss, DECAY)))


def _last_test_accuracy(run: Run) -> float:
    return run.final("test")["accuracy"]


def _fall(results: Results) -> float:
    """The largest ratio of NC1 at the end to that after the first epoch."""
    curves = [entry.value.curve("nc1")[1] for entry in results]
    return max(float(values[-1]) / float(values[0]) for values in curves)
