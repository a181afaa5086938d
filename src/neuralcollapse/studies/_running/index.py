"""An index of all results of a folder, as tables that DuckDB (or anything that reads Parquet) can query."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._support.checks import one_line
from ..._support.files import JSONObject, atomic_write
from .._cells import KINDS
from .._results import name_of_labels

__all__ = ["Answer", "query", "write_index"]

TABLES = {
    "studies": ("study", "profile", "verdict", "cpu_minutes"),
    "parts": ("study", "profile", "part", "says", "kind", "verdict", "measured", "low", "high", "why"),
    "cells": ("study", "profile", "cell", "kind", "label", "loss", "data", "model", "seed", "seconds", "error"),
    "metrics": ("study", "cell", "label", "loss", "step", "split", "metric", "value"),
}
"""Columns. ``cells`` has one row for each cell of each study, ``metrics`` one for each value that was measured."""

TYPES = {
    "cpu_minutes": "DOUBLE",
    "measured": "DOUBLE",
    "low": "DOUBLE",
    "high": "DOUBLE",
    "seconds": "DOUBLE",
    "value": "DOUBLE",
    "step": "BIGINT",
    "seed": "BIGINT",
}

RUNS = ("accuracy", "loss", "value", "nc1", "nc2", "nc3")
"""Metrics whose last values are columns of ``runs``, the table that a bare condition is asked of."""


def _runs_column(metric: str) -> str:
    """A metric's column in ``runs``: the loss's value stands beside its name."""
    return "loss_value" if metric == "loss" else metric


def write_index(folder: Path) -> list[str]:
    """Write ``folder/index/{studies,parts,cells,metrics}.parquet`` from the files of all studies and cells.

    Returns what it had to leave out: the files of a study that cannot be read must not end the run of another.
    """
    notes: list[str] = []
    outcomes = list(_outcomes(folder, notes))
    rows: dict[str, Iterator[JSONObject]] = {
        "studies": (outcome for outcome in outcomes),
        "parts": (
            {**part, "study": outcome["study"], "profile": outcome["profile"], "part": part["name"]}
            for outcome in outcomes
            for part in outcome["parts"]
        ),
        "cells": _cell_rows(folder, outcomes),
        "metrics": _metric_rows(folder, outcomes, notes),
    }
    for name, columns in TABLES.items():
        types = {column: TYPES.get(column, "VARCHAR") for column in columns}
        _write_table(folder / "index" / f"{name}.parquet", types, rows[name])
    return notes


def _outcomes(folder: Path, notes: list[str]) -> Iterator[JSONObject]:
    """What the studies of the folder left, as far as it is whole; ``study`` is the id with what varies."""
    for path in sorted(folder.glob("*/*/study.json")):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            whole = set(facts) >= {"id", "profile", "verdict", "parts", "cells"}
            whole = whole and all(set(part) >= {"name", "verdict"} for part in facts["parts"])
            for cell in facts["cells"] if whole else ():
                whole = whole and set(cell) >= {"key", "error"} and cell["kind"] in KINDS
                whole = whole and isinstance(cell["labels"], dict) and isinstance(cell["spec"], dict)
        except (LookupError, OSError, RecursionError, TypeError, ValueError):
            whole, facts = False, {}
        if not whole:
            notes.append(f"{path}: not the outcome of a study; it is left out of the index")
        else:
            yield {**facts, "study": path.parent.relative_to(folder).as_posix()}


@dataclass(frozen=True)
class Answer:
    """The rows that a query gave, their columns and the columns' DuckDB types."""

    columns: list[str]
    types: list[str]
    rows: list[tuple[Any, ...]]

    def to_dicts(self) -> list[JSONObject]:
        """One mapping a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def export(self, path: Path) -> None:
        """Write a .csv or .parquet file."""
        if path.suffix not in (".csv", ".parquet"):
            raise ValueError(f"{path}: the name must end in .csv or .parquet")
        _write_table(path, dict(zip(self.columns, self.types, strict=True)), iter(self.to_dicts()))


def query(folder: str | os.PathLike[str], text: str = "") -> Answer:
    """Answer a query on the index of ``folder``: SQL on its tables, a condition on ``runs``, or nothing for all runs.

    The query sees the tables ``studies``, ``cells``, ``metrics`` and ``runs``, and no file besides.
    """
    import duckdb

    folder = Path(folder)
    if not (folder / "index" / "cells.parquet").is_file():
        raise ValueError(f"{folder}: holds no results (no index/cells.parquet); run a study with --out {folder}")
    database = duckdb.connect(":memory:")
    for name in TABLES:
        file = folder / "index" / f"{name}.parquet"
        try:
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet(?)", [str(file)])
        except duckdb.Error as error:
            raise ValueError(f"{file}: not readable ({str(error).splitlines()[0]})") from None
    last = ", ".join(
        f"arg_max(m.value, m.step) FILTER (WHERE m.metric = '{name}') AS {_runs_column(name)}" for name in RUNS
    )
    database.execute(
        "CREATE TABLE runs AS SELECT c.study, c.profile, c.label, c.loss, c.data, c.model, c.seed, m.split, "
        f"max(m.step) AS step, {last} FROM cells c JOIN metrics m ON c.study = m.study AND c.cell = m.cell "
        "AND c.label = m.label GROUP BY ALL ORDER BY ALL"
    )
    database.execute("SET enable_external_access = false; SET lock_configuration = true")
    asked = text.strip().rstrip(";")
    words = asked.lower().split()
    if not words or words[0] not in ("select", "with", "from", "describe", "summarize", "show", "pivot"):
        asked = "SELECT * FROM runs" + (f" WHERE {asked}" if asked else "")
    try:
        answer = database.sql(asked)
        return Answer(answer.columns, [str(kind) for kind in answer.types], answer.fetchall())
    except duckdb.Error as error:
        raise ValueError(f"query: {one_line(error)}") from None


def _write_table(path: Path, types: dict[str, str], rows: Iterator[JSONObject]) -> None:
    """Write rows as Parquet, or as CSV if the name says so."""
    import duckdb

    kind = "csv, header" if path.suffix == ".csv" else "parquet"

    def write(temporary: Path) -> None:
        lines = temporary.with_name(f".lines{temporary.name}")  # named as all unfinished files are
        try:
            with lines.open("w", encoding="utf-8") as file:
                for row in rows:
                    file.write(json.dumps({name: row.get(name) for name in types}, default=str) + "\n")
            with duckdb.connect(":memory:") as database:
                table = f"read_json('{_as_sql(lines)}', format = 'newline_delimited', columns = {types})"
                database.execute(
                    f"COPY (SELECT * FROM {table}) TO '{_as_sql(temporary)}' (FORMAT {kind}, USE_TMP_FILE false)"
                )
        finally:
            lines.unlink(missing_ok=True)

    atomic_write(path, write)


def _as_sql(path: Path) -> str:
    return str(path).replace("'", "''")


def _cell_rows(folder: Path, outcomes: list[JSONObject]) -> Iterator[JSONObject]:
    for outcome in outcomes:
        for cell in outcome["cells"]:
            spec = cell["spec"]
            plan = spec.get("plan") or spec.get("problem") or spec.get("arguments") or {}
            try:
                seconds = json.loads((folder / "cells" / cell["key"] / "seconds.json").read_text())["seconds"]
            except (OSError, ValueError, KeyError):
                seconds = None
            yield {
                "study": outcome["study"],
                "profile": outcome["profile"],
                "cell": cell["key"],
                "kind": cell["kind"],
                "label": name_of_labels(cell["labels"]),
                "loss": _text_or_none(plan.get("loss")),
                "data": _text_or_none(plan.get("data")),
                "model": _text_or_none(plan.get("model")),
                "seed": plan.get("seed", spec.get("seed")),
                "seconds": seconds,
                "error": cell["error"],
            }


def _metric_rows(folder: Path, outcomes: list[JSONObject], notes: list[str]) -> Iterator[JSONObject]:
    for outcome in outcomes:
        for cell in outcome["cells"]:
            if cell["error"] is not None:
                continue
            plan = cell["spec"].get("plan") or cell["spec"].get("problem") or {}
            facts = {
                "study": outcome["study"],
                "cell": cell["key"],
                "label": name_of_labels(cell["labels"]),
                "loss": _text_or_none(plan.get("loss")),
            }
            try:
                rows = list(KINDS[cell["kind"]].rows(folder / "cells" / cell["key"]))
            except (AttributeError, LookupError, OSError, TypeError, ValueError):
                notes.append(f"{folder / 'cells' / cell['key']}: not a whole result; it is left out of the index")
                continue
            for row in rows:
                for name, value in row.items():
                    if name not in ("step", "split") and isinstance(value, int | float):
                        yield {**facts, "step": row["step"], "split": row["split"], "metric": name, "value": value}


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
