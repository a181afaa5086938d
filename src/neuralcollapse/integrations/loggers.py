"""Where measurements go while a network trains: JSON lines, CSV, TensorBoard."""

import csv
import io
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, SupportsFloat, runtime_checkable

from .._support.checks import describe
from .._support.files import write_text
from ..metrics import CollapseReport

__all__ = ["CSVLogger", "Extra", "JSONLinesLogger", "Logger", "TensorBoardLogger", "write_all"]

Extra = Mapping[str, SupportsFloat | None]
"""Further values of a row: numbers, or tensors and arrays of one; one that is not finite counts as none."""


@runtime_checkable
class Logger(Protocol):
    """Anything that takes a report at a step."""

    def write(
        self, step: float, report: CollapseReport, split: str = "train", extra: Mapping[str, SupportsFloat | None] = {}
    ) -> None:
        """Record ``report`` on ``split`` at ``step`` (an epoch, or whatever the caller counts)."""
        ...


def _plain_number(name: str, value: Any) -> float | None:
    """A plain number; ``None`` for none and for what is not finite, which JSON has no word for."""
    if value is None:
        return None
    if isinstance(value, int):
        return int(value)
    try:
        # A loss as it comes out of a training step still hangs on its graph.
        number = float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"extra {name!r} must be a number, got {describe(value)}") from error
    return number if math.isfinite(number) else None


def _history_row(step: float, report: CollapseReport, split: str, extra: Extra) -> dict[str, Any]:
    clash = set(extra) & ({"epoch", "split"} | set(report.values))
    if clash:
        raise ValueError(f"extra must not use the names {', '.join(sorted(clash))}")
    numbers = {name: _plain_number(name, value) for name, value in extra.items()}
    return {"epoch": step, "split": split, **numbers, **report.values}


class _FileLogger:
    """A logger that appends to a file, whose folder it makes."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def _append(self, line: str) -> None:
        """Write a line; one that a killed process left unfinished ends before it."""
        with self.path.open("ab+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else f"\n{line}"
            file.write(line.encode("utf-8"))


class JSONLinesLogger(_FileLogger):
    """Appends one JSON object a line: ``epoch``, ``split``, the extra values, then the metrics by name."""

    def write(
        self, step: float, report: CollapseReport, split: str = "train", extra: Mapping[str, SupportsFloat | None] = {}
    ) -> None:
        """Append a line; a metric without a value is ``null``."""
        self._append(json.dumps(_history_row(step, report, split, extra), allow_nan=False) + "\n")


class CSVLogger(_FileLogger):
    """Appends rows to a CSV file; an existing file is continued, and a new column is added to the earlier rows."""

    def write(
        self, step: float, report: CollapseReport, split: str = "train", extra: Mapping[str, SupportsFloat | None] = {}
    ) -> None:
        """Append a row; a metric without a value is an empty cell."""
        row = {name: "" if value is None else value for name, value in _history_row(step, report, split, extra).items()}
        columns, earlier = self._read()
        new = [name for name in row if name not in columns]
        text = io.StringIO(newline="")
        if columns and not new:
            csv.DictWriter(text, columns, restval="").writerow(row)
            self._append(text.getvalue())
            return
        writer = csv.DictWriter(text, [*columns, *new], restval="")
        writer.writeheader()
        writer.writerows([*earlier, row])
        write_text(self.path, text.getvalue())

    def _read(self) -> tuple[list[str], list[dict[str, str]]]:
        if not self.path.exists():
            return [], []
        with self.path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            return list(reader.fieldnames or []), list(reader)


class TensorBoardLogger:
    """Writes scalars ``split/metric`` and the histogram of cosine margins to a TensorBoard directory."""

    def __init__(self, directory: str | os.PathLike[str]):
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(os.fspath(directory))

    def write(
        self, step: float, report: CollapseReport, split: str = "train", extra: Mapping[str, SupportsFloat | None] = {}
    ) -> None:
        """Write the metrics that have a value."""
        row = _history_row(step, report, split, extra)
        for name, value in row.items():
            if name not in ("epoch", "split") and value is not None:
                self._writer.add_scalar(f"{split}/{name}", value, round(step))
        if report.cosine_margins is not None:
            self._writer.add_histogram(f"{split}/cosine_margins", report.cosine_margins, round(step))
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


def write_all(
    loggers: tuple[Logger, ...],
    step: float,
    report: CollapseReport,
    split: str,
    extra: Mapping[str, SupportsFloat | None] = {},
) -> None:
    """Write to every logger."""
    for logger in loggers:
        logger.write(step, report, split, extra)
