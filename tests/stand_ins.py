"""Results with chosen numbers, for tests of checks."""

import json

from neuralcollapse.studies import Result, Results
from neuralcollapse.training import Run


def stand_in(folder, index, train, test=None):
    """A run whose last measurement is ``train`` and ``test``."""
    path = folder / f"run-{index}"
    path.mkdir(parents=True)
    (path / "plan.json").write_text("{}")
    rows = [{"epoch": 1, "split": "train", **train}, {"epoch": 1, "split": "test", **(test or train)}]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Run.open(path)


def results_of(folder, cells):
    """Results from (labels, values on the training set, values on the test set)."""
    return Results(
        "desk",
        tuple(Result(labels, stand_in(folder, i, train, test)) for i, (labels, train, test) in enumerate(cells)),
    )
