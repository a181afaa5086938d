"""A study made of whatever cells a test gives it."""

import os
import signal

from neuralcollapse._support.checks import kind_and_line
from neuralcollapse.studies import Calculation, Claim, Evidence, Holds, Planned, Results, Solve, Study, Train, engines
from neuralcollapse.studies._running.cell_folder import run_cell
from neuralcollapse.studies._running.engines.engine import Engine, Failure
from neuralcollapse.studies.pictures import figure
from neuralcollapse.training import Plan
from neuralcollapse.ufm import NormalizedUFM


@engines.add("inline")
class Inline(Engine):
    """Cells in this process: for tests of everything but the processes."""

    parallel = 1

    def run(self, cells, store, root):
        for cell in cells:
            try:
                run_cell(cell, store.cell(cell), root)
            except (ValueError, OSError) as error:
                yield Failure(cell, kind_and_line(error))
            else:
                yield cell


PLAN = Plan(
    data="digits", per_class=6, test_per_class=4, model="mlp:width=8,depth=1", epochs=2, batch_size=16, metrics=("nc1",)
)


class Small(Study):
    id = "test/small"
    figures = ("1",)
    question = "Do cells run?"
    claims = (Claim("all", "All of them do.", "Figure 1", Holds()),)
    costs = {"smoke": "1 s", "desk": "1 s", "paper": "1 s"}

    def __init__(self, *cells, name="test/small"):
        self.given = cells
        self.id = name

    def cells(self, profile):
        return [Planned(cell, {"cell": place}) for place, cell in enumerate(self.given)]

    def evidence(self, results: Results):
        return {"all": Evidence.exact(len(results) == len(self.given), why=f"{len(results)} cells ran.")}

    def draw(self, results: Results):
        picture, axes = figure()
        axes[0, 0].plot(range(len(results)), "o")
        return picture


class Deadly(Calculation):
    """Kills the process that runs it."""

    def run(self, folder, *, root, report):
        os.kill(os.getpid(), signal.SIGKILL)


def solve_cell(seed: int = 0, **options) -> Solve:
    return Solve(NormalizedUFM("ce", 3, 2, 4), "gradient-descent", seed, {"max_iter": 20, **options})


def train_cell(**changes) -> Train:
    return Train(PLAN.model_copy(update=changes))


def calculation_cell() -> Calculation:
    arguments = {"num_classes": 3, "weight_decay": 1e-3, "feature_decay": 1e-3, "points": 20}
    return Calculation("geometric/bound", arguments)
