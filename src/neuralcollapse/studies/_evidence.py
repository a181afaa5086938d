"""Evidence: the verdicts of final runs as small files, which pages are made from and no limit can move away from."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .._support.checks import one_line
from .._support.files import JSONObject, write_bytes, write_json
from ._cells import training_images
from ._study import Study, studies

__all__ = ["claims_differ", "collect_evidence", "plan_differs", "tables_of_parts"]

KEPT = ("id", "paper", "figures", "question", "profile", "setting", "verdict", "parts", "sensitivity")
LARGEST_PICTURE = 400_000
"""Bytes of a picture beyond which it is left out: it would weigh more than the page around it."""


def collect_evidence(
    folder: Path, out: Path, profile: str = "desk", pictures: Path | None = None, *, again: bool = False
) -> list[str]:
    """Copy the verdicts of a folder of results to ``out/PAPER/NAME.json``, and pictures to ``pictures/PAPER/NAME.svg``.

    Only plain studies at ``profile`` whose cells all ended are copied, without anything of the machine but the time
    that they took. With ``again`` those are copied instead that differ from the plain study in their seeds alone, to
    see whether they come to the same verdicts.

    Returns what was done or left out, one line a study; ValueError if there is nothing to copy.
    """
    said, copied = [], 0
    for path in sorted(folder.glob("*/*/study.json")):
        name = path.parent.relative_to(folder).as_posix()
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            reason = _unfit(facts, profile, again)
            if reason is None:
                name = facts["id"]
                write_json(out / f"{name}.json", _condensed(facts))
                left = "" if pictures is None else _copy_picture(path.parent, pictures / f"{name}.svg")
                said.append(f"{name}: {facts['verdict']}{left}")
                copied += 1
            else:
                said.append(f"{name}: left out, {reason}")
        except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            said.append(f"{name}: left out, {path} cannot be used ({one_line(error)})")
    if not copied:
        raise ValueError(f"{folder}: no finished study at profile {profile} to take as evidence")
    return said


def tables_of_parts(tables: Mapping[str, list[JSONObject]]) -> list[tuple[list[str], list[JSONObject]]]:
    """The tables of a study's parts (``sensitivity`` in study.json), each once, with the parts that share it.

    >>> tables_of_parts({"gram": [{"loss": "ce"}], "test": [{"d": 3}], "residual": [{"loss": "ce"}]})
    [(['gram', 'residual'], [{'loss': 'ce'}]), (['test'], [{'d': 3}])]
    """
    found: list[tuple[list[str], list[JSONObject]]] = []
    for name, rows in tables.items():
        names = next((names for names, known in found if known == rows), None)
        if names is None:
            found.append(([name], rows))
        else:
            names.append(name)
    return found


def claims_differ(study: Study, facts: Mapping[str, Any]) -> list[str]:
    """How the claims of a file of evidence differ from those that the study has now: they must not."""
    differences = []
    then = {part["name"]: part for part in facts["parts"]}
    now = {claim.name: claim for claim in study.claims}
    for name in sorted(set(then) ^ set(now)):
        differences.append(f"{study.id}: {name} is {'new' if name in now else 'gone'}")
    for name in sorted(set(then) & set(now)):
        claim = now[name]
        wanted = {
            **{key: getattr(claim, key) for key in ("says", "source", "kind", "floor", "erratum")},
            "limit": claim.limit.words(claim.unit),
        }
        for key, value in wanted.items():
            if then[name][key] != value:
                differences.append(f"{study.id}: {key} of {name} was {then[name][key]!r} and is {value!r}")
    return differences


def plan_differs(study: Study, facts: Mapping[str, Any]) -> bool:
    """Whether a file of evidence comes from another plan than the study has now.

    Its cells are compared by a digest of their keys; files without one by their number and their seeds.
    """
    planned = [entry.cell for entry in study.planned(facts["profile"])]
    if "plan" in facts:
        return facts["plan"] != _digest(cell.key for cell in planned)
    seeds = _seeds(cell.spec() for cell in planned)
    return (len(planned), sorted(seeds)) != (facts["cells"], facts["seeds"])


def _digest(keys: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()[:16]


def _seeds(specs: Iterable[Mapping[str, Any]]) -> set[int]:
    found = {spec.get("plan", spec.get("arguments", spec)).get("seed") for spec in specs}
    return {seed for seed in found if seed is not None}


def _unfit(facts: Mapping[str, Any], profile: str, again: bool) -> str | None:
    if facts["profile"] != profile:
        return f"it was run at profile {facts['profile']}"
    variation = facts.get("variation")
    if again and not (variation and variation["seeds"] and not variation["settings"]):
        return "it is not a run with other seeds"
    if variation and not again:
        return "it is a variation"
    if any(cell["error"] for cell in facts["cells"]):
        return "some of its cells failed"
    for name, error in facts.get("failures", {}).items():
        return f"{name} failed ({error})"
    if facts["id"] not in studies:
        return "it is not one of the papers' studies"
    differences = claims_differ(studies[facts["id"]](), facts)
    return f"its claims have changed since ({differences[0]}); run it again" if differences else None


def _condensed(facts: Mapping[str, Any]) -> JSONObject:
    cells = facts["cells"]
    plans = [cell["spec"]["plan"] for cell in cells if cell["kind"] == "train"]
    return {
        **{name: facts[name] for name in KEPT},
        "cpu_minutes": round(facts["cpu_minutes"], 2),
        "cells": len(cells),
        "nets": len(plans),
        "images": sorted({training_images(plan["data"], plan["per_class"]) for plan in plans}),
        "seeds": sorted(_seeds(cell["spec"] for cell in cells)),
        "plan": _digest(cell["key"] for cell in cells),
    }


def _copy_picture(folder: Path, target: Path) -> str:
    picture = (folder / "figure.svg").read_bytes()
    if len(picture) > LARGEST_PICTURE:
        target.unlink(missing_ok=True)
        return f" (picture of {len(picture) // 1000} kB left out)"
    write_bytes(target, picture)
    return ""
