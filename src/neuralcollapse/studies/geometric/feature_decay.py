"""Figure 9 of the geometric paper: decay on all parameters against decay on the features and the classifier."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._cells import Train
from .._plans import METRICS, desk_plan, paper_plan, smoke_plan
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from .._twins import DATA, MLP, PAPER_NET, draw_rows, worst

COLLAPSE = {"nc1": 0.15, "nc2": 0.25, "nc3": 0.25}
ALL, PEELED, LITERAL = "all parameters", "(W, H, b)", "(W, H, b), all N features"
HEAD = {"decay_on": "features", "weight_decay": 0.01, "bias_decay": 0.01}
FEATURES = 1e-5
BATCH = 128
SIZE = {"MNIST": 60_000, "CIFAR10": 50_000}
DESK_SIZE = 2_000


@studies.add("geometric/feature-decay")
class FeatureDecay(Study):
    """Whether the decay of the theory does what weight decay does.

    A plan's feature decay is on all N features. The paper's 1e-5, on the features of a batch of 128, is 1e-5 * 128/N
    there; on all N = 50,000 it is 400 times as strong, which drives the features of small nets to zero. The paper's
    text does not say which of the two its runs had: the paper profile has both.
    """

    figures = ("9",)
    question = "Does decay on (W, H, b), as in the theory, collapse a net like weight decay on all of its parameters?"
    claim = (
        "With either decay NC1 ends below 0.15, NC2 and NC3 below 0.25, and decay on (W, H, b) loses at most two "
        "points of test accuracy."
    )
    costs = {"smoke": "2 s", "desk": "4 min of one core", "paper": "1 GPU day"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs.",
        "desk": "ResNet8 of width 16 on 2,000 MNIST images of 14 x 14 and a 4 x 256 MLP with batch norm on 2,000 "
        "CIFAR10 images of 16 x 16, instead of ResNet18; 100 epochs. Decay on (W, H, b) is the paper's, on the "
        "features of a batch; decay on all parameters ten times the paper's.",
        "paper": "ResNet18 (stem with stride and pooling) on MNIST and CIFAR10. The decay of 1e-5 on H is taken on the "
        "features of a batch and, as a third run that the check leaves alone, on all N features.",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for data, settings in _settings(profile).items():
            make = {"smoke": smoke_plan, "desk": desk_plan, "paper": paper_plan}[profile]
            size = SIZE[data] if profile == "paper" else DESK_SIZE
            decays: dict[str, dict[str, Any]] = {ALL: {}, PEELED: {**HEAD, "feature_decay": FEATURES * BATCH / size}}
            if profile == "paper":
                decays[LITERAL] = {**HEAD, "feature_decay": FEATURES}
            for name, decay in decays.items():
                plan = make(**{**settings, **decay, "metrics": METRICS})
                yield Planned(Train(plan), {"data": data, "decay": name})

    def check(self, results: Results) -> Verdict:
        both = [results.where(decay=name) for name in (ALL, PEELED)]
        ends = {name: max(worst(mine, name) for mine in both) for name in COLLAPSE}
        drops, texts = [], []
        for data in results.labels("data"):
            full, peeled = (float(mine.where(data=data).final("accuracy", "test").mean()) for mine in both)
            drops.append(full - peeled)
            texts.append(f"{data}: test accuracy {full:.1%} with decay on all parameters, {peeled:.1%} on (W, H, b)")
        drop = float(np.max(drops))
        listed = ", ".join(f"{name} {value:.2g}" for name, value in ends.items())
        return Verdict.of(
            drop <= 0.02 and all(ends[name] <= limit for name, limit in COLLAPSE.items()),
            100 * drop,
            "most test accuracy lost by decay on (W, H, b), in percentage points",
            "; ".join(texts) + f". At the end at most {listed}.",
        )

    def draw(self, results: Results) -> Any:
        return draw_rows(results, "decay", (*COLLAPSE, "nc4_bias"), kept_features=False)


def _settings(profile: Profile) -> dict[str, dict[str, Any]]:
    if profile == "smoke":
        return {"digits": {}}
    if profile == "desk":
        return {"MNIST": {}, "CIFAR10": {"data": DATA["desk"]["CIFAR10"], **MLP}}
    return {name: {"data": source, "model": PAPER_NET} for name, source in DATA["paper"].items()}
