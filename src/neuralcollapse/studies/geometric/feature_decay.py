"""Figure 9 of the geometric paper: decay on all parameters against decay on the features and the classifier."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._cells import Train
from .._plans import METRICS, paper_plan
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from .._twins import DATA, PAPER_NET, draw_rows, small_plan, worst

COLLAPSE = {"nc1": 0.1, "nc2": 0.25, "nc3": 0.25}
ON = {"all parameters": "parameters", "features and head": "features"}


@studies.add("geometric/feature-decay")
class FeatureDecay(Study):
    """Whether the decay of the theory does what weight decay does."""

    figures = ("9",)
    question = "Does decay on (W, H, b), as in the theory, collapse a net like weight decay on all of its parameters?"
    claim = (
        "With either decay NC1 ends below 0.1, NC2 and NC3 below 0.25, and decay on (W, H, b) loses at most two points "
        "of test accuracy."
    )
    costs = {"smoke": "2 s", "desk": "5 min of one core", "paper": "10 GPU hours"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs.",
        "desk": "",
        "paper": "",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for data, source in DATA[profile].items():
            for name, decay_on in ON.items():
                settings = {"data": source, "decay_on": decay_on, **_decay(profile, decay_on), "metrics": METRICS}
                if profile == "paper":
                    plan = paper_plan(model=PAPER_NET, **settings)
                else:
                    plan = small_plan(profile, **settings)
                yield Planned(Train(plan), {"data": data, "decay": name})

    def check(self, results: Results) -> Verdict:
        ends = {name: worst(results, name) for name in COLLAPSE}
        drops, texts = [], []
        for data in results.labels("data"):
            full, peeled = (results.where(data=data, decay=name).final("accuracy", "test").mean() for name in ON)
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


def _decay(profile: Profile, decay_on: str) -> dict[str, float]:
    if decay_on == "parameters":
        return {"weight_decay": 5e-4} if profile == "paper" else {}
    if profile == "paper":
        return {"weight_decay": 0.01, "bias_decay": 0.01, "feature_decay": 1e-5}
    return {"weight_decay": 0.01, "bias_decay": 0.01, "feature_decay": 5e-4}
