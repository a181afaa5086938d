"""The studies in a folder of results, read only."""

import json
from pathlib import Path
from typing import Any

from ..._support.files import JSONObject
from ..._support.notation import typeset_fields

__all__ = ["ResultsFolder", "UnknownStudyError"]

LISTED = ("id", "paper", "figures", "question", "profile", "verdict")
SHOWN = (*LISTED, "parts", "setting", "variation", "cpu_minutes")
SAID = ("says", "why", "limit")
LARGEST = 20 << 20
"""Bytes up to which a file is read."""
ROWS = 500


class UnknownStudyError(Exception):
    """A study, or a picture of one, that the folder does not hold."""


class ResultsFolder:
    """What ``neuralcollapse study run --out`` wrote: ``PAPER/NAME/study.json`` and the files beside it."""

    def __init__(self, folder: Path):
        if not folder.is_dir():
            raise ValueError(f"--results {folder}: no such folder")
        self.folder = folder.resolve()

    def studies(self) -> JSONObject:
        """One entry for each study, whatever of it can be read."""
        found = []
        for name, path in self._paths().items():
            facts = _read_object(path / "study.json")
            entry = typeset_fields({key: facts.get(key) for key in LISTED}, "question")
            found.append({**entry, "id": name, "error": None if facts else "study.json cannot be read"})
        return {"folder": str(self.folder), "studies": found}

    def study(self, name: str) -> JSONObject:
        """One study: its facts, its table and its cells."""
        path = self._path(name)
        facts = _read_object(path / "study.json")
        cells = facts.get("cells")
        cells = cells if isinstance(cells, list) else []
        parts = facts.get("parts")
        errors = [cell["error"] for cell in cells if isinstance(cell, dict) and cell.get("error")]
        table = _read_value(path / "table.json") if self._inside(path / "table.json") else None
        rows = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
        return {
            **typeset_fields({key: facts.get(key) for key in SHOWN}, "question", "setting"),
            "id": name,
            "parts": [typeset_fields(part, *SAID) for part in parts if isinstance(part, dict)]
            if isinstance(parts, list)
            else [],
            "cells": len(cells),
            "failures": errors,
            "table": rows[:ROWS],
            "rows": len(rows),
            "picture": (path / "figure.svg").is_file() and self._inside(path / "figure.svg"),
        }

    def picture(self, name: str) -> bytes:
        """The study's figure as SVG."""
        file = self._path(name) / "figure.svg"
        if not self._inside(file) or not file.is_file() or file.stat().st_size > LARGEST:
            raise UnknownStudyError(f"the study {name!r} has no picture")
        return file.read_bytes()

    def _path(self, name: str) -> Path:
        paths = self._paths()
        if name not in paths:
            raise UnknownStudyError(f"there is no study {name[:80]!r} in the folder of results")
        return paths[name]

    def _paths(self) -> dict[str, Path]:
        """Folders of studies by name: a name from a request is looked up here, never joined to a path."""
        files = sorted(self.folder.glob("*/*/study.json"))
        return {f"{file.parent.parent.name}/{file.parent.name}": file.parent for file in files if self._inside(file)}

    def _inside(self, file: Path) -> bool:
        """Whether the file, links followed, lies in the folder."""
        return file.resolve().is_relative_to(self.folder)


def _read_value(file: Path) -> Any:
    try:
        if file.stat().st_size > LARGEST:
            return None
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _read_object(file: Path) -> JSONObject:
    value = _read_value(file)
    return value if isinstance(value, dict) else {}
