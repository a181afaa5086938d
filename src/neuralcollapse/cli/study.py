"""``neuralcollapse study``: list, show and run the papers' figures and tables."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ._app import Flag, app, print_json
from ._output.terminal import say_next, terminal

if TYPE_CHECKING:
    from ..studies import Profile, Study

study = App(name="study", help="The figures and tables of the papers: list, show and run.")
app.command(study)

RESULTS = Path("results")


@study.command(name="list")
def list_studies(*, out: Path = RESULTS, json: Flag = False) -> None:
    """Say which studies there are, what they ask, what they cost and, where they have run, what came out.

    **Try:**

    ```
    neuralcollapse study list
    neuralcollapse study list --out results --json
    ```

    Parameters
    ----------
    out
        Folder of the results that verdicts are read from.
    json
        Print one JSON list instead.

    """
    from ..studies import get, studies
    from ._output.study_tables import figures_in_words, parts_in_words, print_list, verdicts_in
    from ._output.terminal import write_tabs

    every = [get(name) for name in studies]
    verdicts = verdicts_in(out)
    if json:
        print_json(
            [
                {
                    "id": one.id,
                    "paper": one.paper,
                    "figures": list(one.figures),
                    "question": one.question,
                    "claims": [claim.says for claim in one.claims if claim.kind == "paper"],
                    "costs": dict(one.costs),
                    "verdict": verdicts[one.id].words if one.id in verdicts else None,
                }
                for one in every
            ]
        )
        return
    console = terminal()
    if console.is_terminal:
        print_list(console, every, verdicts)
    else:
        write_tabs(
            ("study", "figures", "parts", "cost", "verdict", "question"),
            [
                (
                    *(one.id, figures_in_words(one), parts_in_words(one), one.costs["desk"]),
                    *(verdicts[one.id].words if one.id in verdicts else "", one.question),
                )
                for one in every
            ],
        )
    say_next("neuralcollapse study show ID", "neuralcollapse study run ID --profile smoke|desk|paper")


@study.command
def show(name: str, /, *, profile: str = "desk", json: Flag = False) -> None:
    """Print what a study claims, with limits and floors, and its exact plan.

    **Try:**

    ```
    neuralcollapse study show losses/collapse --profile paper
    ```

    Parameters
    ----------
    name
        A study of ``neuralcollapse study list``.
    profile
        smoke, desk or paper.
    json
        Print one JSON object.

    """
    from ..studies import check_profile, get
    from ._output.study_tables import print_study, study_facts

    one = get(name)
    size = check_profile(profile)
    planned = one.planned(size)
    if json:
        print_json(study_facts(one, size, planned))
        return
    print_study(terminal(), one, size, planned)
    say_next(f"neuralcollapse study run {one.id} --profile {size}")


@study.command
def run(
    *names: str,
    profile: str = "desk",
    out: Path = RESULTS,
    part: str | None = None,
    setting: Annotated[list[str] | None, Parameter(name="--set")] = None,
    seeds: str | None = None,
    engine: str = "local",
    workers: int | None = None,
    root: Path | None = None,
    fresh: Flag = False,
    resume: Flag = False,
    first_steps: int | None = None,
    json: Flag = False,
) -> int:
    """Run studies, judge their claims and draw their pictures into OUT/ID.

    Cells that OUT holds already are not run again, and interrupted ones go on from their last checkpoint. Exit code 1
    when a cell failed.

    **Try:**

    ```
    neuralcollapse study run geometric/bound
    neuralcollapse study run losses/collapse losses/accuracy --profile smoke
    neuralcollapse study run --part nets --profile desk --root data
    neuralcollapse study run losses/collapse --set epochs=50 --seeds 1,2,3
    neuralcollapse study run mse/rescaling --profile paper --first-steps 2
    ```

    Parameters
    ----------
    names
        Studies of ``neuralcollapse study list``, or ``all``.
    profile
        smoke (seconds), desk (minutes) or paper (the papers' own size).
    out
        Folder of the results.
    part
        UFM: of the chosen studies (all, if none is named) only those without nets; nets: only those with.
    setting
        NAME=VALUE, as often as you like: a variation of your own, kept apart from the plain results.
    seeds
        Seeds of your own, such as 1,2,3: a variation too.
    engine
        local, or ray for a cluster.
    workers
        Processes (default: one a core).
    root
        Folder of the data sets (default: the variable NEURALCOLLAPSE_DATA).
    fresh
        Start all cells of these studies over.
    resume
        What is done anyway: go on where an earlier run ended.
    first_steps
        Only begin each cell and stop after so many steps, to see that the plan works; writes nothing.
    json
        Print the outcomes as one JSON list.

    """
    from .. import studies as layer
    from ._output.progress import StudiesBar

    if fresh and resume:
        raise ValueError("--fresh and --resume exclude each other")
    size = layer.check_profile(profile)
    chosen = _varied_studies(_chosen_studies(names, part, size), setting or [], seeds)
    if first_steps is not None:
        other = {"--json": json, "--fresh": fresh, "--resume": resume, "--out": out != RESULTS}
        other |= {"--workers": workers is not None, "--engine": engine != "local"}
        refused = [option for option, given in other.items() if given]
        if refused:
            raise ValueError(f"{refused[0]} is not for --first-steps, which runs one cell at a time and keeps nothing")
        return _first_steps(chosen, size, first_steps, root)
    with StudiesBar() as display:
        outcomes = layer.run_studies(
            chosen,
            size,
            out,
            engine=engine,
            workers=workers,
            root=root,
            resume=not fresh,
            on_status=display.status,
            on_outcome=None if json else display.outcome,
        )
    if json:
        print_json(
            [
                {
                    "id": outcome.study.id,
                    "profile": outcome.profile,
                    "variation": None if outcome.study.variation is None else outcome.study.variation.to_dict(),
                    "verdict": outcome.verdict,
                    "parts": [one.to_dict() for one in outcome.parts],
                    "folder": str(outcome.folder),
                    "failures": outcome.failures,
                }
                for outcome in outcomes
            ]
        )
    else:
        place = quote(str(out))
        say_next(f"neuralcollapse report {place} --out report.html", f"neuralcollapse explore --results {place}")
    return 1 if any(outcome.failures for outcome in outcomes) else 0


@study.command
def evidence(
    folder: Path,
    /,
    *,
    out: Path = Path("evidence/desk"),
    pictures: Path | None = None,
    profile: str = "desk",
    again: Flag = False,
) -> None:
    """Copy the verdicts of finished studies to small files, to keep and to make pages from.

    **Try:**

    ```
    neuralcollapse study evidence results --out evidence/desk
    neuralcollapse study evidence results --out evidence/again --again
    ```

    Parameters
    ----------
    folder
        Folder of the results: the --out of ``study run``.
    out
        Folder that gets PAPER/NAME.json.
    pictures
        Folder that gets PAPER/NAME.svg, if any.
    profile
        The profile whose verdicts are copied.
    again
        Copy runs with other seeds (``study run ID --seeds 30,31,32``) instead of the plain ones.

    """
    from ..studies import check_profile, collect_evidence

    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    console = terminal(soft_wrap=True)
    for line in collect_evidence(folder, out, check_profile(profile), pictures, again=again):
        console.print(line)
    say_next("make results")


def _chosen_studies(names: tuple[str, ...], part: str | None, profile: "Profile") -> "list[Study]":
    from .. import studies as layer

    if not names and part is None:
        raise ValueError("study run needs the id of a study, 'all' or --part (see: neuralcollapse study list)")
    named = [layer.get(name) for name in dict.fromkeys(names) if name != "all"]
    chosen = named if named and "all" not in names else [layer.get(name) for name in layer.studies]
    if part is None:
        return chosen
    if part.lower() not in ("ufm", "nets"):
        raise ValueError(f"--part must be UFM or nets, got {part!r}")
    nets = part.lower() == "nets"
    kept = [one for one in chosen if one.trains_nets(profile) == nets]
    if not kept:
        raise ValueError(f"--part {part}: none of {', '.join(one.id for one in chosen)} is of that part")
    return kept


def _varied_studies(chosen: "list[Study]", settings: list[str], seeds: str | None) -> "list[Study]":
    from ..studies import parse_settings

    if not settings and seeds is None:
        return chosen
    try:
        numbers = None if seeds is None else tuple(int(text) for text in seeds.split(","))
    except ValueError:
        raise ValueError(f"--seeds takes integers such as 1,2,3, got {seeds!r}") from None
    return [one.vary(parse_settings(settings), numbers) for one in chosen]


def _first_steps(chosen: "list[Study]", profile: "Profile", steps: int, root: Path | None) -> int:
    from ..studies import first_steps

    console = terminal(soft_wrap=True)
    for one in chosen:
        for name, outcome in first_steps(one, profile, steps, root):
            console.print(f"{one.name}: {name}: {outcome}")
    return 0
