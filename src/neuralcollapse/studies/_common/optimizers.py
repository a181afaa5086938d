"""What the studies of optimizers share: SGD, Adam and L-BFGS on the same nets."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import ClassVar

import numpy as np

from .._cells import Train
from .._results import Planned, Results
from .._study import Profile, Study
from ..claims import Above, Claim, Evidence
from ..pictures import Figure
from .geometric_and_mse import (
    CODE,
    DATA,
    FLOOR,
    MARGIN_METRICS,
    MEAN_OVER_CLASSES,
    TEXT,
    PlanChanges,
    as_in_text,
    collapse_claims,
    collapse_evidence,
    draw_rows,
    net_plan,
)
from .seeds import fits, listed

__all__ = ["COLLAPSING", "DIFFERENT", "Optimizers", "accuracy_gap", "optimizer_claims"]

DIFFERENT = 0.5
"""Points of test accuracy below which two nets would be called equal: more is a different generalisation."""
COLLAPSING = ("nc1", "nc2", "nc3")
ALIKE = "with SGD, Adam and L-BFGS alike"


def optimizer_claims(source: str, where: str) -> tuple[Claim, ...]:
    """Collapse with all three, and test accuracies that differ."""
    return (
        *collapse_claims(COLLAPSING, ALIKE, source),
        Claim(
            "accuracies-differ",
            "The nets generalise notably differently: the best and the worst test accuracy on CIFAR10 are further "
            "apart than accuracies that agree.",
            where,
            Above(DIFFERENT),
            floor=FLOOR,
            unit="points",
        ),
    )


class Optimizers(Study):
    """Collapse under SGD, Adam and L-BFGS."""

    loss: ClassVar[str]
    data: ClassVar[tuple[str, ...]]
    """Names in ``DATA``, at desk and paper size."""
    desk_lbfgs: ClassVar[PlanChanges]
    """Batches and epochs of L-BFGS at desk size."""
    paper_lbfgs_rate: ClassVar[float]
    code: ClassVar[Mapping[str, PlanChanges]]
    """What the released code has for Adam and for L-BFGS where it differs from the text."""
    shown: ClassVar[tuple[str, ...]]
    """Metrics of the picture."""
    margins: ClassVar[bool]
    """Whether the picture has the cosine margins."""

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for seed in self.seeds(profile):
            for data in DATA[profile]:
                if profile != "smoke" and data not in self.data:
                    continue
                for (optimizer, variant), settings in self._settings(profile).items():
                    common = {"metrics": MARGIN_METRICS, "seed": seed}
                    plan = net_plan(profile, data, self.loss, **{**common, **settings})
                    labels = {"data": data, "optimizer": optimizer, "seed": seed}
                    if profile == "paper":
                        labels["variant"] = variant
                    yield Planned(Train(plan, features=True), labels)

    def _settings(self, profile: Profile) -> dict[tuple[str, str], PlanChanges]:
        adam = {"optimizer": "adam", "learning_rate": 1e-3}
        lbfgs = {"optimizer": "lbfgs:history=10", "schedule": "constant", "learning_rate": 0.1}
        if profile == "smoke":
            lbfgs = {**lbfgs, "batch_size": 120, "epochs": 2}
            return {("SGD", TEXT): {}, ("Adam", TEXT): adam, ("L-BFGS", TEXT): lbfgs}
        if profile == "desk":
            lbfgs = {**lbfgs, **self.desk_lbfgs}
            return {("SGD", TEXT): {}, ("Adam", TEXT): adam, ("L-BFGS", TEXT): lbfgs}
        mean = MEAN_OVER_CLASSES if self.loss == "squared-error" else {}
        lbfgs = {**lbfgs, "learning_rate": self.paper_lbfgs_rate, "batch_size": 2048}
        stored = "lbfgs:history=10,keep=True,statistics=evaluation"
        found: dict[tuple[str, str], PlanChanges] = {
            ("SGD", TEXT): {},
            ("Adam", TEXT): {**adam, "batch_size": 64},
            ("L-BFGS", TEXT): lbfgs,
            ("Adam", CODE): {**adam, **self.code["Adam"], **mean},
            ("L-BFGS", CODE): {**lbfgs, "optimizer": stored, **self.code["L-BFGS"], **mean},
        }
        return {**found, ("SGD", CODE): mean} if mean else found

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        mine = as_in_text(results)
        hardest = mine.where(data=mine.labels("data")[-1])
        gap, pair = accuracy_gap(hardest)
        tests = listed(hardest, "optimizer", "accuracy", "test", "{:.2%}")
        return {
            **collapse_evidence(mine, COLLAPSING, "optimizer"),
            "accuracies-differ": Evidence(
                gap.tolist(), floor_met=fits(hardest), why=f"Test accuracies: {tests}; {pair[0]} less {pair[1]}."
            ),
        }

    def draw(self, results: Results) -> Figure:
        return draw_rows(as_in_text(results), "optimizer", self.shown, self.margins)


def accuracy_gap(results: Results) -> tuple[np.ndarray, tuple[str, str]]:
    """Of all pairs of optimizers the one that is furthest apart on average: points of test accuracy, one a seed."""
    tests = {name: 100 * mine.final("accuracy", "test") for (name,), mine in results.groups("optimizer")}
    best, worst = max(combinations(tests, 2), key=lambda pair: abs((tests[pair[0]] - tests[pair[1]]).mean()))
    if tests[best].mean() < tests[worst].mean():
        best, worst = worst, best
    return tests[best] - tests[worst], (best, worst)
