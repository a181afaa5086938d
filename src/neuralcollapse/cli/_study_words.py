"""Studies in words: the list, and all that one of them plans and claims."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._progress import MARKS
from ._terminal import at_a_word, styled

if TYPE_CHECKING:
    from rich.console import Console

    from ..studies import Claim, Planned, Profile, Study

__all__ = ["figures_of", "print_list", "print_study", "study_facts", "verdicts_in"]

SOURCES = {"text": "from the paper's text", "code": "from its released code", "guess": "our guess"}


def figures_of(study: "Study") -> str:
    """Such as "figures 3, 6, table 2"."""
    plain = [figure for figure in study.figures if figure[:1].isdigit()]
    words = [f"{'figure' if len(plain) == 1 else 'figures'} {', '.join(plain)}"] if plain else []
    return ", ".join(words + [figure for figure in study.figures if figure not in plain])


def verdicts_in(folder: Path) -> dict[str, str]:
    """What a folder of results says of each plain study, where it can be read."""
    import json

    found: dict[str, str] = {}
    for path in folder.glob("*/*/study.json"):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            if facts["profile"] != "smoke" and not facts.get("variation"):
                found[facts["id"]] = f"{facts['verdict']} ({facts['profile']})"
        except (KeyError, OSError, TypeError, ValueError):
            continue
    return found


def print_list(console: "Console", every: Sequence["Study"], verdicts: Mapping[str, str]) -> None:
    """Two lines a study, whatever the width: its name with what fits beside it, and its question."""
    from rich.text import Text

    for one in every:
        said = verdicts.get(one.id, "")
        head = Text(one.id, style="bold")
        for words, style in (
            (said, MARKS.get(said.partition(" ")[0], "")),
            (figures_of(one), ""),
            (one.costs["desk"], ""),
        ):
            if words and head.cell_len + 2 + len(words) <= console.width:
                head.append("  ").append(words, style)
        console.print(head, no_wrap=True)
        console.print(Text(f"  {at_a_word(one.question, console.width - 2)}", style="dim"), no_wrap=True)


def study_facts(study: "Study", profile: "Profile", planned: Sequence["Planned"]) -> dict[str, Any]:
    """All that ``study show`` says, as JSON."""
    return {
        "id": study.id,
        "paper": study.paper,
        "figures": list(study.figures),
        "question": study.question,
        "claims": [claim_facts(claim) for claim in study.claims],
        "profile": profile,
        "cost": study.costs[profile],
        "setting": study.setting.get(profile),
        "provenance": dict(study.provenance),
        "paper_values": dict(study.paper_values),
        "seeds": list(study.seeds(profile)),
        "cells": [
            {"labels": dict(entry.labels), "kind": entry.cell.kind, "key": entry.cell.key, **entry.cell.spec()}
            for entry in planned
        ],
    }


def claim_facts(claim: "Claim") -> dict[str, Any]:
    """A claim as JSON, its limit in words."""
    return {**asdict(claim), "limit": claim.limit.words(claim.unit)}


def print_study(console: "Console", study: "Study", profile: "Profile", planned: Sequence["Planned"]) -> None:
    """Question, claims, setting, where the settings come from, and the cells."""

    def say(text: str) -> None:
        console.print(text)

    console.print(styled((study.id, "bold"), f"  ({study.paper} paper, {figures_of(study)})"))
    say(study.question)
    say(f"\nWhat is claimed ({study.costs[profile]} at profile {profile}):")
    for claim in study.claims:
        mark = "ours" if claim.kind == "ours" else claim.source
        corrected = f", corrected by erratum {claim.erratum}" if claim.erratum is not None else ""
        say(f"- {claim.says} ({mark}{corrected})")
        say(f"  limit: {claim.limit.words(claim.unit)}")
        if claim.floor:
            say(f"  a contradiction presupposes: {claim.floor}")
        if claim.name in study.paper_values:
            say(f"  the paper's numbers: {study.paper_values[claim.name]}")
        if claim.decides_at:
            say(f"  would be decided by: {claim.decides_at}")
    if study.setting.get(profile):
        say(f"\nSetting: {study.setting[profile]}")
    if profile == "paper" and study.provenance:
        for kind, words in SOURCES.items():
            names = [name for name, source in study.provenance.items() if source == kind]
            if names:
                say(f"{words[0].upper()}{words[1:]}: {', '.join(names)}.")
    _print_cells(say, planned)


def _print_cells(say: Any, planned: Sequence["Planned"]) -> None:
    specs = [_flat(entry.cell.spec()) for entry in planned]
    common = {k: v for k, v in specs[0].items() if all(spec.get(k, ...) == v for spec in specs)}
    kinds = ", ".join(dict.fromkeys(entry.cell.kind for entry in planned))
    say(f"\n{len(planned)} cells ({kinds}).{' All have:' if common else ''}")
    for key, value in common.items():
        say(f"  {key} = {_shown(value)}")
    say("Each has besides:" if common else "Each has:")
    for entry, spec in zip(planned, specs, strict=True):
        own = ", ".join(f"{key}={_shown(value)}" for key, value in spec.items() if key not in common)
        say(f"  {entry.cell.key}  {own or entry.name}")


def _flat(spec: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in spec.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    if prefix:
        return flat
    return {key.removeprefix("plan.").removeprefix("arguments."): value for key, value in flat.items()}


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
