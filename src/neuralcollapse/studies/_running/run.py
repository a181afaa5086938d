"""Run studies: the cells that are missing, then each study's verdicts, picture and table."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._support.checks import integer, one_line
from .._cells import Cell
from .._study import Profile, Study, check_profile
from .engines import Engine, Failure, Running, engines
from .forecast import Forecast
from .index import write_index
from .outcome import StudyOutcome, conclude_study
from .store import Store

__all__ = ["Status", "first_steps", "run_studies"]

TELL_SECONDS = 0.1


@dataclass(frozen=True)
class Status:
    """How far a run is: cells that are done, of how many, and the fraction of the work, parts of cells included."""

    done: int
    cells: int
    fraction: float
    seconds_left: float | None = None
    """None while nothing is known of how long cells take."""
    failure: str | None = None
    """Set when a cell has just failed."""
    note: str | None = None
    """Set when there is something to say that ends nothing: a damaged result that is run again."""


def run_studies(
    chosen: Iterable[Study],
    profile: Profile = "desk",
    out: str | Path = "results",
    *,
    engine: str = "local",
    workers: int | None = None,
    root: str | Path | None = None,
    resume: bool = True,
    on_status: Callable[[Status], None] | None = None,
    on_outcome: Callable[[StudyOutcome], None] | None = None,
) -> list[StudyOutcome]:
    """Run some studies at one profile into the folder ``out``.

    Cells with the same plan are run once, whichever study asks; cells that ``out`` holds already are not run again, and
    a cell that was interrupted goes on from its last checkpoint, to the same result. Without ``resume`` all cells of
    these studies start over. A cell that fails is reported and leaves the others alone; its study is then underpowered.

    ``engine`` is ``"local"`` (``workers`` processes, None: one a core) or ``"ray"``; ``root`` the folder of the data.
    """
    wanted = list(chosen)
    planned = {study.name: study.planned(check_profile(profile)) for study in wanted}
    runner = engines[engine](integer("workers", workers, minimum=1) if workers is not None else None)
    session = _Session(Store(Path(out)), runner, None if root is None else str(root), on_status)
    outcomes = []
    with session.store.locked():
        cells = {entry.cell.key: entry.cell for entries in planned.values() for entry in entries}
        found, failed = session.results_of(list(cells.values()), resume)
        for study in wanted:
            outcome = conclude_study(study, profile, planned[study.name], session.store, found, failed)
            outcomes.append(outcome)
            if on_outcome is not None:
                on_outcome(outcome)
        for note in write_index(session.store.folder):
            session.note(note)
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


class _Session:
    """One call of :func:`run_studies`: what is done, and what is said about it."""

    def __init__(self, store: Store, runner: Engine, root: str | None, on_status: Callable[[Status], None] | None):
        self.store, self.runner, self.root, self.on_status = store, runner, root, on_status
        self.failed: dict[str, str] = {}
        self.done = self.cells = 0
        self.forecast = Forecast([], runner.parallel)
        self.last = 0.0

    def results_of(self, cells: list[Cell], resume: bool) -> tuple[dict[str, Any], dict[str, str]]:
        """Results and errors by key. A result that turns out to be damaged is run again, once."""
        if not resume:
            for cell in cells:
                self.store.forget(cell)
        for cell in cells:
            if self.store.damaged(cell):
                self._run_again(cell, "its mark or a file of it is damaged")
        self._run(cells, [cell for cell in cells if not self.store.finished(cell)])
        found, unread = self._read(cells)
        if unread:
            for cell, error in unread:
                self._run_again(cell, error)
            self._run(cells, [cell for cell, _ in unread])
            again, unread = self._read([cell for cell, _ in unread])
            found |= again
            self.failed |= {cell.key: f"its result cannot be read ({error})" for cell, error in unread}
        return found, self.failed

    def note(self, text: str) -> None:
        """Say something that ends nothing."""
        self._tell(note=text)

    def _run_again(self, cell: Cell, why: str) -> None:
        self.note(f"{self.store.cell(cell)}: not a whole result ({why}); it is run again")
        self.store.forget(cell)

    def _read(self, cells: Sequence[Cell]) -> tuple[dict[str, Any], list[tuple[Cell, str]]]:
        found, unread = {}, []
        for cell in cells:
            if cell.key in self.failed:
                continue
            try:
                found[cell.key] = cell.read(self.store.cell(cell))
            except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
                unread.append((cell, one_line(error)))
        return found, unread

    def _run(self, cells: list[Cell], missing: list[Cell]) -> None:
        self.cells, self.done = len(cells), len(cells) - len(missing)
        self.forecast = Forecast(cells, self.runner.parallel)
        left = {cell.key for cell in missing}
        for cell in cells:
            if cell.key not in left:
                self.forecast.learn(cell, self.store.seconds(cell))
        self._tell()
        if not missing:
            return
        for event in self.runner.run(self.forecast.longest_first(missing), self.store, self.root):
            if isinstance(event, Running):
                self._tell(event.cells)
                continue
            cell = event.cell if isinstance(event, Failure) else event
            failure = event.error if isinstance(event, Failure) else None
            if failure is not None:
                self.failed[cell.key] = failure
            self.done += failure is None
            self.forecast.learn(cell, None if failure is not None else self.store.seconds(cell))
            left.discard(cell.key)
            if failure is not None or not left or time.monotonic() - self.last >= TELL_SECONDS:
                self._tell(failure=failure)

    def _tell(self, running: Sequence[Cell] = (), failure: str | None = None, note: str | None = None) -> None:
        if self.on_status is None:
            return
        self.last = time.monotonic()
        under_way = {cell.key: self.store.progress(cell) for cell in running}
        seconds = self.forecast.left(under_way)
        spent = self.forecast.spent + sum(progress.seconds for progress in under_way.values())
        work = (seconds or 0.0) * self.runner.parallel
        fraction = self.done / max(1, self.cells) if seconds is None or not work else spent / (spent + work)
        self.on_status(Status(self.done, self.cells, fraction, seconds, failure, note))
