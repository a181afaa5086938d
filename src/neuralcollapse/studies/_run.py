"""Run studies: the cells that are missing, then each study's check, picture, table and verdict."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .._support.checks import integer
from .._support.files import write_json
from ..training.run import describe_environment
from ._cells import Cell, start_over
from ._engines import Failure, engines
from ._index import write_index
from ._pictures import empty_picture, save_picture, styled
from ._results import Planned, Result, Results
from ._store import Store
from ._study import Profile, Study, check_profile
from .claims import Part, Ruling

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Outcome", "Status", "first_steps", "run_studies"]


@dataclass(frozen=True)
class Outcome:
    """A study's parts with their verdicts, where its files are, and the cells that failed, by name, with errors."""

    study: Study
    profile: Profile
    parts: tuple[Part, ...]
    folder: Path
    failures: dict[str, str]

    @property
    def headline(self) -> Part:
        """The part that decides."""
        return next(part for part in self.parts if part.decides)

    @property
    def verdict(self) -> Ruling:
        """That of the part that decides."""
        return self.headline.verdict


@dataclass(frozen=True)
class Status:
    """How far a run is: cells that are done, of how many, and the fraction of the work that counts parts of cells."""

    done: int
    cells: int
    fraction: float
    failure: str | None = None
    """Set when a cell has just failed."""


def run_studies(
    chosen: Iterable[Study],
    profile: Profile = "desk",
    out: str | Path = "results",
    *,
    engine: str = "local",
    workers: int | None = None,
    root: str | Path | None = None,
    resume: bool = False,
    on_status: Callable[[Status], None] | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Run some studies at one profile into the folder ``out``.

    Cells with the same plan are run once, whichever study asks, and cells that ``out`` holds already are not run again.
    A cell that was interrupted starts over, or goes on from its last checkpoint with ``resume``: the result is the
    same. A cell that fails is reported and leaves the others alone; its study is then not decided.

    ``engine`` is ``"local"`` (``workers`` processes, None: one a core) or ``"ray"``; ``root`` the folder of the data.
    """
    wanted = list(chosen)
    planned = {study.id: study.planned(check_profile(profile)) for study in wanted}
    runner = engines[engine](integer("workers", workers, minimum=1) if workers is not None else None)
    store = Store(Path(out))
    place = None if root is None else str(root)
    outcomes = []
    with store.locked():
        cells = {entry.cell.key: entry.cell for entries in planned.values() for entry in entries}
        failed = _run_missing(list(cells.values()), runner, store, place, resume, on_status)
        for study in wanted:
            outcome = _conclude(study, profile, planned[study.id], store, failed)
            outcomes.append(outcome)
            if on_outcome is not None:
                on_outcome(outcome)
        write_index(store.folder)
    return outcomes


def first_steps(
    study: Study, profile: Profile, steps: int, root: str | Path | None = None
) -> Iterable[tuple[str, str]]:
    """Begin every cell of a study, stop each after a few steps, and yield its name and what came out.

    Shows that a plan works, with its data and its net, before a cluster spends a night on it; nothing is kept.
    """
    integer("steps", steps, minimum=1)
    for entry in study.planned(profile):
        yield entry.name, entry.cell.first_steps(steps, root=None if root is None else str(root))


def _run_missing(
    cells: list[Cell],
    runner: Any,
    store: Store,
    root: str | None,
    resume: bool,
    on_status: Callable[[Status], None] | None,
) -> dict[str, str]:
    """Errors by key of the cells that failed."""
    missing = [cell for cell in cells if not store.finished(cell)]
    if not resume:
        for cell in missing:
            start_over(store.cell(cell))
    left = {cell.key: cell for cell in missing}
    failed: dict[str, str] = {}

    def tell(failure: str | None = None) -> None:
        if on_status is not None:
            finished = len(cells) - len(left)
            part = sum(store.progress(cell) for cell in left.values())
            on_status(Status(finished, len(cells), (finished + part) / len(cells), failure))

    tell()
    if missing:
        for event in runner.run(missing, store, root):
            failure = None
            if isinstance(event, Failure):
                failure = failed[event.cell.key] = event.error
                del left[event.cell.key]
            elif event is not None:
                del left[event.key]
            tell(failure)
    return failed


def _conclude(
    study: Study, profile: Profile, planned: Sequence[Planned], store: Store, failed: dict[str, str]
) -> Outcome:
    failures = {entry.name: failed[entry.cell.key] for entry in planned if entry.cell.key in failed}
    found = []
    for entry in planned:
        if entry.cell.key in failed:
            continue
        try:
            found.append(Result(entry.labels, entry.cell.read(store.cell(entry.cell))))
        except (ValueError, OSError) as error:
            failures[entry.name] = (
                f"its result cannot be read ({error}); remove {store.cell(entry.cell)} to run it again"
            )
    results = Results(profile, tuple(found))
    folder = store.study(study.id)
    parts = study.parts(results, len(failures))
    save_picture(_picture(study, results, failures), folder / "figure")
    interactive = None if failures else study.interactive(results)
    if interactive is not None:
        write_json(folder / "figure.json", json.loads(interactive.to_json()))
    write_json(folder / "table.json", [] if failures else study.table(results))
    write_json(folder / "timing.json", {entry.name: store.seconds(entry.cell) for entry in planned})
    write_json(folder / "environment.json", describe_environment(torch.device("cpu"), 1, 0))
    write_json(folder / "study.json", _facts(study, profile, planned, parts, failures, store))
    return Outcome(study, profile, parts, folder, failures)


def _picture(study: Study, results: Results, failures: dict[str, str]) -> "Figure":
    with styled():
        try:
            return study.draw(results)
        except (LookupError, ValueError):
            if not failures:
                raise
            return empty_picture(f"{study.id}: {len(failures)} cells failed")


def _facts(
    study: Study,
    profile: Profile,
    planned: Sequence[Planned],
    parts: Sequence[Part],
    failures: dict[str, str],
    store: Store,
) -> dict[str, Any]:
    headline = next(part for part in parts if part.decides)
    return {
        "id": study.id,
        "paper": study.paper,
        "figures": list(study.figures),
        "question": study.question,
        "profile": profile,
        "setting": study.setting.get(profile),
        "variation": None,
        "verdict": headline.verdict,
        "parts": [part.to_dict() for part in parts],
        "sensitivity": {part.name: [dict(row) for row in part.table] for part in parts if part.table},
        "cpu_minutes": sum(store.seconds(entry.cell, "cpu_seconds") or 0.0 for entry in planned) / 60,
        "cells": [
            {
                "labels": dict(entry.labels),
                "kind": entry.cell.kind,
                "key": entry.cell.key,
                "error": failures.get(entry.name),
                "spec": entry.cell.spec(),
            }
            for entry in planned
        ],
    }
