"""``neuralcollapse study``: list, show and run the papers' figures and tables."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ._app import app, print_json

if TYPE_CHECKING:
    from ..studies import Claim, Study

study = App(name="study", help="Every figure and table of the papers: list, show and run.")
app.command(study)

Flag = Annotated[bool, Parameter(negative="")]


@study.command(name="list")
def list_studies(*, json: Flag = False) -> None:
    """Say which studies there are, what they ask and what they cost.

    Parameters
    ----------
    json
        Print one JSON list instead of a table.

    """
    from rich.console import Console
    from rich.table import Table

    from ..studies import get, studies

    every = [get(name) for name in studies]
    if json:
        rows = [
            {
                "id": one.id,
                "paper": one.paper,
                "figures": list(one.figures),
                "question": one.question,
                "claims": [claim.says for claim in one.claims],
                "costs": dict(one.costs),
            }
            for one in every
        ]
        print_json(rows)
        return
    table = Table(title="studies (neuralcollapse study run ID --profile smoke|desk|paper)")
    table.add_column("id", no_wrap=True)
    table.add_column("figures")
    table.add_column("question", ratio=1)
    for profile in ("smoke", "desk", "paper"):
        table.add_column(profile)
    for one in every:
        table.add_row(one.id, ", ".join(one.figures), one.question, *(one.costs[p] for p in ("smoke", "desk", "paper")))
    Console().print(table)


@study.command
def show(name: str, /, *, profile: str = "desk", json: Flag = False) -> None:
    """Print the exact plan of a study.

    Examples
    --------
        neuralcollapse study show losses/collapse --profile paper

    Parameters
    ----------
    name
        A study of ``neuralcollapse study list``.
    profile
        smoke, desk or paper.
    json
        Print one JSON object.

    """
    from rich.console import Console

    from ..studies import get
    from ..studies._study import check_profile

    one = get(name)
    size = check_profile(profile)
    planned = one.planned(size)
    facts: dict[str, Any] = {
        "id": one.id,
        "paper": one.paper,
        "figures": list(one.figures),
        "question": one.question,
        "claims": [_claim(claim) for claim in one.claims],
        "profile": size,
        "cost": one.costs[size],
        "setting": one.setting.get(size),
        "cells": [
            {"labels": dict(entry.labels), "kind": entry.cell.kind, "key": entry.cell.key, **entry.cell.spec()}
            for entry in planned
        ],
    }
    if json:
        print_json(facts)
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{one.id}[/bold]  ({one.paper} paper: {_figures(one)}; {one.costs[size]} at profile {size})")
    console.print(one.question)
    if one.claim:
        console.print(f"Claim: {one.claim}", markup=False)
    for claim in one.claims:
        facts_of = _claim(claim)
        console.print(f"Claim ({claim.kind}, {claim.source}): {claim.says} Limit: {facts_of['limit']}.", markup=False)
        if claim.floor:
            console.print(f"  A contradiction needs: {claim.floor}.", markup=False)
    if one.setting.get(size):
        console.print(f"Setting: {one.setting[size]}")
    specs = [_flat(entry.cell.spec()) for entry in planned]
    common = {k: v for k, v in specs[0].items() if all(spec.get(k, object()) == v for spec in specs)}
    console.print(f"\n{len(planned)} cells ({planned[0].cell.kind}). All have:")
    for key, value in common.items():
        console.print(f"  {key} = {_shown(value)}", markup=False)
    console.print("Each has besides:")
    for entry, spec in zip(planned, specs, strict=True):
        own = ", ".join(f"{key}={_shown(value)}" for key, value in spec.items() if key not in common)
        console.print(f"  {entry.cell.key}  {own or entry.name}", markup=False)


@study.command
def run(
    *names: str,
    profile: str = "desk",
    out: Path = Path("results"),
    engine: str = "local",
    workers: int | None = None,
    root: Path | None = None,
    resume: Flag = False,
    first_steps: int | None = None,
    json: Flag = False,
) -> int:
    """Run studies, check their claims and draw their pictures into OUT/ID.

    Cells that OUT holds already are not run again. Exit code 1 when a cell failed.

    Examples
    --------
        neuralcollapse study run geometric/bound
        neuralcollapse study run losses/collapse losses/accuracy --profile smoke --out try
        neuralcollapse study run all --profile desk --root data --resume
        neuralcollapse study run mse/rescaling --profile paper --first-steps 2

    Parameters
    ----------
    names
        Studies of ``neuralcollapse study list``, or ``all``.
    profile
        smoke (seconds), desk (minutes) or paper (the papers' own size).
    out
        Folder of the results.
    engine
        local, or ray for a cluster.
    workers
        Processes (default: one a core).
    root
        Folder of the data sets (default: the variable NEURALCOLLAPSE_DATA).
    resume
        Let interrupted cells go on from their last checkpoint.
    first_steps
        Only begin each cell and stop after so many steps, to see that the plan works; writes nothing.
    json
        Print the outcomes as one JSON list.

    """
    from rich.console import Console

    from .. import studies as layer
    from ..studies._study import check_profile
    from ._study_progress import Display

    if not names:
        raise ValueError("study run needs the id of a study, or 'all' (see: neuralcollapse study list)")
    known = list(layer.studies) if "all" in names else list(dict.fromkeys(names))
    chosen = [layer.get(name) for name in known]
    size = check_profile(profile)
    if first_steps is not None:
        return _first_steps(chosen, size, first_steps, root)
    with Display() as display:
        outcomes = layer.run_studies(
            chosen,
            size,
            out,
            engine=engine,
            workers=workers,
            root=root,
            resume=resume,
            on_status=display.status,
            on_outcome=None if json else display.outcome,
        )
    if json:
        print_json(
            [
                {
                    "id": outcome.study.id,
                    "profile": outcome.profile,
                    "verdict": outcome.verdict,
                    "parts": [part.to_dict() for part in outcome.parts],
                    "folder": str(outcome.folder),
                    "failures": outcome.failures,
                }
                for outcome in outcomes
            ]
        )
    failed = any(outcome.failures for outcome in outcomes)
    if not json:
        Console(stderr=True, highlight=False).print(
            f"report: neuralcollapse report {out} --out report.html", soft_wrap=True
        )
    return 1 if failed else 0


def _first_steps(chosen: "list[Study]", profile: Any, steps: int, root: Path | None) -> int:
    from rich.console import Console

    from ..studies import first_steps

    console = Console(highlight=False, soft_wrap=True)
    for one in chosen:
        for name, outcome in first_steps(one, profile, steps, root):
            console.print(f"{one.id}: {name}: {outcome}", markup=False)
    return 0


def _claim(claim: "Claim") -> dict[str, Any]:
    return {**asdict(claim), "limit": claim.limit.words(claim.unit)}


def _figures(one: "Study") -> str:
    numbers = [f"figure {figure}" if figure[:1].isdigit() else figure for figure in one.figures]
    return ", ".join(numbers)


def _flat(spec: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in spec.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return {key.removeprefix("plan."): value for key, value in flat.items()} if not prefix else flat


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
