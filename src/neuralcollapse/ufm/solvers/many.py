"""Many trials: the same problem from many seeds, on all cores, as good as one after another."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Unpack

from ..._support.checks import MOST_TRIALS, describe, integer
from ..._support.files import JSONObject, digest, json_text, locked, write_json
from ..._support.machine import torch_threads, worker_pool
from ..normalized import NormalizedUFM
from ..point import Point
from ..problem import Problem
from ..regularized import RegularizedUFM
from ..results import Trace
from .batched import batch_pays, obstacle, solve_batch
from .loop import SolveKeywords, SolveOptions, perturb, resolve_method, solve
from .method import Method

__all__ = ["solve_many", "trial_folder"]

ATTEMPTS = 3
"""Pools that are started before killed workers are taken for a rule."""


def solve_many(
    problem: Problem,
    seeds: Iterable[int] = range(20),
    method: str | Method = "lbfgs",
    *,
    start: Point | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    on_trial: Callable[[Trace], None] | None = None,
    message: Callable[[str], None] | None = None,
    batched: bool | None = None,
    **options: Unpack[SolveKeywords],
) -> list[Trace]:
    """One :func:`solve` a seed, in the order of ``seeds``; the results do not depend on the number of workers.

    A worker that is killed costs its trials a second try.

    Args:
        problem: what to minimise.
        seeds: different whole numbers, one a trial.
        method: as in :func:`solve`.
        start: where all trials begin, with ``perturbation=`` each a step away from it; None for a random start each.
        workers: processes of one thread; None for one a core.
        out: a folder in which each trial is saved, in one of its own, as soon as it is done.
        resume: keep the trials that are already in ``out``: an interrupted or killed run goes on where it was. Trials
            that are damaged are run again, and ``message`` is told.
        on_trial: called with each trace as it comes.
        message: called with a line on what happened besides.
        batched: whether all trials are taken as one tensor in this process, which pays the overhead of small operations
            once for many small solves. None: where it can be done and is likely to be quicker, if neither ``out`` nor
            ``workers`` asks for trials apart; ``message`` is told where it cannot. True: always, with a ValueError
            where it cannot be done; False: never. A batch follows gradient descent, conjugate gradients and L-BFGS on
            the models with logits, each trial with step lengths, a history and an end of its own, by the rules of a
            single solve: values agree to rounding. A trial that ends at a strict saddle is solved once more by itself.
        **options: those of :func:`solve` that say when to stop and what to record.

    >>> from neuralcollapse.ufm import RegularizedUFM
    >>> model = RegularizedUFM("ce", 3, 2, 4, weight_decay=0.01, feature_decay=0.01)
    >>> [trace.regime for trace in solve_many(model, range(2), workers=1)]
    ['neural collapse', 'neural collapse']

    """
    numbers = _checked_seeds(seeds)
    way = resolve_method(problem, method)
    chosen = SolveOptions(**options)
    tell = message or (lambda line: None)
    if start is not None:
        problem.check(start)
    count = min(len(numbers), integer("workers", workers, minimum=1) if workers is not None else os.cpu_count() or 1)
    folder = None if out is None else Path(out)
    done: dict[int, Trace] = {}
    with nullcontext() if folder is None else locked(folder):
        if folder is not None:
            done = _earlier_trials(folder, _trials_plan(problem, way, start, options), numbers, resume, tell)
        for trace in done.values():
            if on_trial is not None:
                on_trial(trace)
        waiting = [seed for seed in numbers if seed not in done]
        wanted = False if batched is None and (folder is not None or workers is not None) else batched
        if waiting and _as_one_batch(problem, way, chosen, wanted, len(waiting), tell):
            assert isinstance(problem, RegularizedUFM | NormalizedUFM)
            for seed, trace in _solve_together(problem, way, waiting, start, chosen):
                if trace is None:
                    continue
                if folder is not None:
                    trace.save(trial_folder(folder, seed))
                done[seed] = trace
                if on_trial is not None:
                    on_trial(trace)
        jobs = [(problem.to_json(), way, seed, start, options, folder) for seed in numbers if seed not in done]
        for seed, trace in _run_jobs(jobs, count):
            done[seed] = trace
            if on_trial is not None:
                on_trial(trace)
    return [done[seed] for seed in numbers]


def _as_one_batch(
    problem: Problem,
    method: Method,
    options: SolveOptions,
    batched: bool | None,
    trials: int,
    tell: Callable[[str], None],
) -> bool:
    """Whether these trials are solved as one batch."""
    if batched is False:
        return False
    why = obstacle(problem, method, options)
    if batched and why is not None:
        raise ValueError(f"batched=True: {why}")
    if batched is None and why is not None and trials > 1:
        tell(f"one solve a trial: {why}")
    return why is None and (batched is True or batch_pays(problem, trials))


def _solve_together(
    problem: RegularizedUFM | NormalizedUFM,
    method: Method,
    seeds: list[int],
    start: Point | None,
    options: SolveOptions,
) -> list[tuple[int, Trace | None]]:
    """The traces of these seeds, solved together; None for one that must be solved by itself."""
    starts = [problem.random_point(seed) if start is None else start for seed in seeds]
    if options.perturbation:
        starts = [perturb(problem, one, options.perturbation, seed) for one, seed in zip(starts, seeds, strict=True)]
    with torch_threads(1):
        return list(zip(seeds, solve_batch(problem, method, starts, seeds, options), strict=True))


def trial_folder(out: Path, seed: int) -> Path:
    """Where the trial of ``seed`` is saved."""
    return out / f"trial-{seed:04d}"


TrialJob = tuple[str, Method, int, Point | None, SolveKeywords, Path | None]


def _run_job(job: TrialJob) -> tuple[int, Trace]:
    text, method, seed, start, options, folder = job
    trace = solve(Problem.from_json(text), method, start, seed, **options)
    if folder is not None:
        trace.save(trial_folder(folder, seed))
    return seed, trace


def _run_jobs(jobs: list[TrialJob], workers: int) -> Iterator[tuple[int, Trace]]:
    if workers <= 1 or len(jobs) <= 1:
        yield from map(_run_job, jobs)
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


def _run_in_pool(jobs: list[TrialJob], workers: int) -> Iterator[tuple[int, Trace]]:
    with worker_pool(workers) as pool:
        waiting = {pool.submit(_run_job, job) for job in jobs}
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


def _trials_plan(problem: Problem, method: Method, start: Point | None, options: SolveKeywords) -> JSONObject:
    """What decides the trials, besides their seeds."""
    asked = dict(sorted(options.items()))
    if "record" in options:
        asked["record"] = list(options["record"])
    plan: JSONObject = {"problem": json.loads(problem.to_json()), "method": repr(method), "options": asked}
    if start is not None:
        plan["start"] = digest(start.flatten().numpy(force=True).tobytes())
    return plan


def _earlier_trials(
    folder: Path, plan: JSONObject, seeds: list[int], resume: bool, message: Callable[[str], None]
) -> dict[int, Trace]:
    """The trials that ``folder`` holds already; ValueError where it holds those of another run."""
    path = folder / "plan.json"
    if path.is_file():
        if not resume:
            raise ValueError(f"{folder}: already holds trials; resume them, or name another folder")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not readable ({' '.join(str(error).split())})") from error
        if found != json.loads(json.dumps(plan)):
            raise ValueError(f"{folder}: holds trials of another problem, method, start or options (see plan.json)")
        if path.read_bytes() != json_text(plan).encode():
            write_json(path, plan)
    else:
        write_json(path, plan)
    kept: dict[int, Trace] = {}
    for seed in seeds:
        place = trial_folder(folder, seed)
        if Trace.saved_in(place):
            try:
                kept[seed] = Trace.load(place)
            except ValueError as error:
                message(f"{error}: this trial is run again")
    return kept
