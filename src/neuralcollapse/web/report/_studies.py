"""The folder of a study's outcome as a section."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..._support.files import JSONObject
from ..._support.notation import typeset_fields
from ...studies import Variation, tables_of_parts
from ._numbers import heading, shown
from ._parts import Badge, Chart, Details, Picture, Section, Table, table_of
from ._stored import environment, optional_json, read_json
from ._svg import inline_svg, read_svg

__all__ = ["BADGES", "common_and_own", "study_section"]

NEEDED = ("id", "paper", "figures", "question", "profile", "verdict", "parts", "cells")
BADGES = {
    "holds": Badge("holds", "good"),
    "contradicted": Badge("contradicted", "bad"),
    "underpowered": Badge("underpowered", "open"),
}


def study_section(folder: Path, anchor: str) -> Section:
    """What ``study run`` wrote about one study; ValueError names a file that cannot be used."""
    path = folder / "study.json"
    facts = read_json(path, dict, NEEDED)
    if facts["verdict"] not in BADGES:
        raise ValueError(f"{path}: verdict {facts['verdict']!r} is none of {', '.join(BADGES)}")
    try:
        parts = [typeset_fields(part, "says", "why", "limit") for part in facts["parts"]]
        return _section(folder, anchor, typeset_fields(facts, "question", "setting") | {"parts": parts})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not the outcome of a study ({error!r})") from error


def _section(folder: Path, anchor: str, facts: JSONObject) -> Section:
    timing = optional_json(folder / "timing.json", dict)
    seconds = [value for value in timing.values() if value is not None]
    rows = table_of("The numbers behind the picture.", optional_json(folder / "table.json", list))
    failures = dict(facts.get("failures", {}))
    failures |= {_shown_labels(cell["labels"]): cell["error"] for cell in facts["cells"] if cell.get("error")}
    headline = next((part for part in facts["parts"] if part["decides"]), None)
    if headline is None:
        raise KeyError("decides")
    varied = _variation_in_words(facts)
    described = {"Decided by": headline["says"], "Found": headline["why"]}
    if facts.get("setting"):
        described["Setting"] = facts["setting"]
    if varied:
        described["Variation"] = f"Not as the study has it: {varied}."
    sensitivity = [
        table_of(f"The numbers behind {', '.join(names)}.", rows)
        for names, rows in tables_of_parts(facts.get("sensitivity", {}))
    ]
    failed = table_of("What failed.", [{"what": name, "error": error} for name, error in failures.items()])
    return Section(
        anchor=anchor,
        title=f"{facts['id']} ({varied})" if varied else facts["id"],
        kind="study",
        source=_source_in_words(facts["paper"], facts["figures"]),
        lead=facts["question"],
        badge=BADGES[facts["verdict"]],
        merit=shown(headline["measured"]),
        merit_is=f"{headline['says']} Limit: {headline['limit']}.",
        seconds=sum(seconds) if seconds else None,
        facts=described,
        pictures=[_picture_of_study(folder, anchor, facts)],
        tables=[table for table in (_claims_table(facts["parts"]), *sensitivity, failed, rows) if table is not None],
        details=[
            _plan_details(facts),
            Details("Environment", {heading(k): shown(v) for k, v in environment(folder).items()}),
        ],
        command=_command(folder, facts),
        smoke=facts["profile"] == "smoke",
    )


def _variation_in_words(facts: Mapping[str, Any]) -> str:
    """What is not as the study has it, in words; nothing for a plain study."""
    given = facts.get("variation")
    if not given:
        return ""
    return Variation(given["settings"], None if given["seeds"] is None else tuple(given["seeds"])).words


def _claims_table(parts: Sequence[Mapping[str, Any]]) -> Table | None:
    """What the paper says, part by part; our additions are marked."""
    rows = []
    for part in parts:
        known = part["low"] is not None and part["low"] != part["high"]
        interval = f"{shown(part['low'])} to {shown(part['high'])}" if known else ""
        ours = " (ours)" if part["kind"] == "ours" else ""
        corrected = f" (erratum {part['erratum']})" if part["erratum"] is not None else ""
        rows.append(
            {
                "says": part["says"] + ours,
                "source": part["source"] + corrected,
                "verdict": part["verdict"],
                "measured": shown(part["measured"]),
                "interval": interval,
                "limit": part["limit"],
                "why": part["why"],
            }
        )
    return _texts_of_settings(table_of("What the paper says, part by part.", rows))


def _source_in_words(paper: str, figures: Sequence[str]) -> str:
    named = [f"figure {text}" if text[:1].isdigit() else text for text in figures]
    return f"{paper} paper, {', '.join(named)}" if named else paper


def _command(folder: Path, facts: Mapping[str, Any]) -> str:
    from ...studies.demo import Demo

    out = shlex.quote(str(folder.parent.parent))
    if facts["id"] == Demo.id:
        return f"neuralcollapse demo --out {out}"
    given = facts.get("variation") or {"settings": {}, "seeds": None}
    changes = "".join(f" --set {shlex.quote(f'{name}={value}')}" for name, value in given["settings"].items())
    if given["seeds"] is not None:
        changes += f" --seeds {','.join(map(str, given['seeds']))}"
    return f"neuralcollapse study run {facts['id']} --profile {facts['profile']}{changes} --out {out}"


def _picture_of_study(folder: Path, anchor: str, facts: Mapping[str, Any]) -> Picture:
    label = f"Picture of the study {facts['id']}. {facts['question']} The claim: {facts['verdict']}."
    path = folder / "figure.svg"
    drawing = inline_svg(read_svg(path), anchor, label, path)
    charts = []
    if (folder / "figure.json").exists():
        figure = read_json(folder / "figure.json", dict, ("data", "layout"))
        if not isinstance(figure["data"], list) or not isinstance(figure["layout"], dict):
            raise ValueError(f"{folder / 'figure.json'}: not a plotly figure")
        charts.append(Chart(figure, label, own=False))
    return Picture(drawing, charts)


# The plan --------------------------------------------------------------------------------------------------------


def _plan_details(facts: Mapping[str, Any]) -> Details:
    cells = facts["cells"]
    common, own = common_and_own([_flat_settings(cell["spec"]) for cell in cells])
    rows = []
    for cell, settings in zip(cells, own, strict=True):
        rows.append({"cell": _shown_labels(cell["labels"]), "kind": cell["kind"], **settings, "key": cell["key"]})
    table = table_of("What differs between the cells.", rows)
    listed = {heading(name): shown(value) for name, value in common.items()}
    return Details(
        f"Plan: {len(cells)} {'cell' if len(cells) == 1 else 'cells'} at profile {facts['profile']}",
        listed,
        _texts_of_settings(table),
    )


def _texts_of_settings(table: Table | None) -> Table | None:
    """The table with all columns set as text: settings are names, not measurements."""
    return table and Table(table.caption, table.headings, table.rows, [False] * len(table.headings))


def common_and_own(specs: Sequence[Mapping[str, Any]]) -> tuple[JSONObject, list[JSONObject]]:
    """The settings that all have, and those of each besides.

    >>> common_and_own([{"K": 4, "seed": 0}, {"K": 4, "seed": 1}])
    ({'K': 4}, [{'seed': 0}, {'seed': 1}])
    """
    first = specs[0] if specs else {}
    common = {name: value for name, value in first.items() if all(s.get(name, ...) == value for s in specs)}
    return common, [{name: value for name, value in spec.items() if name not in common} for spec in specs]


def _flat_settings(spec: Mapping[str, Any], prefix: str = "") -> JSONObject:
    flat: JSONObject = {}
    for name, value in spec.items():
        if isinstance(value, dict):
            flat |= _flat_settings(value, prefix if name in ("plan", "arguments") else f"{prefix}{name} ")
        else:
            flat[prefix + name] = value
    return flat


def _shown_labels(labels: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {shown(value)}" for name, value in labels.items())
