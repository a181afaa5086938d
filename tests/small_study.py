"""A study made of whatever cells a test gives it."""

from neuralcollapse.studies import Calculation, Planned, Results, Solve, Study, Train, Verdict
from neuralcollapse.studies._pictures import figure
from neuralcollapse.training import Plan
from neuralcollapse.ufm import NormalizedUFM

PLAN = Plan(
    data="digits", per_class=6, test_per_class=4, model="mlp:width=8,depth=1", epochs=2, batch_size=16, metrics=("nc1",)
)


class Small(Study):
    id = "test/small"
    figures = ("1",)
    question = "Do cells run?"
    claim = "All of them."
    costs = {"smoke": "1 s", "desk": "1 s", "paper": "1 s"}
    decides = ("smoke", "desk", "paper")

    def __init__(self, *cells, name="test/small"):
        self.given = cells
        self.id = name

    def cells(self, profile):
        return [Planned(cell, {"cell": place}) for place, cell in enumerate(self.given)]

    def check(self, results: Results) -> Verdict:
        return Verdict.of(len(results) == len(self.given), len(results), "cells", f"{len(results)} cells ran")

    def draw(self, results: Results):
        picture, axes = figure()
        axes[0, 0].plot(range(len(results)), "o")
        return picture


def solve_cell(seed: int = 0, **options) -> Solve:
    return Solve(NormalizedUFM("ce", 3, 2, 4), "gradient-descent", seed, {"max_iter": 20, **options})


def train_cell(**changes) -> Train:
    return Train(PLAN.model_copy(update=changes))


def calculation_cell() -> Calculation:
    arguments = {"num_classes": 3, "weight_decay": 1e-3, "feature_decay": 1e-3, "points": 20}
    return Calculation("geometric/bound", arguments)
