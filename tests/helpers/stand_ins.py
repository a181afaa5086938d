"""Results with chosen numbers, for tests of claims."""

import json

import numpy as np
from safetensors.numpy import save_file

from neuralcollapse.studies import Result, Results
from neuralcollapse.training import Run

SEEDS = (10, 11, 12)


def stand_in(folder, index, train, test=None, kept=None):
    """A run whose last measurement is ``train`` and ``test``, and which kept the arrays ``kept``."""
    path = folder / f"run-{index}"
    path.mkdir(parents=True)
    (path / "plan.json").write_text("{}")
    rows = [{"epoch": 1, "split": "train", **train}, {"epoch": 1, "split": "test", **(test or train)}]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if kept is not None:
        save_file(
            {name: np.ascontiguousarray(array) for name, array in kept.items()}, path / "features-train.safetensors"
        )
    return Run.open(path)


def results_of(folder, cells):
    """Results from (labels, values on the training set, values on the test set, perhaps arrays that were kept)."""
    return Results(
        "desk",
        tuple(Result(labels, stand_in(folder, i, *values)) for i, (labels, *values) in enumerate(cells)),
    )


def with_seeds(cells, seeds=SEEDS):
    """The same cells for each seed."""
    return [({**labels, "seed": seed}, *values) for seed in seeds for labels, *values in cells]


def rulings(study, results):
    """The verdict on each part, by name."""
    return {part.name: part.verdict for part in study.parts(results)}
