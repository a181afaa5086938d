"""Figure 8 of the losses paper: a small net trained shortly and a large one trained long, on miniImageNet."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .._cells import Train
from .._pictures import figure, legend_below, series
from .._plans import desk_plan
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._nets import DECAY, LOSSES, SEEDS, SHORT, net, optimisation

SIZES: Mapping[Profile, tuple[tuple[float, int], ...]] = {
    "smoke": ((8, 2), (32, 4)),
    "desk": ((2, 9), (8, 36)),
    "paper": ((0.25, 100), (2, 800)),
}
"""The small and the large setting: width and epochs."""
FALL = 10.0


@studies.add("losses/mini-imagenet")
class MiniImageNet(Study):
    """NC1 and test accuracy over the epochs, for each loss."""

    figures = ("8",)
    question = "Do the losses come together on a harder problem of 100 classes as well?"
    claim = (
        "From the small net and short training to the large and long, the spread of the four losses' last test "
        "accuracies (means over the seeds) shrinks, and NC1 falls at least tenfold with every loss. (Paper: 2.8 to "
        "1.05 percentage points.)"
    )
    costs = {"smoke": "2 s", "desk": "8 min on 1 core", "paper": "about 20 GPU days"}
    setting = {
        "smoke": "Perceptrons of width 8 and 32 on 200 digits, 2 and 4 epochs.",
        "desk": (
            "A stand-in for miniImageNet, which has no public address: CIFAR100 of 16 x 16, 30 images a class, and "
            "ResNet18 of width 2 for 9 epochs and of width 8 for 36, both with 128 features, one seed, no "
            "augmentation."
        ),
        "paper": (
            "WideResNet18-0.25 for 100 and WideResNet18-2 for 800 epochs on miniImageNet, three seeds; the rest as in "
            "losses/collapse."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for name, (width, epochs) in zip(("small", "large"), SIZES[profile], strict=True):
            for loss in LOSSES:
                for seed in (0,) if profile == "desk" else SEEDS[profile]:
                    yield Planned(_cell(profile, width, epochs, loss, seed), {"size": name, "loss": loss, "seed": seed})

    def check(self, results: Results) -> Verdict:
        last = {name: _last_accuracies(results.where(size=name)) for name in ("small", "large")}
        small, large = (100 * (max(last[name].values()) - min(last[name].values())) for name in ("small", "large"))
        fall = min(
            _nc1(results.where(size="small", loss=k)) / _nc1(results.where(size="large", loss=k)) for k in LOSSES
        )
        words = "; ".join(
            f"{name} " + ", ".join(f"{SHORT[loss]} {100 * value:.1f} %" for loss, value in last[name].items())
            for name in last
        )
        return Verdict.of(
            large < small and fall >= FALL,
            large / max(small, 1e-12),
            "spread of the test accuracies in the large setting over that in the small one",
            f"Test accuracy: {words}; spread {small:.2f} to {large:.2f} points; NC1 falls {fall:.2g}-fold or more.",
        )

    def draw(self, results: Results) -> Any:
        picture, axes = figure(2, 2, size=(2.35, 1.75), sharex="col")
        for column, size in enumerate(("small", "large")):
            found = results.where(size=size)
            series(axes[0, column], found, "nc1", "loss", labels=SHORT)
            series(axes[1, column], found, "accuracy", "loss", split="test", log=False, labels=SHORT)
            width, epochs = SIZES[results.profile][column]  # pyright: ignore[reportArgumentType]
            axes[0, column].set_title(f"width {width:g}, {epochs} epochs")
            axes[1, column].set_title("")
            axes[1, column].set_xlabel("epoch")
        axes[0, 0].set_ylabel("NC1: variability")
        axes[1, 0].set_ylabel("test accuracy")
        legend_below(picture, axes[0, 0])
        return picture


def _cell(profile: Profile, width: float, epochs: int, loss: str, seed: int) -> Train:
    if profile != "desk":
        return net(profile, "digits" if profile == "smoke" else "mini-imagenet", width, epochs, loss, seed)
    size = {
        "data": "cifar100:size=16",
        "per_class": 30,
        "test_per_class": 20,
        "model": f"resnet18:width={width:g},feature_dim=128",
    }
    change = {"epochs": epochs, "batch_size": 100, "loss": loss, "seed": seed}
    return Train(desk_plan(**size, **change, **optimisation(loss, DECAY)))


def _last_accuracies(results: Results) -> dict[str, float]:
    """Test accuracy of each loss at the end, mean over the seeds."""
    return {loss: float(results.where(loss=loss).final("accuracy", "test").mean()) for loss in LOSSES}


def _nc1(results: Results) -> float:
    """Geometric mean of NC1 at the end over the seeds."""
    return float(np.exp(np.log(results.final("nc1")).mean()))
