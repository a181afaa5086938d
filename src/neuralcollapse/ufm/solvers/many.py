"""Many trials: the same problem from many seeds, on all cores, as good as one after another."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

from ..._support.checks import describe, integer
from ..._support.files import json_text, write_json
from ..._support.locks import locked
from ..._support.processes import worker_pool
from ..._support.ranges import MOST_TRIALS
from ..._support.threads import torch_threads
from ..normalized import NormalizedUFM
from ..point import Point
from ..problem import Problem
from ..regularized import RegularizedUFM
from .batched import RECORDABLE, solve_batch, supports_batch
from .loop import SolveOptions, perturb, resolve_method, solve
from .method import Method
from .trace import Trace

__all__ = ["solve_many", "trial_folder"]

ATTEMPTS = 3
"""Pools that are started before killed workers are taken for a rule."""


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
    message: Callable[[str], None] | None = None,
    batched: bool = False,
    **options: Any,
) -> list[Trace]:
    """One :func:`solve` a seed, in the order of ``seeds``, over ``workers`` processes of one thread (None:
    all cores).

    The results do not depend on the number of workers. With ``out`` each trial is saved in a folder of its
    own as soon as it is done, and ``resume`` keeps the trials that are already there: an interrupted or
    killed run goes on where it was; trials that are damaged are run again, and ``message`` is told. A worker that is
    killed costs its trials a second try. ``start`` and ``perturbation`` give perturbed starts, one a seed.
    ``options`` are those of :func:`solve`; ``on_trial`` is called with each trace as it comes.

    ``batched`` takes all trials as one tensor in this process, for L-BFGS and gradient descent on the models with
    logits: many small solves for the overhead of one. Each trial follows a path of its own to the same tolerance (step
    lengths are found by plain backtracking); ``record`` may name value and gradient_norm, and of the other options
    ``tol``, ``max_iter`` and ``perturbation`` apply.
    """
    numbers = _checked_seeds(seeds)
    way = resolve_method(problem, method)
    SolveOptions(**options)
    if start is not None:
        problem.check(start)
    count = min(len(numbers), integer("workers", workers, minimum=1) if workers is not None else os.cpu_count() or 1)
    folder = None if out is None else Path(out)
    done: dict[int, Trace] = {}
    with nullcontext() if folder is None else locked(folder):
        if folder is not None:
            done = _prepare(folder, problem, way, numbers, options, resume, message or (lambda line: None))
        for trace in done.values():
            if on_trial is not None:
                on_trial(trace)
        waiting = [seed for seed in numbers if seed not in done]
        if batched and waiting:
            for trace in _batch(problem, way, waiting, start, options):
                assert trace.seed is not None
                if folder is not None:
                    trace.save(trial_folder(folder, trace.seed))
                done[trace.seed] = trace
                if on_trial is not None:
                    on_trial(trace)
        jobs = [(problem.to_json(), way, seed, start, options, folder) for seed in numbers if seed not in done]
        for seed, trace in _run(jobs, count):
            done[seed] = trace
            if on_trial is not None:
                on_trial(trace)
    return [done[seed] for seed in numbers]


def _batch(
    problem: Problem, method: Method, seeds: list[int], start: Point | None, options: dict[str, Any]
) -> list[Trace]:
    if not supports_batch(problem, method):
        kind = type(problem).__name__
        raise ValueError(
            f"batched is for lbfgs and gradient-descent on models with logits, not {method.name} on {kind}"
        )
    refused = set(options) - {"tol", "max_iter", "record", "perturbation"}
    if refused:
        raise ValueError(f"{sorted(refused)[0]} does not apply to a batched solve")
    record = options.get("record", ("value",))
    unknown = [name for name in record if name not in RECORDABLE]
    if unknown:
        raise ValueError(f"record may name {' and '.join(RECORDABLE)} in a batched solve, got {unknown[0]!r}")
    chosen = SolveOptions(**{**options, "record": record})
    starts = [problem.random_point(seed) if start is None else start for seed in seeds]
    if chosen.perturbation:
        starts = [perturb(problem, one, chosen.perturbation, seed) for one, seed in zip(starts, seeds, strict=True)]
    assert isinstance(problem, RegularizedUFM | NormalizedUFM)
    with torch_threads(1):
        return solve_batch(problem, method, starts, seeds, chosen.tol, chosen.max_iter, chosen.record)


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
    left = {job[2]: job for job in jobs}
    for attempt in range(1, ATTEMPTS + 1):
        try:
            for seed, trace in _run_in_pool(list(left.values()), min(workers, len(left))):
                del left[seed]
                yield seed, trace
            return
        except BrokenProcessPool:
            if attempt == ATTEMPTS:
                raise ChildProcessError(
                    f"workers were killed {ATTEMPTS} times, perhaps for want of memory: use fewer workers; "
                    f"the trials of seeds {', '.join(map(str, sorted(left)))} are not done"
                ) from None


def _run_in_pool(jobs: list[Job], workers: int) -> Iterator[tuple[int, Trace]]:
    with worker_pool(workers) as pool:
        waiting = {pool.submit(_trial, job) for job in jobs}
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                yield future.result()


def _checked_seeds(seeds: Iterable[int]) -> list[int]:
    try:
        numbers = [integer("seeds", seed, minimum=0) for seed in islice(seeds, MOST_TRIALS + 1)]
    except TypeError as error:
        raise TypeError(f"seeds must be integers, got {describe(seeds)}") from error
    if len(numbers) > MOST_TRIALS:
        raise ValueError(f"seeds must be at most {MOST_TRIALS}, got more")
    if not numbers or len(set(numbers)) != len(numbers):
        raise ValueError(f"seeds must be one or more different numbers, got {describe(seeds)}")
    return numbers


def _prepare(
    folder: Path,
    problem: Problem,
    method: Method,
    seeds: list[int],
    options: dict[str, Any],
    resume: bool,
    message: Callable[[str], None],
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
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not readable ({' '.join(str(error).split())})") from error
        if found != json.loads(json.dumps(plan)):
            raise ValueError(f"{folder}: holds trials of another problem, method or options (see plan.json)")
        if path.read_bytes() != json_text(plan).encode():
            write_json(path, plan)
    else:
        write_json(path, plan)
    for unfinished in folder.glob("trial-*/.*.tmp"):
        unfinished.unlink(missing_ok=True)
    kept: dict[int, Trace] = {}
    for seed in seeds:
        place = trial_folder(folder, seed)
        if Trace.saved_in(place):
            try:
                kept[seed] = Trace.load(place)
            except ValueError as error:
                message(f"{error}: this trial is run again")
    return kept
