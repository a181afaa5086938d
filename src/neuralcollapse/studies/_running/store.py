"""Where results lie: one folder a cell, found by its key, so that a cell is run once whoever asks for it."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ..._support.files import JSONObject, damaged, digests, locked, remove_unfinished, sealed, unsealed, write_json
from .._cells import Cell
from .forecast import CellProgress

__all__ = ["Store"]

FINISHED = "cell.json"
PROGRESS = "progress.json"
SECONDS = "seconds.json"
UNCHECKED = (FINISHED, PROGRESS, SECONDS, "environment.json")
"""Files of a cell that may differ between two runs of it; the others have checksums in its mark."""


@dataclass(frozen=True)
class Store:
    """``cells/KEY/`` with the result of each cell, its ``cell.json`` written last; ``STUDY/`` with each outcome."""

    folder: Path

    def cell(self, cell: Cell) -> Path:
        """The folder of a cell."""
        return self.folder / "cells" / cell.key

    def study(self, name: str) -> Path:
        """The folder of a study's outcome."""
        return self.folder / name

    def finished(self, cell: Cell) -> bool:
        """Whether the cell has a whole result."""
        return _json_object(self.cell(cell) / FINISHED).get("key") == cell.key

    def damaged(self, cell: Cell) -> bool:
        """Whether there is a mark of a finished cell that is not one, or a file beside it that is not what it was."""
        folder = self.cell(cell)
        if not (folder / FINISHED).exists():
            return False
        if not self.finished(cell):
            return True
        try:
            stated = unsealed(_json_object(folder / FINISHED)).get("files", {})
            return damaged(folder, stated) is not None
        except (ValueError, TypeError, AttributeError):
            return True

    def forget(self, cell: Cell) -> None:
        """Remove what there is of a cell."""
        shutil.rmtree(self.cell(cell), ignore_errors=True)

    def seconds(self, cell: Cell) -> float | None:
        """How long the cell took, all its sessions together."""
        return _json_object(self.cell(cell) / SECONDS).get("seconds")

    def cpu_seconds(self, cell: Cell) -> float | None:
        """The time of a processor that the cell took, all its sessions together."""
        return _json_object(self.cell(cell) / SECONDS).get("cpu_seconds")

    def progress(self, cell: Cell) -> CellProgress:
        """How far the cell is."""
        return _read_progress(self.cell(cell))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running cells in the same folder; ValueError if one does already."""
        with locked(self.folder):
            remove_unfinished(self.folder)
            yield


def run_cell(cell: Cell, folder: Path, root: str | None) -> None:
    """Do a cell's work into ``folder``, or go on with it, saying how far it is, and mark it as finished at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    before = _read_progress(folder)
    began = last = time.monotonic()
    processor = _processor_seconds()

    def spent(fraction: float) -> CellProgress:
        clock, cpu = time.monotonic() - began, _processor_seconds() - processor
        return CellProgress(min(1.0, fraction), before.seconds + clock, before.cpu_seconds + cpu)

    def report(fraction: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 1.0:
            last = now
            part = folder / f".{PROGRESS}.{os.getpid():08d}.tmp"  # named as all unfinished files are
            part.write_text(json.dumps(asdict(spent(fraction))), encoding="utf-8")
            part.replace(folder / PROGRESS)

    cell.run(folder, root=root, report=report)
    done = spent(1.0)
    write_json(folder / SECONDS, {"seconds": done.seconds, "cpu_seconds": done.cpu_seconds, "process": os.getpid()})
    (folder / PROGRESS).unlink(missing_ok=True)
    finish(cell, folder)


def finish(cell: Cell, folder: Path) -> None:
    """Mark the result in ``folder`` as whole."""
    files = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    skipped = (*UNCHECKED, "checkpoints")  # which of them there are depends on the clock
    names = [str(path) for path in files if not set(path.parts) & set(skipped) and not path.name.startswith(".")]
    facts: JSONObject = {"kind": cell.kind, "key": cell.key, "spec": cell.spec(), "files": digests(folder, names)}
    write_json(folder / FINISHED, sealed(facts))


def _processor_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def _read_progress(folder: Path) -> CellProgress:
    """How far a cell is; one that was killed while its result was marked as whole has told its time already."""
    facts = _json_object(folder / PROGRESS) or {"fraction": 1.0, **_json_object(folder / SECONDS)}
    try:
        return CellProgress(*(max(0.0, float(facts[name])) for name in ("fraction", "seconds", "cpu_seconds")))
    except (KeyError, TypeError, ValueError):
        return CellProgress()


def _json_object(path: Path) -> JSONObject:
    """The JSON object in a file; nothing if there is none."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}
