"""Where measurements go while a network trains: JSON lines, CSV, TensorBoard."""

import csv
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..metrics import CollapseReport

__all__ = ["CSVLogger", "JSONLinesLogger", "Logger", "TensorBoardLogger", "write_all"]


@runtime_checkable
class Logger(Protocol):
    """Anything that takes a report at a step."""

    def write(self, step: int, report: CollapseReport, split: str = "train", extra: Mapping[str, float] = {}) -> None:
        """Record ``report`` on ``split`` at ``step`` (an epoch, or whatever the caller counts)."""
        ...


def _row(step: int, report: CollapseReport, split: str, extra: Mapping[str, float]) -> dict[str, Any]:
    clash = set(extra) & ({"epoch", "split"} | set(report.values))
    if clash:
        raise ValueError(f"extra must not use the names {', '.join(sorted(clash))}")
    for name, value in extra.items():
        if not math.isfinite(value):
            raise ValueError(f"extra {name!r} must be finite, got {value}")
    return {"epoch": step, "split": split, **extra, **report.values}


class JSONLinesLogger:
    """Appends one JSON object a line: ``epoch``, ``split``, the extra values, then the metrics by name."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, step: int, report: CollapseReport, split: str = "train", extra: Mapping[str, float] = {}) -> None:
        """Append a line; a metric without a value is ``null``."""
        line = json.dumps(_row(step, report, split, extra), allow_nan=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


class CSVLogger:
    """Appends rows to a CSV file whose columns are those of the first row; an existing file is continued."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._columns: list[str] | None = None
        if self.path.exists() and self.path.stat().st_size:
            with self.path.open(newline="", encoding="utf-8") as file:
                self._columns = next(csv.reader(file))

    def write(self, step: int, report: CollapseReport, split: str = "train", extra: Mapping[str, float] = {}) -> None:
        """Append a row; a metric without a value is an empty cell."""
        row = _row(step, report, split, extra)
        new = self._columns is None
        columns = self._columns = self._columns or list(row)
        unknown = [name for name in row if name not in columns]
        if unknown:
            raise ValueError(f"{self.path} has no column {unknown[0]!r} (it has: {', '.join(columns)})")
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            if new:
                writer.writeheader()
            writer.writerow({name: "" if value is None else value for name, value in row.items()})


class TensorBoardLogger:
    """Writes scalars ``split/metric`` and the histogram of cosine margins to a TensorBoard directory."""

    def __init__(self, directory: str | os.PathLike[str]):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(os.fspath(directory))

    def write(self, step: int, report: CollapseReport, split: str = "train", extra: Mapping[str, float] = {}) -> None:
        """Write the metrics that have a value."""
        row = _row(step, report, split, extra)
        for name, value in row.items():
            if name not in ("epoch", "split") and value is not None:
                self._writer.add_scalar(f"{split}/{name}", value, step)
        if report.cosine_margins is not None:
            self._writer.add_histogram(f"{split}/cosine_margins", report.cosine_margins, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


def write_all(
    loggers: tuple[Logger, ...],
    step: int,
    report: CollapseReport,
    split: str,
    extra: Mapping[str, float] = {},
) -> None:
    """Write to every logger."""
    for logger in loggers:
        logger.write(step, report, split, extra)
