"""Where results lie: one folder a cell, found by its key, so that a cell is run once whoever asks for it."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._support.files import write_json
from .._support.locks import locked
from ._cells import Cell

__all__ = ["Store"]

FINISHED = "cell.json"
PROGRESS = "progress"


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
        return (self.cell(cell) / FINISHED).is_file()

    def seconds(self, cell: Cell, kind: str = "seconds") -> float | None:
        """How long the cell took, by the clock or (``"cpu_seconds"``) of a processor."""
        try:
            return json.loads((self.cell(cell) / "seconds.json").read_text(encoding="utf-8"))[kind]
        except (OSError, ValueError, KeyError):
            return None

    def progress(self, cell: Cell) -> float:
        """The fraction of the cell that is done."""
        if self.finished(cell):
            return 1.0
        try:
            return min(1.0, float((self.cell(cell) / PROGRESS).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return 0.0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running cells in the same folder; ValueError if one does already."""
        with locked(self.folder):
            for left in self.folder.rglob(".*.tmp"):  # of a run that was killed while it wrote
                left.unlink(missing_ok=True)
            yield


def run_cell(cell: Cell, folder: Path, root: str | None) -> None:
    """Do a cell's work into ``folder``, saying how far it is in a small file, and mark it as finished at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    began = last = time.monotonic()
    processor = time.process_time()

    def report(fraction: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 1.0:
            last = now
            (folder / PROGRESS).write_text(f"{fraction:.6f}", encoding="utf-8")

    cell.run(folder, root=root, report=report)
    (folder / PROGRESS).unlink(missing_ok=True)
    spent = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - processor}
    write_json(folder / "seconds.json", {**spent, "process": os.getpid()})
    finish(cell, folder)


def finish(cell: Cell, folder: Path) -> None:
    """Mark the result in ``folder`` as whole."""
    facts: dict[str, Any] = {"kind": cell.kind, "key": cell.key, "spec": cell.spec()}
    write_json(folder / FINISHED, facts)
