"""Many trials: the same problem from many seeds, on all cores, as good as one after another."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from typing import Any

from ..._support.checks import describe, integer
from ..._support.files import write_json
from ..._support.processes import worker_pool
from .._problem import Problem
from ..point import Point
from ._method import Method
from ._solve import SolveOptions, resolve_method, solve
from ._trace import Trace

__all__ = ["solve_many", "trial_folder"]


def solve_many(
    problem: Problem,
    seeds: Iterable[int] = range(20),
    method: Any = "lbfgs",
    *,
    start: Point | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    on_trial: Callable[[Trace], None] | None = None,
    **options: Any,
) -> list[Trace]:
    """One :func:`solve` a seed, in the order of ``seeds``, over ``workers`` processes of one thread (None:
    all cores).

    The results do not depend on the number of workers. With ``out`` each trial is saved in a folder of its
    own as soon as it is done, and ``resume`` keeps the trials that are already there: an interrupted or
    killed run goes on where it was. ``start`` and ``perturbation`` give perturbed starts, one a seed.
    ``options`` are those of :func:`solve`; ``on_trial`` is called with each trace as it comes.
    """
    numbers = _checked_seeds(seeds)
    way = resolve_method(problem, method)
    SolveOptions(**options)
    if start is not None:
        problem.check(start)
    count = min(len(numbers), integer("workers", workers, minimum=1) if workers is not None else os.cpu_count() or 1)
    folder = None if out is None else Path(out)
    done: dict[int, Trace] = {}
    if folder is not None:
        done = _prepare(folder, problem, way, numbers, options, resume)
    for trace in done.values():
        if on_trial is not None:
            on_trial(trace)
    jobs = [(problem.to_json(), way, seed, start, options, folder) for seed in numbers if seed not in done]
    for seed, trace in _run(jobs, count):
        done[seed] = trace
        if on_trial is not None:
            on_trial(trace)
    return [done[seed] for seed in numbers]


def trial_folder(out: Path, seed: int) -> Path:
    """Where the trial of ``seed`` is saved."""
    return out / f"trial-{seed:04d}"


Job = tuple[str, Method, int, Point | None, dict[str, Any], Path | None]


def _trial(job: Job) -> tuple[int, Trace]:
    text, method, seed, start, options, folder = job
    trace = solve(Problem.from_json(text), method, start, seed, **options)
    if folder is not None:
        trace.save(trial_folder(folder, seed))
    return seed, trace


def _run(jobs: list[Job], workers: int) -> Iterator[tuple[int, Trace]]:
    if workers <= 1 or len(jobs) <= 1:
        yield from map(_trial, jobs)
        return
    with worker_pool(workers) as pool:
        waiting = {pool.submit(_trial, job) for job in jobs}
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()


def _checked_seeds(seeds: Iterable[int]) -> list[int]:
    try:
        numbers = [integer("seeds", seed, minimum=0) for seed in seeds]
    except TypeError as error:
        raise TypeError(f"seeds must be integers, got {describe(seeds)}") from error
    if not numbers or len(set(numbers)) != len(numbers):
        raise ValueError(f"seeds must be one or more different numbers, got {describe(seeds)}")
    return numbers


def _prepare(
    folder: Path, problem: Problem, method: Method, seeds: list[int], options: dict[str, Any], resume: bool
) -> dict[int, Trace]:
    """The trials that ``folder`` holds already; ValueError where it holds those of another run."""
    plan = {
        "problem": json.loads(problem.to_json()),
        "method": repr(method),
        "options": {name: list(value) if name == "record" else value for name, value in sorted(options.items())},
    }
    path = folder / "plan.json"
    if path.is_file():
        if not resume:
            raise ValueError(f"{folder}: already holds trials; resume them, or name another folder")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: not readable ({error})") from error
        if found != json.loads(json.dumps(plan)):
            raise ValueError(f"{folder}: holds trials of another problem, method or options (see plan.json)")
    else:
        write_json(path, plan)
    for unfinished in folder.glob("trial-*/.*.tmp"):
        unfinished.unlink(missing_ok=True)
    kept = [seed for seed in seeds if Trace.saved_in(trial_folder(folder, seed))]
    return {seed: Trace.load(trial_folder(folder, seed)) for seed in kept}
