"""``neuralcollapse solve``: minimise a model from one start or many."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ._app import Flag, app, print_json
from ._problem_options import ProblemOptions

if TYPE_CHECKING:
    from rich.table import Table

    from ..ufm import Point, Problem, Trace

RECORD = ("value", "gap", "gradient_norm", "nc1", "nc2", "nc3", "accuracy")


@app.command
def solve(
    *,
    problem: ProblemOptions | None = None,
    method: str = "lbfgs",
    seed: int = 0,
    start: Path | None = None,
    perturbation: float = 0.0,
    tol: float = 1e-8,
    gap: float | None = None,
    max_iter: int = 1000,
    max_seconds: float | None = None,
    record: Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=True)] = RECORD,
    every: int | None = None,
    trials: int | None = None,
    workers: int | None = None,
    out: Path | None = None,
    resume: Flag = False,
    json: Flag = False,
) -> int:
    r"""Minimise an unconstrained feature model and say how it ended.

    Exit code 1 when a solve did not converge.

    **Try:**

    ```
    neuralcollapse solve --loss ce --classes 10 --per-class 5 --dim 32 \
        --temperature 1 --method trust-region
    neuralcollapse solve --classes 4 --dim 9 --weight-decay 0.01 \
        --feature-decay 0.01 --out point.safetensors
    neuralcollapse solve --classes 10 --dim 32 --temperature 5 \
        --trials 20 --out runs --resume
    ```

    Parameters
    ----------
    method
        Method, perhaps with parameters: lbfgs:memory=5.
    seed
        Seed of the start; of the first one with --trials.
    start
        Start at the point of this .safetensors file.
    perturbation
        Move the start by a random step of this norm.
    tol
        Stop at this gradient norm.
    gap
        Stop this near to a proved lower bound.
    max_iter
        Stop after so many iterations.
    max_seconds
        Stop after so many seconds.
    record
        What the history holds.
    every
        Record every so many iterations (not given: sparingly).
    trials
        Solve from so many seeds, on all cores.
    workers
        Processes for --trials.
    out
        A .safetensors file for the point, or a folder for point and history (or all trials).
    resume
        Keep the trials that --out already holds.
    json
        Print one JSON object.

    """
    from .._support.checks import MOST_TRIALS, integer

    model = (problem or ProblemOptions()).build()
    begin = None if start is None else _point_from_file(start, model)
    options: dict[str, Any] = {
        "tol": tol,
        "max_iter": max_iter,
        "record": record,
        "gap": gap,
        "max_seconds": max_seconds,
        "every": every,
        "perturbation": perturbation,
    }
    if trials is None:
        if resume or workers is not None:
            raise ValueError(f"{'--resume' if resume else '--workers'} is for --trials")
        return _solve_once(model, method, begin, seed, options, out, json)
    integer("--trials", trials, minimum=1, maximum=MOST_TRIALS)
    if out is not None and out.suffix == ".safetensors":
        raise ValueError(f"--out {out}: --trials writes a folder, not a file")
    if resume and out is None:
        raise ValueError("--resume needs --out: the folder that holds the trials")
    if begin is not None and trials > 1 and perturbation == 0:
        raise ValueError("--trials from one --start are all the same: give a --perturbation")
    seeds = range(seed, seed + trials)
    return _solve_many_starts(model, method, begin, seeds, options, out, resume, workers, json)


def _point_from_file(path: Path, model: "Problem") -> "Point":
    from ..ufm import load_point

    return model.check(load_point(path)[0])


def _solve_once(
    model: "Problem",
    method: str,
    begin: "Point | None",
    seed: int,
    options: dict[str, Any],
    out: Path | None,
    as_json: bool,
) -> int:
    from ..ufm import save_point
    from ..ufm import solve as solve_problem
    from ._output.progress import CountBar
    from ._output.terminal import say_next, terminal

    # The bar shows value and gap, whatever else is recorded.
    record = tuple(dict.fromkeys(("value", "gap", *options["record"])))
    with CountBar("iteration", options["max_iter"]) as show:

        def on_record(row: dict[str, Any]) -> None:
            show(int(row["iteration"]), _value_and_gap(row["value"], row["gap"]))

        trace = solve_problem(model, method, begin, seed, **{**options, "record": record}, on_record=on_record)
    if out is not None and out.suffix == ".safetensors":
        save_point(out, trace.point, {"problem": model.to_json()})
    elif out is not None:
        trace.save(out)
    if as_json:
        print_json({**trace.to_dict(), "final": trace.rows()[-1], "out": None if out is None else str(out)})
    else:
        console = terminal()
        console.print(repr(model))
        console.print(_end_table(trace))
        console.print(f"{trace.outcome}: {trace.message}")
        if out is None:
            say_next("the same command with --out point.safetensors, then: neuralcollapse certify point.safetensors")
        else:
            console.print(f"wrote {out}", soft_wrap=True)
            verb = "certify" if out.suffix == ".safetensors" else "report"
            say_next(f"neuralcollapse {verb} {quote(str(out))}")
    return 0 if trace.converged else 1


def _solve_many_starts(
    model: "Problem",
    method: str,
    begin: "Point | None",
    seeds: range,
    options: dict[str, Any],
    out: Path | None,
    resume: bool,
    workers: int | None,
    as_json: bool,
) -> int:
    from .._support.files import json_number, write_json
    from ..ufm import solve_many
    from ._output.progress import CountBar
    from ._output.terminal import say_next, terminal

    done = 0
    with CountBar("trial", len(seeds)) as show:

        def on_trial(trace: "Trace") -> None:
            nonlocal done
            done += 1
            text = f"seed {trace.seed}: {trace.outcome}, "
            show(done, text + _value_and_gap(json_number(trace.value), _last_gap(trace)))

        traces = solve_many(
            model,
            seeds,
            method,
            start=begin,
            workers=workers,
            out=out,
            resume=resume,
            on_trial=on_trial,
            message=terminal(stderr=True, soft_wrap=True).print,
            **options,
        )
    keys = ("outcome", "converged", "regime", "value", "gradient_norm", "iterations")
    facts = [trace.to_dict() for trace in traces]
    values = [fact["value"] for fact in facts if fact["value"] is not None]
    summary = {
        "problem": facts[0]["problem"],
        "method": traces[0].method,
        "converged": sum(trace.converged for trace in traces),
        "lowest": min(values, default=None),
        "highest": max(values, default=None),
        "trials": [{"seed": seed, **{key: fact[key] for key in keys}} for seed, fact in zip(seeds, facts, strict=True)],
    }
    if out is not None:
        write_json(out / "summary.json", summary)
    if as_json:
        print_json({**summary, "out": None if out is None else str(out)})
    else:
        console = terminal()
        console.print(repr(model))
        console.print(_starts_table(traces, seeds))
        diverged = sum(trace.outcome == "diverged" for trace in traces)
        remark = f", {diverged} diverged" if diverged else ""
        console.print(f"{summary['converged']} of {len(traces)} converged{remark}")
        if out is not None:
            console.print(f"wrote {out}", soft_wrap=True)
            say_next(f"neuralcollapse report {quote(str(out))} --out report.html")
    return 0 if all(trace.converged for trace in traces) else 1


def _end_table(trace: "Trace") -> "Table":
    from rich.table import Table

    table = Table(show_header=False)
    gap = _last_gap(trace)
    table.add_row("method", trace.method)
    table.add_row("outcome", trace.outcome)
    table.add_row("value", f"{trace.value:.12g}")
    if gap is not None:
        table.add_row("gap", f"{gap:.3g}")
    table.add_row("gradient norm", f"{trace.gradient_norm:.3g}")
    table.add_row("iterations", str(trace.iterations))
    table.add_row("seconds", f"{trace.seconds:.3g}")
    return table


def _starts_table(traces: "list[Trace]", seeds: range) -> "Table":
    from rich.table import Table

    table = Table("seed", "outcome", "value", "gap", "iterations", "seconds")
    for seed, trace in zip(seeds, traces, strict=True):
        gap = _last_gap(trace)
        shown = "-" if gap is None else f"{gap:.2g}"
        cells = (trace.outcome, f"{trace.value:.12g}", shown, str(trace.iterations), f"{trace.seconds:.3g}")
        table.add_row(str(seed), *cells)
    return table


def _last_gap(trace: "Trace") -> float | None:
    gaps = trace.history.get("gap")
    return gaps[-1] if gaps else None


def _value_and_gap(value: float | None, gap: float | None) -> str:
    value_text = "value not finite" if value is None else f"value {value:.8g}"
    return value_text + ("" if gap is None else f", gap {gap:.2e}")
