"""Where results lie: one folder a cell, found by its key, so that a cell is run once whoever asks for it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..._support.files import damaged, locked, remove_unfinished, unsealed
from .._cells import Cell
from .cell_folder import FINISHED, SECONDS, json_object, read_progress
from .forecast import CellProgress

__all__ = ["Store"]


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
        return json_object(self.cell(cell) / FINISHED).get("key") == cell.key

    def damaged(self, cell: Cell) -> bool:
        """Whether there is a mark of a finished cell that is not one, or a file beside it that is not what it was."""
        folder = self.cell(cell)
        if not (folder / FINISHED).exists():
            return False
        if not self.finished(cell):
            return True
        try:
            stated = unsealed(json_object(folder / FINISHED)).get("files", {})
            return damaged(folder, stated) is not None
        except (ValueError, TypeError, AttributeError):
            return True

    def forget(self, cell: Cell) -> None:
        """Remove what there is of a cell."""
        shutil.rmtree(self.cell(cell), ignore_errors=True)

    def seconds(self, cell: Cell) -> float | None:
        """How long the cell took, all its sessions together."""
        return json_object(self.cell(cell) / SECONDS).get("seconds")

    def cpu_seconds(self, cell: Cell) -> float | None:
        """The time of a processor that the cell took, all its sessions together."""
        return json_object(self.cell(cell) / SECONDS).get("cpu_seconds")

    def progress(self, cell: Cell) -> CellProgress:
        """How far the cell is."""
        return read_progress(self.cell(cell))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running cells in the same folder; ValueError if one does already."""
        with locked(self.folder):
            remove_unfinished(self.folder)
            yield
