"""What a solve leaves: the point, how it got there, and how it ended; kept as plain files."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..._support.digests import damaged, digests, sealed, unsealed
from ..._support.files import write_json, write_text
from ..._support.tensors import read_tensors, write_tensors
from ..._support.theme import BLUE
from ..point import Point, load_point, save_point
from ..problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["Outcome", "Trace"]

Outcome = Literal["converged", "max_iter", "max_seconds", "stalled", "saddle"]
"""How a solve ended."""

POINTS_FILE = "points.safetensors"
FILES = ("point.safetensors", "history.jsonl", "seconds.json", "trace.json")
CHECKED = ("point.safetensors", "history.jsonl")
"""Those with a checksum: times differ whenever a solve is repeated, and ``trace.json`` must not."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The result of :func:`neuralcollapse.ufm.solve`.

    ``history`` maps a column's name to its entries, one a recorded iteration ("iteration" and "seconds"
    besides what was asked for); ``pandas.DataFrame(trace.history)`` is the table. ``outcome`` is one word:
    "converged", "max_iter", "max_seconds", "stalled" (rounding allows no further decrease) or "saddle" (a
    strict saddle that this method does not leave); ``message`` is the sentence. ``regime`` names the closed-
    form solution that was reached, if it was.
    """

    point: Point
    history: Mapping[str, Sequence[float | int | None]]
    converged: bool
    method: str
    message: str
    outcome: Outcome
    problem: Problem
    value: float
    gradient_norm: float
    iterations: int
    seconds: float
    seed: int | None = None
    regime: str | None = None
    points: Sequence[Point] | None = None
    """The point of each recorded iteration, where "points" was recorded."""

    def __repr__(self) -> str:
        return (
            f"Trace({self.method}, {self.outcome} after {self.iterations} iterations, value {self.value:.10g}, "
            f"gradient norm {self.gradient_norm:.1e}{'' if self.regime is None else f', {self.regime}'})"
        )

    def to_dataframe(self) -> "DataFrame":
        """The history as a pandas table, one row a recorded iteration."""
        import pandas

        return pandas.DataFrame({name: list(column) for name, column in self.history.items()})

    def plot(self) -> "Figure":
        """The recorded columns over the iterations, as a matplotlib figure with one panel each.

        The value is drawn as its excess over the lowest one recorded; columns that are never negative are logarithmic.
        """
        from matplotlib.figure import Figure

        names = [name for name in self.history if name not in ("iteration", "seconds")]
        figure = Figure(figsize=(3.2 * max(len(names), 1), 2.8), layout="constrained")
        axes = figure.subplots(1, max(len(names), 1), squeeze=False)[0]
        steps = list(self.history["iteration"])
        for axis, name in zip(axes, names, strict=False):
            column = [math.nan if entry is None else float(entry) for entry in self.history[name]]
            finite = [entry for entry in column if math.isfinite(entry)]
            excess = name == "value" and len(finite) > 1
            if excess:
                column = [entry - min(finite) for entry in column]
            positive = [entry for entry in column if entry > 0]
            axis.plot(steps, column, color=BLUE, marker="." if len(steps) < 30 else None)
            if positive and all(not entry < 0 for entry in column) and name != "accuracy":
                axis.set_yscale("log")
            axis.set_title(f"{name} - lowest" if excess else name)
            axis.set_xlabel("iteration")
        return figure

    def to_dict(self) -> dict[str, Any]:
        """All but the point and the history, as plain values."""
        skipped = ("point", "history", "problem", "points")
        facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in skipped}
        return {"problem": json.loads(self.problem.to_json()), **facts}

    def rows(self) -> list[dict[str, float | int | None]]:
        """The history, one mapping a recorded iteration."""
        return [dict(zip(self.history, row, strict=True)) for row in zip(*self.history.values(), strict=True)]

    def save(self, folder: str | Path) -> None:
        """Write ``point.safetensors``, ``history.jsonl``, ``seconds.json`` and, last, ``trace.json`` into
        ``folder``.

        Times have a file of their own: the others are the same, byte by byte, whenever the solve is repeated.
        ``trace.json`` has checksums of them and of itself, so that a damaged trace is not taken for a whole one.
        """
        target = Path(folder)
        save_point(target / "point.safetensors", self.point, {"problem": self.problem.to_json()})
        if self.points is not None:
            stacked = {name: [getattr(point, name) for point in self.points] for name in ("W", "H", "b")}
            arrays = {name: torch.stack(blocks) for name, blocks in stacked.items() if blocks and blocks[0] is not None}
            write_tensors(target / POINTS_FILE, arrays)
        rows = [{name: entry for name, entry in row.items() if name != "seconds"} for row in self.rows()]
        write_text(target / "history.jsonl", "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
        write_json(target / "seconds.json", {"total": self.seconds, "history": list(self.history["seconds"])})
        facts = {name: value for name, value in self.to_dict().items() if name != "seconds"}
        write_json(target / "trace.json", sealed({**facts, "files": digests(target, CHECKED)}))

    @staticmethod
    def saved_in(folder: str | Path) -> bool:
        """Whether ``folder`` holds a whole trace."""
        return all((Path(folder) / name).is_file() for name in FILES)

    @staticmethod
    def load(folder: str | Path) -> "Trace":
        """Read what :meth:`save` wrote; ValueError names what is wrong."""
        source = Path(folder)
        if not Trace.saved_in(source):
            missing = next(name for name in FILES if not (source / name).is_file())
            raise ValueError(f"{source}: not a saved trace ({missing} is missing)")
        point, _ = load_point(source / "point.safetensors")
        points = _load_points(source / POINTS_FILE) if (source / POINTS_FILE).is_file() else None
        try:
            facts = unsealed(json.loads((source / "trace.json").read_text(encoding="utf-8")))
            if broken := damaged(source, facts.pop("files", {})):
                raise ValueError(f"{broken} does not match its checksum")
            times = json.loads((source / "seconds.json").read_text(encoding="utf-8"))
            lines = (source / "history.jsonl").read_text(encoding="utf-8").splitlines()
            rows = [json.loads(line) for line in lines]
            problem = Problem.from_json(json.dumps(facts.pop("problem")))
            history: dict[str, list[float | int | None]] = {"iteration": [row["iteration"] for row in rows]}
            history["seconds"] = list(times["history"])
            for name in rows[0]:
                history.setdefault(name, [row[name] for row in rows])
            return Trace(point=point, history=history, problem=problem, seconds=times["total"], points=points, **facts)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            reason = str(error) if isinstance(error, ValueError) else repr(error)
            raise ValueError(f"{source}: not a saved trace ({' '.join(reason.split())})") from error


def _load_points(path: Path) -> tuple[Point, ...]:
    arrays, _ = read_tensors(path)
    if "H" not in arrays:
        raise ValueError(f"{path}: the array 'H' is missing")
    count = len(arrays["H"])
    rows: list[Point] = []
    for index in range(count):
        weight, bias = (arrays[name][index] if name in arrays else None for name in ("W", "b"))
        rows.append(Point(weight, arrays["H"][index], bias))
    return tuple(rows)
