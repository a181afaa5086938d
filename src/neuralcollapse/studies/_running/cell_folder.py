"""A cell's work in a folder of its own: how far it is, how long it took, and the mark of a whole result."""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from ..._support.files import JSONObject, digests, sealed, write_json
from .._cells import Cell
from .forecast import CellProgress

__all__ = ["FINISHED", "SECONDS", "json_object", "mark_as_whole", "read_progress", "run_cell"]

FINISHED = "cell.json"
PROGRESS = "progress.json"
SECONDS = "seconds.json"
UNCHECKED = (FINISHED, PROGRESS, SECONDS, "environment.json")
"""Files of a cell that may differ between two runs of it; the others have checksums in its mark."""


def run_cell(cell: Cell, folder: Path, root: str | None) -> None:
    """Do a cell's work into ``folder``, or go on with it, saying how far it is, and mark it as finished at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    before = read_progress(folder)
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
            part = folder / f".{PROGRESS}.{0:08d}.tmp"  # named as all unfinished files are
            part.write_text(json.dumps(asdict(spent(fraction))), encoding="utf-8")
            part.replace(folder / PROGRESS)

    cell.run(folder, root=root, report=report)
    done = spent(1.0)
    write_json(folder / SECONDS, {"seconds": done.seconds, "cpu_seconds": done.cpu_seconds, "process": os.getpid()})
    (folder / PROGRESS).unlink(missing_ok=True)
    mark_as_whole(cell, folder)


def mark_as_whole(cell: Cell, folder: Path) -> None:
    """Mark the result in ``folder`` as whole."""
    files = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    skipped = (*UNCHECKED, "checkpoints")  # which of them there are depends on the clock
    names = [str(path) for path in files if not set(path.parts) & set(skipped) and not path.name.startswith(".")]
    facts: JSONObject = {"kind": cell.kind, "key": cell.key, "spec": cell.spec(), "files": digests(folder, names)}
    write_json(folder / FINISHED, sealed(facts))


def _processor_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def read_progress(folder: Path) -> CellProgress:
    """How far a cell is; one that was killed while its result was marked as whole has told its time already."""
    facts = json_object(folder / PROGRESS) or {"fraction": 1.0, **json_object(folder / SECONDS)}
    try:
        return CellProgress(*(max(0.0, float(facts[name])) for name in ("fraction", "seconds", "cpu_seconds")))
    except (KeyError, TypeError, ValueError):
        return CellProgress()


def json_object(path: Path) -> JSONObject:
    """The JSON object in a file; nothing if there is none."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}
