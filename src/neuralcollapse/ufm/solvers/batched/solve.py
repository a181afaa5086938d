"""The loop over steps of all trials, and a trace for each."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ...._support.machine import keep_freed_blocks
from ...normalized import NormalizedUFM
from ...point import Point
from ...problem import Problem
from ...regularized import RegularizedUFM
from ...results import NOT_CRITICAL, STRICT_SADDLE, Optimum, Outcome, Trace
from ..history import POINTS, sparing_interval
from ..loop import PATIENCE, REACHED, SolveOptions
from ..method import Method
from ..methods.conjugate_gradient import ConjugateGradient
from ..methods.gradient_descent import GradientDescent
from ..methods.lbfgs import LBFGS
from .columns import Column, Columns
from .model import BatchModel, BatchState, Numbers
from .steps import BatchConjugateGradient, BatchGradientDescent, BatchLBFGS, BatchMethod

__all__ = ["fits", "obstacle", "solve_batch"]

ENTRIES = 200_000
"""Numbers in one vector of all trials (1.6 MB): more would not stay near the processor, and are solved in turn."""
LEAST = 8
"""Trials below which a batch gains little."""
CROWDED = 0.75
"""Trials that have ended leave when fewer than this share goes on: leaving copies all that the others have."""


def obstacle(problem: Problem, method: Method, options: SolveOptions) -> str | None:
    """Why these trials cannot be one batch; None if they can."""
    if not isinstance(problem, RegularizedUFM | NormalizedUFM):
        return f"a batch is for models with logits, not {type(problem).__name__}"
    if isinstance(problem, RegularizedUFM) and problem.nonnegative:
        return "a batch does not restrict features to non-negative entries"
    if not isinstance(method, GradientDescent | ConjugateGradient | LBFGS):
        return f"a batch is for gradient-descent, conjugate-gradient and lbfgs, not {method.name}"
    if problem.loss.stack(problem.labels[:1], problem.num_classes) is None:
        return f"the loss {problem.loss.spec} is not written for a batch"
    if POINTS in options.record:
        return "a batch does not record points"
    for name in ("gap", "max_seconds"):
        if getattr(options, name) is not None:
            return f"{name} does not apply to a batch"
    return None


def fits(problem: Problem, trials: int) -> bool:
    """Whether a batch of so many trials is likely to gain: many enough, and small."""
    entries = (problem.num_classes + problem.num_samples) * problem.dim
    return trials >= LEAST and LEAST * entries <= ENTRIES


def solve_batch(
    problem: RegularizedUFM | NormalizedUFM,
    method: Method,
    starts: Sequence[Point],
    seeds: Sequence[int],
    options: SolveOptions,
) -> list[Trace | None]:
    """One trace a start; None where a trial ended at a strict saddle: there a single solve knows how to go on."""
    entries = (problem.num_classes + problem.num_samples + 1) * problem.dim
    together = max(LEAST, ENTRIES // entries)
    parts = -(-len(starts) // together)
    edges = [len(starts) * part // parts for part in range(parts + 1)]
    optimum = _known(problem)
    traces: list[Trace | None] = []
    keep_freed_blocks()
    labels = problem.labels
    assert len(labels) == problem.num_samples
    for begin, end in pairwise(edges):
        with torch.inference_mode(), np.errstate(all="ignore"):
            run = _Run(problem, method, options, optimum, starts[begin:end])
            run.descend()
        traces += run.traces(seeds[begin:end], end - begin)
    return traces


@dataclass
class _Trial:
    """What became of one trial, and the rows recorded on the way."""

    x: Tensor
    rows: dict[str, Column]
    outcome: Outcome = "max_iter"
    iterations: int = 0
    value: float = math.nan
    norm: float = math.nan
    seconds: float = 0.0


class _Run:
    """Trials that are solved together."""

    def __init__(
        self,
        problem: RegularizedUFM | NormalizedUFM,
        method: Method,
        options: SolveOptions,
        optimum: Optimum | None,
        starts: Sequence[Point],
    ):
        self.problem, self.method, self.options, self.optimum = problem, method, options, optimum
        objective = problem.objective()
        if isinstance(method, ConjugateGradient) and method.plain:
            objective.weigh_alike()
        loss = problem.loss.stack(problem.labels, problem.num_classes)
        assert loss is not None
        self.model = BatchModel(problem, loss, objective.scales)
        self.every = options.every or sparing_interval(objective, method, options.record)
        self.columns = Columns(problem, options.record, None if optimum is None else optimum.value)
        self.start = self.model.gather(starts)
        names = ("iteration", "seconds", *options.record)
        self.trials = [_Trial(x, {name: [] for name in names}) for x in self.start]
        self.began = time.perf_counter()

    def descend(self) -> None:
        """Step until every trial has ended."""
        model, options, steps = self.model, self.options, self._steps()
        state = model.at(self.start)
        ids, live = np.arange(len(self.trials)), np.ones(len(self.trials), dtype=bool)
        lowest = smallest = np.full(len(ids), np.inf)
        idle = np.zeros(len(ids), dtype=int)
        for iteration in range(options.max_iter + 1):
            norms = model.norms(state.gradient)
            if iteration % self.every == 0:
                self._record(ids, live, iteration, state, norms)
            converged = norms <= options.tol
            progress = (state.values < lowest - steps.rounding(state)) | (norms < 0.99 * smallest)
            idle = np.where(progress, 0, idle + 1)
            lowest, smallest = np.minimum(lowest, state.values), np.minimum(smallest, norms)
            stalled = ~converged & ((idle >= PATIENCE) | ~np.isfinite(state.values + norms))
            self._end(live & converged, "converged", ids, iteration, state, norms)
            self._end(live & stalled, "stalled", ids, iteration, state, norms)
            live = live & ~(converged | stalled)
            if iteration == options.max_iter:
                self._end(live, "max_iter", ids, iteration, state, norms)
                break
            going = np.count_nonzero(live)
            if going == 0:
                break
            if going <= CROWDED * len(live):
                index = np.flatnonzero(live)
                state, ids, live = state.pick(index), ids[index], live[index]
                lowest, smallest, idle, norms = lowest[index], smallest[index], idle[index], norms[index]
                steps.keep(index)
            after, failed = steps.step(state, live)
            if failed.any():
                self._end(failed, "stalled", ids, iteration, state, norms)
                live = live & ~failed
            state = after
        self._record_last()

    def _steps(self) -> BatchMethod:
        if isinstance(self.method, GradientDescent):
            return BatchGradientDescent(self.model, self.method.window)
        if isinstance(self.method, LBFGS):
            return BatchLBFGS(self.model, self.method.memory)
        return BatchConjugateGradient(self.model)

    def _end(
        self, which: Numbers, outcome: Outcome, ids: np.ndarray, iteration: int, state: BatchState, norms: Numbers
    ) -> None:
        """Keep what these trials came to."""
        seconds = time.perf_counter() - self.began
        for place in np.flatnonzero(which).tolist():
            trial = self.trials[int(ids[place])]
            trial.x, trial.outcome, trial.iterations = state.x[place].clone(), outcome, iteration
            trial.value, trial.norm, trial.seconds = float(state.values[place]), float(norms[place]), seconds

    def _record(self, ids: np.ndarray, live: Numbers, iteration: int, state: BatchState, norms: Numbers) -> None:
        """A row for each trial that still goes on."""
        index = np.flatnonzero(live)
        trials = [self.trials[k] for k in ids[index].tolist()]
        seconds = [time.perf_counter() - self.began] * len(trials)
        x = state.x[torch.from_numpy(index)] if self.columns.need_points else None
        self._add_rows(
            trials, [iteration] * len(trials), seconds, x, state.values[index].tolist(), norms[index].tolist()
        )

    def _record_last(self) -> None:
        """A row at the end of those trials that have none there, all at once."""
        due = [trial for trial in self.trials if trial.rows["iteration"][-1] != trial.iterations]
        if due:
            values, norms = [trial.value for trial in due], [trial.norm for trial in due]
            steps, seconds = [trial.iterations for trial in due], [trial.seconds for trial in due]
            self._add_rows(due, steps, seconds, torch.stack([trial.x for trial in due]), values, norms)

    def _add_rows(
        self,
        trials: list[_Trial],
        iterations: list[int],
        seconds: list[float],
        x: Tensor | None,
        values: list[float],
        norms: list[float],
    ) -> None:
        points = None if x is None else self.model.points(x)
        found = {"iteration": iterations, "seconds": seconds, **self.columns.at(points, values, norms)}
        for name, entries in found.items():
            for trial, entry in zip(trials, entries, strict=True):
                trial.rows[name].append(entry)

    def traces(self, seeds: Sequence[int], company: int) -> list[Trace | None]:
        """A trace of each trial; None for one that must be solved by itself."""
        points = self.model.points(torch.stack([trial.x for trial in self.trials]))
        return [
            self._trace(trial, points[index], seed, company)
            for index, (trial, seed) in enumerate(zip(self.trials, seeds, strict=True))
        ]

    def _trace(self, trial: _Trial, point: Point, seed: int, company: int) -> Trace | None:
        optimum, regime, remark = self.optimum, None, "and no closed form is known"
        if optimum is not None:
            above = trial.value - optimum.value
            remark = f"{above:.3g} above that of the closed form, regime {optimum.regime!r}"
            if above <= REACHED * max(1.0, abs(trial.value)):
                regime, remark = optimum.regime, f"that of the closed form, regime {optimum.regime!r}"
            elif trial.outcome == "converged" and self.problem.certify(point).verdict in (STRICT_SADDLE, NOT_CRITICAL):
                return None
        how = f"after {trial.iterations} iterations in a batch of {company} the gradient norm is {trial.norm:.1e}"
        return Trace(
            point=point,
            history=trial.rows,
            converged=trial.outcome == "converged",
            method=self.method.name,
            message=f"{how}; the value is {trial.value:.10g}, {remark}.",
            outcome=trial.outcome,
            problem=self.problem,
            value=trial.value,
            gradient_norm=trial.norm,
            iterations=trial.iterations,
            seconds=trial.seconds / company,
            seed=seed,
            regime=regime,
        )


def _known(problem: Problem) -> Optimum | None:
    try:
        return problem.closed_form()
    except ValueError:
        return None
