"""What a study leaves when its cells have run: verdicts, picture, table and times, in a folder of its own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..._support.checks import kind_and_line
from ..._support.files import JSONObject, write_json
from ...training.run import describe_environment
from .._results import Planned, Result, Results
from .._study import Profile, Study
from ..claims import Part, Ruling
from ..pictures import Figure, empty_picture, save_picture, styled
from .store import Store

__all__ = ["StudyOutcome", "conclude_study"]

STUDY, PICTURE = "the study itself", "the picture"
"""What may fail besides cells."""


@dataclass(frozen=True)
class StudyOutcome:
    """A study's parts with their verdicts, where its files are, and what failed, by name, with errors.

    Names are those of cells; of the study itself, where it cannot judge what its cells gave; of the picture.
    """

    study: Study
    profile: Profile
    parts: tuple[Part, ...]
    folder: Path
    failures: dict[str, str]

    @property
    def headline(self) -> Part:
        """The part that decides."""
        return next(part for part in self.parts if part.decides)

    @property
    def verdict(self) -> Ruling:
        """That of the part that decides."""
        return self.headline.verdict


def conclude_study(
    study: Study,
    profile: Profile,
    planned: Sequence[Planned],
    store: Store,
    found: Mapping[str, Any],
    failed: Mapping[str, str],
) -> StudyOutcome:
    """Judge, draw and write. ``found`` and ``failed`` are what the cells gave, and their errors, by key."""
    failures = {entry.name: failed[entry.cell.key] for entry in planned if entry.cell.key in failed}
    entries = [Result(entry.labels, found[entry.cell.key]) for entry in planned if entry.cell.key in found]
    results = Results(profile, tuple(entries))
    parts, table, interactive = (), [], None
    failed_words = f"{len(failures)} of the study's cells failed." if failures else ""
    if not failures:
        try:
            parts, table, interactive = study.parts(results), study.table(results), study.interactive(results)
        except Exception as error:
            # One study's trouble with its results must not take those of the others with it.
            failures[STUDY] = kind_and_line(error)
            failed_words = f"The study cannot judge what its cells gave ({kind_and_line(error)})."
    if failed_words:
        parts = study.parts(results, failed_words)
    folder = store.study(study.name)
    save_picture(_drawn_or_empty(study, results, failures), folder / "figure", smoke=profile == "smoke")
    if interactive is not None:
        write_json(folder / "figure.json", json.loads(str(interactive.to_json())))
    write_json(folder / "table.json", table)
    write_json(folder / "timing.json", {entry.name: store.seconds(entry.cell) for entry in planned})
    write_json(folder / "environment.json", describe_environment(torch.device("cpu"), 1, 0))
    write_json(folder / "study.json", _study_facts(study, profile, planned, parts, failures, store))
    return StudyOutcome(study, profile, parts, folder, failures)


def _drawn_or_empty(study: Study, results: Results, failures: dict[str, str]) -> Figure:
    with styled():
        try:
            return study.draw(results)
        except Exception as error:
            if not failures:
                failures[PICTURE] = kind_and_line(error)
            cells = len(failures) > 1 or not failures.keys() & {STUDY, PICTURE}
            return empty_picture(f"{study.id}: {f'{len(failures)} cells' if cells else next(iter(failures))} failed")


def _study_facts(
    study: Study,
    profile: Profile,
    planned: Sequence[Planned],
    parts: Sequence[Part],
    failures: dict[str, str],
    store: Store,
) -> JSONObject:
    cells = {entry.cell.key: entry.cell for entry in planned}
    return {
        "id": study.id,
        "paper": study.paper,
        "figures": list(study.figures),
        "question": study.question,
        "profile": profile,
        "setting": study.setting.get(profile),
        "variation": None if study.variation is None else study.variation.to_dict(),
        "verdict": next(part.verdict for part in parts if part.decides),
        "parts": [part.to_dict() for part in parts],
        "failures": {name: failures[name] for name in (STUDY, PICTURE) if name in failures},
        "sensitivity": {part.name: [dict(row) for row in part.table] for part in parts if part.table},
        "cpu_minutes": sum(store.cpu_seconds(cell) or 0.0 for cell in cells.values()) / 60,
        "cells": [
            {
                "labels": dict(entry.labels),
                "kind": entry.cell.kind,
                "key": entry.cell.key,
                "error": failures.get(entry.name),
                "spec": entry.cell.spec(),
            }
            for entry in planned
        ],
    }
