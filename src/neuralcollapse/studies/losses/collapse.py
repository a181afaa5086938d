"""Figures 1 and 5 of the losses paper: neural collapse under four losses."""

from collections.abc import Iterator, Mapping

import numpy as np

from ...training import Run
from .._common.seeds import fits
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, AtMost, Below, Claim, Evidence
from ..pictures import Figure, figure, legend_below, series
from ._nets import (
    CE,
    FL,
    LS,
    MSE,
    PROVENANCE_WITH_VARIANTS,
    SEEDS,
    SHORT,
    as_in_text,
    largest_nets,
    last_tenth,
    name_of,
)

METRICS = ("nc1", "nc2", "nc3")
LIMITS = {"nc1": 0.05, "nc2": 0.3, "nc3": 0.3}
"""What "a small value" is: for NC1 a hundredth of what random features give, for the other two a cosine of .95."""
FLOOR = "every net fits 99 % of its training set"
REST = 0.95
RESTS = f"{FLOOR}, and NC1 under LS and MSE has come to rest: the last tenth of the epochs takes off less than 5 %"
LONGER = "more epochs: these nets have not come to the end of their training"


@studies.add("losses/collapse")
class Collapse(Study):
    """NC1, NC2 and NC3 over the epochs, for CE, FL, LS and MSE."""

    figures = ("1", "5")
    question = "Do the features and the classifier collapse alike under CE, FL, LS and MSE?"
    claims = (
        *(
            Claim(
                f"{name}-small",
                f"{name.upper()} converges to a small value under all four losses, on the easier data set (largest at "
                "the end).",
                "Figure 1, Section 4.1",
                AtMost(LIMITS[name]),
                floor=FLOOR,
                decides_at=LONGER,
            )
            for name in METRICS
        ),
        Claim(
            "falls",
            "All three fall as training goes on, under all four losses, on the easier data set (largest ratio of the "
            "end to the first epoch).",
            "Figure 1, Section 4.1",
            Below(1.0),
            floor=FLOOR,
        ),
        Claim(
            "hundred-classes",
            "With 100 classes NC1 converges to a small value under LS and MSE (largest at the end).",
            "Figure 5, A.2 (where FL stands for one of the two)",
            AtMost(LIMITS["nc1"]),
            floor=RESTS,
            decides_at=LONGER,
        ),
        Claim(
            "still-falling",
            "With 100 classes NC1 of CE and FL still falls at the last epoch (largest ratio of the end to the epoch a "
            "tenth before).",
            "Figure 5, A.2",
            Below(1.0),
            floor=FLOOR,
        ),
        Claim(
            "focal-slowest",
            "With 100 classes FL falls slowest: it ends with the largest NC1 (ratio to the largest of the others).",
            "Figure 5, A.2",
            Above(1.0),
            floor=FLOOR,
        ),
    )
    costs = {"smoke": "2 s", "desk": "70 min on 1 core", "paper": "about 30 GPU days with the variants"}
    setting = {
        "smoke": "Perceptrons on 200 digits, 4 epochs.",
        "desk": (
            "A perceptron of four hidden layers of 256 with batch norm, no augmentation: 5,000 MNIST images of "
            "14 x 14, a fifth held out, 1,000 epochs, for CIFAR10; 3,000 CIFAR100 images of 16 x 16, a tenth held "
            "out, 1,300 epochs; four seeds each. Five times the paper's weight decay, but for MSE on CIFAR100, which "
            "would not fit then; else as in the paper."
        ),
        "paper": (
            "WideResNet50-2, CIFAR10 and CIFAR100, 800 epochs, three seeds. MSE is the paper's eq. (6), a sum over the "
            "classes. The variant has the released code's losses: MSE as a mean over the classes, and label smoothing "
            ".05 for .1. CIFAR100's decay was tuned by loss in the paper, without values: 5e-4 here."
        ),
    }
    provenance = PROVENANCE_WITH_VARIANTS
    final_seeds = SEEDS

    def cells(self, profile: Profile) -> Iterator[Planned]:
        return largest_nets(profile, self.seeds(profile))

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        text = as_in_text(results)
        sets = text.labels("data")
        easy = text.where(data=sets[0])
        fitted = fits(easy)
        found = {
            f"{name}-small": Evidence(
                [float(easy.where(seed=seed).final(name).max()) for seed in easy.labels("seed")],
                fitted,
                why=_finals(easy, name),
            )
            for name in METRICS
        }
        falls = [
            max(_from_first(easy.where(seed=seed), name).max() for name in METRICS) for seed in easy.labels("seed")
        ]
        found["falls"] = Evidence(falls, fitted)
        if len(sets) < 2:
            return found
        hard = text.where(data=sets[1])
        fitted, seeds = fits(hard), hard.labels("seed")

        def nc1(seed: int, *losses: str) -> float:
            return max(float(hard.where(seed=seed, loss=loss).final("nc1").max()) for loss in losses)

        still = [
            max(float(last_tenth(hard.where(seed=seed, loss=loss), "nc1").max()) for loss in (CE, FL)) for seed in seeds
        ]
        rested = all(bool((last_tenth(hard.where(loss=loss), "nc1") > REST).all()) for loss in (LS, MSE))
        why = _finals(hard, "nc1")
        return {
            **found,
            "hundred-classes": Evidence([nc1(seed, LS, MSE) for seed in seeds], fitted and rested, why=why),
            "still-falling": Evidence(still, fitted),
            "focal-slowest": Evidence([nc1(seed, FL) / nc1(seed, CE, LS, MSE) for seed in seeds], fitted, why=why),
        }

    def draw(self, results: Results) -> Figure:
        text = as_in_text(results)
        sets = text.labels("data")
        picture, axes = figure(len(sets), 3, size=(2.2, 1.9), sharex="row")
        for row, data in zip(axes, sets, strict=True):
            for axis, name in zip(row, METRICS, strict=True):
                series(axis, text.where(data=data), name, "loss", labels=SHORT)
                axis.locator_params(axis="x", integer=True, nbins=5)
            row[0].set_ylabel(name_of(data))
        for axis in axes[-1]:
            axis.set_xlabel("epoch")
        legend_below(picture, axes[0, 0])
        return picture


def _from_first(results: Results, name: str) -> np.ndarray:
    """The final value over that after the first epoch, one a run."""
    values = np.array([_curve_without_gaps(entry.value, name) for entry in results])
    return values[:, -1] / values[:, 0]


def _curve_without_gaps(run: Run, name: str) -> list[float]:
    return [np.nan if value is None else float(value) for value in run.curve(name)[1]]


def _finals(results: Results, name: str) -> str:
    """Means over the seeds at the end, by loss."""
    texts = (f"{SHORT[loss]} {results.where(loss=loss).final(name).mean():.2g}" for loss in results.labels("loss"))
    return f"Final {name.upper()}: {', '.join(texts)}."
