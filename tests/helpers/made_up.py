"""Made-up results for the studies' claims: runs, traces, and the verdicts that come of them."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from neuralcollapse.studies import Planned, Result, Results, Solve, Study
from neuralcollapse.training import Run
from neuralcollapse.ufm import Trace

SEEDS = (10, 11, 12)
Numbers = Mapping[str, float]
Splits = Mapping[str, Mapping[str, Sequence[float | None]]]


def run(
    folder: Path,
    splits: Splits,
    epochs: Sequence[int] | None = None,
    kept: Mapping[str, np.ndarray] | None = None,
) -> Run:
    """A run whose history has these columns by split, one value an epoch, and that kept some training arrays.

    >>> run(Path("x"), {"train": {"accuracy": [0.5, 1.0]}, "test": {"accuracy": [0.4, 0.5]}})  # doctest: +SKIP
    """
    folder.mkdir(parents=True)
    rows = []
    for split, columns in splits.items():
        count = len(next(iter(columns.values())))
        for place, epoch in enumerate(epochs or range(1, count + 1)):
            rows.append({"epoch": epoch, "split": split, **{name: column[place] for name, column in columns.items()}})
    rows.sort(key=lambda row: row["epoch"])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if kept is not None:
        arrays = {name: np.ascontiguousarray(array) for name, array in kept.items()}
        save_file(arrays, folder / "features-train.safetensors")
    return Run(folder)


def stand_in(
    folder: Path, index: int, train: Numbers, test: Numbers | None = None, kept: Mapping[str, np.ndarray] | None = None
) -> Run:
    """A run whose last measurement is ``train`` and ``test``, and which kept the arrays ``kept``."""
    ends = {"train": train, "test": test or train}
    splits = {split: {name: [value] for name, value in end.items()} for split, end in ends.items()}
    return run(folder / f"run-{index}", splits, kept=kept)


def results_of(folder: Path, cells: Sequence[tuple[Any, ...]]) -> Results:
    """Results from (labels, values on the training set, values on the test set, perhaps arrays that were kept)."""
    found = [Result(labels, stand_in(folder, index, *values)) for index, (labels, *values) in enumerate(cells)]
    return Results("desk", tuple(found))


def with_seeds(cells: Sequence[tuple[Any, ...]], seeds: Sequence[int] = SEEDS) -> list[tuple[Any, ...]]:
    """The same cells for each seed."""
    return [({**labels, "seed": seed}, *values) for seed in seeds for labels, *values in cells]


def ended(planned: Planned, **changes: Any) -> Trace:
    """What a solve leaves that ends exactly at the closed form, with some changes."""
    assert isinstance(planned.cell, Solve)
    optimum = planned.cell.problem.optimum()
    history = {"iteration": [0], "nc1": [0.0], "value": [optimum.value]}
    trace = Trace(optimum.point, history, True, "", "", "converged", planned.cell.problem, optimum.value, 0.0, 0, 0.0)
    return dataclasses.replace(trace, **changes)


def results(planned: Sequence[Planned], value: Callable[[Planned], Any]) -> Results:
    """Results at desk size with a value for each planned cell."""
    return Results("desk", tuple(Result(entry.labels, value(entry)) for entry in planned))


def verdicts(study: Study, found: Results) -> dict[str, str]:
    """The verdict on each part."""
    return {part.name: part.verdict for part in study.parts(found)}
