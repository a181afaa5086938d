"""Studies in words: the list, and all that one of them plans and claims."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._support.notation import typeset
from .progress import MARKS
from .terminal import at_a_word, styled_text

if TYPE_CHECKING:
    from rich.console import Console

    from ...studies import Claim, Planned, Profile, Study

__all__ = ["figures_in_words", "parts_in_words", "print_list", "print_study", "study_facts", "verdicts_in"]

SEED = "seed"
SOURCES = {"text": "from the paper's text", "code": "from its released code", "guess": "our guess"}


def figures_in_words(study: "Study") -> str:
    """Such as "figures 3, 6, table 2"."""
    plain = [figure for figure in study.figures if figure[:1].isdigit()]
    words = [f"{'figure' if len(plain) == 1 else 'figures'} {', '.join(plain)}"] if plain else []
    return ", ".join(words + [figure for figure in study.figures if figure not in plain])


class Judged(NamedTuple):
    """A study's verdict, and in words how many of the paper's parts hold, at which profile."""

    verdict: str
    words: str


def parts_in_words(study: "Study") -> str:
    """How many things the paper says: "5 parts"."""
    count = sum(claim.kind == "paper" for claim in study.claims)
    return f"{count} part{'' if count == 1 else 's'}"


def verdicts_in(folder: Path) -> dict[str, Judged]:
    """What a folder of results says of each plain study, where it can be read."""
    import json

    found: dict[str, Judged] = {}
    for path in folder.glob("*/*/study.json"):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            if facts["profile"] != "smoke" and not facts.get("variation"):
                own = [part["verdict"] for part in facts["parts"] if part["kind"] == "paper"]
                count = f"{own.count('holds')} of {len(own)} parts hold"
                found[facts["id"]] = Judged(facts["verdict"], f"{facts['verdict']}, {count} ({facts['profile']})")
        except (KeyError, OSError, TypeError, ValueError):
            continue
    return found


def print_list(console: "Console", every: Sequence["Study"], verdicts: Mapping[str, Judged]) -> None:
    """Two lines a study, whatever the width: its name with what fits beside it, and its question."""
    from rich.text import Text

    for one in every:
        said = verdicts.get(one.id)
        head = Text(one.id, style="bold")
        for words, style in (
            (said.words, MARKS.get(said.verdict, "")) if said else (parts_in_words(one), ""),
            (figures_in_words(one), ""),
            (one.costs["desk"], ""),
        ):
            if words and head.cell_len + 2 + len(words) <= console.width:
                head.append("  ").append(words, style)
        console.print(head, no_wrap=True)
        console.print(Text(f"  {at_a_word(typeset(one.question), console.width - 2)}", style="dim"), no_wrap=True)


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

    def say(text: str, indent: int = 0) -> None:
        # A line that goes on begins below its first word, so that claims stay apart.
        console.print(
            textwrap.fill(
                text,
                console.width,
                subsequent_indent=" " * indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )

    def say_symbols(text: str, indent: int = 0) -> None:
        say(typeset(text), indent)

    console.print(styled_text((study.id, "bold"), f"  ({study.paper} paper, {figures_in_words(study)})"))
    say_symbols(study.question)
    console.print()
    say(f"What is claimed ({study.costs[profile]} at profile {profile}):")
    for claim in study.claims:
        mark = "ours" if claim.kind == "ours" else claim.source
        corrected = f", corrected by erratum {claim.erratum}" if claim.erratum is not None else ""
        say_symbols(f"- {claim.says} ({mark}{corrected})", 2)
        say_symbols(f"  limit: {claim.limit.words(claim.unit)}", 4)
        if claim.floor:
            say_symbols(f"  a contradiction presupposes: {claim.floor}", 4)
        if claim.name in study.paper_values:
            say_symbols(f"  the paper's numbers: {study.paper_values[claim.name]}", 4)
        if claim.decides_at:
            say_symbols(f"  would be decided by: {claim.decides_at}", 4)
    if study.setting.get(profile):
        console.print()
        say_symbols(f"Setting: {study.setting[profile]}")
    if profile == "paper" and study.provenance:
        for kind, words in SOURCES.items():
            names = [name for name, source in study.provenance.items() if source == kind]
            if names:
                say(f"{words[0].upper()}{words[1:]}: {', '.join(names)}.")
    console.print()
    _print_cells(say, planned)


def _print_cells(say: "Callable[..., None]", planned: Sequence["Planned"]) -> None:
    """What all cells have, then what sets them apart: cells that differ in their seed alone share a line."""
    specs = [_flat_spec(entry.cell.spec()) for entry in planned]
    common = {k: v for k, v in specs[0].items() if all(spec.get(k, ...) == v for spec in specs)}
    kinds = ", ".join(dict.fromkeys(entry.cell.kind for entry in planned))
    say(f"{len(planned)} cells ({kinds}).{' All have:' if common else ''}")
    for key, value in common.items():
        say(f"  {key} = {_shown(value)}", 4)
    groups: dict[str, list[Any]] = {}
    for entry, spec in zip(planned, specs, strict=True):
        own = ", ".join(f"{key}={_shown(value)}" for key, value in spec.items() if key not in common and key != SEED)
        groups.setdefault(own or ("" if SEED in spec else entry.name), []).append(spec.get(SEED))
    say("They differ in (their keys: --json):" if len(groups) > 1 or any(groups) else "They differ in their seeds:")
    for own, seeds in groups.items():
        words = _seeds(seeds) if SEED not in common and None not in seeds else ""
        say(f"  {'; '.join(filter(None, (own, words)))}", 4)


def _seeds(seeds: Sequence[int]) -> str:
    """Such as "seeds 10 to 14", or "seed 3"."""
    each = sorted(set(seeds))
    if len(each) > 2 and each == list(range(each[0], each[-1] + 1)):
        return f"seeds {each[0]} to {each[-1]}"
    return f"{'seed' if len(each) == 1 else 'seeds'} {', '.join(map(str, each))}"


def _flat_spec(spec: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in spec.items():
        if isinstance(value, dict):
            flat |= _flat_spec(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    if prefix:
        return flat
    return {key.removeprefix("plan.").removeprefix("arguments."): value for key, value in flat.items()}


def _shown(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
