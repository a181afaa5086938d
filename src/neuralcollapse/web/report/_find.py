"""Which results a folder holds."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from ._parts import Section
from ._runs import run_section
from ._solves import solve_section
from ._studies import study_section

__all__ = ["sections"]

READERS: dict[str, Callable[[Path, str], Section]] = {
    "study.json": study_section,
    "plan.json": run_section,
    "trace.json": solve_section,
}
"""By the file that makes a folder one of results."""


def sections(folders: Iterable[str | Path]) -> list[Section]:
    """The results in all folders, in their order; ValueError names a folder without any."""
    found: list[Section] = []
    seen: set[Path] = set()
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such folder")
        places = _places(folder)
        if not places:
            raise ValueError(f"{folder}: holds no results (no {', '.join(READERS)} in it or below)")
        for place, read in places:
            if place.resolve() not in seen:
                seen.add(place.resolve())
                found.append(read(place, _anchor(place, len(found) + 1)))
    return found


def _places(folder: Path) -> list[tuple[Path, Callable[[Path, str], Section]]]:
    """The folder itself; else the results just below it and all studies, which lie deeper: studies, runs, solves."""
    own = _result_in(folder)
    if own:
        return own
    found: list[tuple[Path, Callable[[Path, str], Section]]] = []
    for child in sorted(folder.glob("*/")):
        deeper = sorted({*child.glob("*/study.json"), *child.glob("*/*/study.json")})
        found += _result_in(child) or [(path.parent, study_section) for path in deeper]
    order = list(READERS.values())
    return sorted(found, key=lambda place: order.index(place[1]))


def _result_in(folder: Path) -> list[tuple[Path, Callable[[Path, str], Section]]]:
    """The result that a folder is; of many trials that were solved together, each."""
    trials = sorted(path.parent for path in folder.glob("trial-*/trace.json"))
    if trials:  # beside their plan.json, which is not that of a training run
        return [(place, solve_section) for place in trials]
    return [(folder, read) for name, read in READERS.items() if any(folder.glob(name))][:1]


def _anchor(place: Path, number: int) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", "-".join(place.parts[-2:]).lower()).strip("-")
    return f"s{number}-{words}"
