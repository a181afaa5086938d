"""Figure 6 of the mse paper: what the two scales of the rescaled squared error do."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from ...training import Plan
from .._cells import Train
from .._pictures import figure, series
from .._plans import desk_plan, paper_plan, smoke_plan
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from .._twins import MLP, PAPER_NET

SWEEPS: dict[Profile, dict[str, tuple[int, ...]]] = {
    "smoke": {"alpha": (1, 5), "M": (1, 5)},
    "desk": {"alpha": (1, 5, 15, 20), "M": (1, 3, 5, 7, 10)},
    "paper": {"alpha": (1, 5, 15, 20), "M": (1, 3, 5, 7, 10)},
}
NAMES = {"alpha": r"$\alpha$", "M": "M"}
LEAST = 0.8


@studies.add("mse/rescaling")
class Rescaling(Study):
    """alpha weighs the true class, M is its target: (alpha, M) = (1, 1) is the vanilla loss."""

    figures = ("6",)
    question = "Do larger scales of the squared error bring more collapse and better accuracy with many classes?"
    claim = (
        "Along both sweeps, of alpha at M = 1 and of M at alpha = 1, NC1 falls and training and test accuracy rise: "
        f"every rank correlation with the scale is at least {LEAST:g} in that sense."
    )
    costs = {"smoke": "3 s", "desk": "6 min of one core", "paper": "5 GPU days"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs, two values in each sweep.",
        "desk": "A 4 x 256 MLP with batch norm on CIFAR-100 at 16 x 16 (100 training images a class, 30 epochs) "
        "instead of ResNet18 on miniImageNet; the paper's rates and weight decay.",
        "paper": "ResNet18 on miniImageNet (500 training images of 84 x 84 a class), 200 epochs. The paper's text does "
        "not say at which value the other scale is fixed: here 1, so that both sweeps start at the vanilla loss.",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for sweep, values in SWEEPS[profile].items():
            for value in values:
                alpha, target = (value, 1) if sweep == "alpha" else (1, value)
                plan = _plan(profile, f"squared-error:alpha={alpha},target={target}")
                yield Planned(Train(plan), {"sweep": sweep, "value": value})

    def check(self, results: Results) -> Verdict:
        least, texts = 1.0, []
        for (sweep,), mine in results.groups("sweep"):
            scale = mine.labels("value")
            train, test, nc1 = mine.final("accuracy"), mine.final("accuracy", "test"), mine.final("nc1")
            least = min(least, *(_rank_correlation(scale, values) for values in (train, test, -nc1)))
            texts.append(
                f"{sweep} from {scale[0]} to {scale[-1]}: NC1 {nc1[0]:.3g} to {nc1[-1]:.3g}, training accuracy "
                f"{train[0]:.1%} to {train[-1]:.1%}, test accuracy {test[0]:.1%} to {test[-1]:.1%}"
            )
        return Verdict.of(
            least >= LEAST,
            least,
            "least rank correlation of a scale with -NC1, training or test accuracy",
            "; ".join(texts) + ".",
        )

    def draw(self, results: Results) -> Any:
        sweeps = results.labels("sweep")
        picture, axes = figure(len(sweeps), 3, size=(2.2, 1.85))
        for line, sweep in zip(axes, sweeps, strict=True):
            mine = results.where(sweep=sweep)
            names = {value: f"{NAMES[sweep]} = {value}" for value in mine.labels("value")}
            series(line[0], mine, "nc1", "value", labels=names)
            for axis, split in zip(line[1:], ("train", "test"), strict=True):
                series(axis, mine, "accuracy", "value", split=split, log=False, labels=names)
                axis.set_title(f"{split} accuracy")
            for axis in line:
                axis.set_xlabel("epoch")
                axis.locator_params(axis="x", integer=True, nbins=4)
            line[2].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return picture


def _plan(profile: Profile, loss: str) -> Plan:
    if profile == "smoke":
        return smoke_plan(loss=loss)
    epochs = {"desk": 30, "paper": 200}[profile]
    common = {
        "loss": loss,
        "epochs": epochs,
        "learning_rate": 0.01,
        "schedule": f"cosine:period={epochs},minimum=0.0001",
        "weight_decay": 1e-3,
    }
    if profile == "desk":
        data = {"data": "cifar100:size=16", "per_class": 100, "test_per_class": 20}
        return desk_plan(**{**MLP, **data, **common})
    return paper_plan(**common, data="mini-imagenet", model=PAPER_NET)


def _rank_correlation(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    """Spearman's; 0 where one of the two is constant, which neither rises nor falls."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])
