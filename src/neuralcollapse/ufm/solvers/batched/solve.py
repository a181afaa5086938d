"""The loop over steps of all trials, and a trace for each."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from ...._support.machine import keep_freed_blocks
from ...normalized import NormalizedUFM
from ...point import Point
from ...problem import Problem
from ...regularized import RegularizedUFM
from ...results import NOT_CRITICAL, STRICT_SADDLE, HistoryColumn, Outcome, Trace
from ..history import POINTS, sparing_interval
from ..loop import PATIENCE, SolveOptions, known_optimum, near, reached
from ..method import Method
from ..methods.conjugate_gradient import ConjugateGradient
from ..methods.gradient_descent import GradientDescent
from ..methods.lbfgs import LBFGS
from .columns import Columns
from .lbfgs import BatchLBFGS
from .model import BatchModel, BatchState, Numbers, Survivors, Vectors, places
from .steps import BatchConjugateGradient, BatchGradientDescent, BatchMethod

__all__ = ["batch_pays", "obstacle", "solve_batch"]

ENTRIES = 2_000_000
"""Numbers that trials hold together (16 MB): more would not stay near the processor, and are solved in turn."""
VECTORS = 10
"""Vectors in double precision that a trial holds; with L-BFGS one more a pair, which is in single precision."""
LEAST = 8
"""Trials below which a batch gains little."""


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


def batch_pays(problem: Problem, trials: int) -> bool:
    """Whether a batch of so many trials is likely to gain: many enough, and small."""
    return trials >= LEAST and LEAST * VECTORS * _entries(problem) <= ENTRIES


def solve_batch(
    problem: RegularizedUFM | NormalizedUFM,
    method: Method,
    starts: Sequence[Point],
    seeds: Sequence[int],
    options: SolveOptions,
) -> list[Trace | None]:
    """One trace a start; None where a trial ended at a strict saddle: there a single solve knows how to go on."""
    parts = -(-len(starts) // _batch_size(problem, method))
    edges = [len(starts) * part // parts for part in range(parts + 1)]
    traces: list[Trace | None] = []
    keep_freed_blocks()
    run = TrialBatch(problem, method, options)
    for begin, end in pairwise(edges):
        with torch.inference_mode(), np.errstate(all="ignore"):
            run.descend(starts[begin:end])
        traces += run.traces(seeds[begin:end])
    return traces


def _batch_size(problem: Problem, method: Method) -> int:
    """How many trials are solved at once."""
    vectors = VECTORS + (method.memory if isinstance(method, LBFGS) else 0)
    return max(LEAST, ENTRIES // (vectors * _entries(problem)))


def _entries(problem: Problem) -> int:
    return (problem.num_classes + problem.num_samples + 1) * problem.dim


@dataclass
class TrialRecord:
    """What became of one trial, and the rows recorded on the way."""

    x: Vectors
    rows: dict[str, HistoryColumn]
    outcome: Outcome = "max_iter"
    iterations: int = 0
    value: float = math.nan
    norm: float = math.nan
    seconds: float = 0.0


class TrialBatch:
    """Trials that are solved together."""

    trials: list[TrialRecord]
    began: float

    def __init__(self, problem: RegularizedUFM | NormalizedUFM, method: Method, options: SolveOptions):
        self.problem, self.method, self.options, self.optimum = problem, method, options, known_optimum(problem)
        objective = problem.objective()
        if isinstance(method, ConjugateGradient) and method.plain:
            objective.weigh_alike()
        loss = problem.loss.stack(problem.labels, problem.num_classes)
        assert loss is not None
        self.model = BatchModel(problem, loss, objective.scales)
        self.every = options.every or sparing_interval(objective, method, options.record)
        self.columns = Columns(problem, options.record, None if self.optimum is None else self.optimum.value)

    def descend(self, starts: Sequence[Point]) -> None:
        """Step until every trial has ended."""
        x = self.model.gather(starts)
        names = ("iteration", "seconds", *self.options.record)
        self.trials = [TrialRecord(x[:0], {name: [] for name in names}) for _ in starts]
        self.began = time.perf_counter()
        options, steps, front = self.options, self._steps(), ActiveTrials(len(starts))
        state = self.model.at(x)
        for iteration in range(options.max_iter + 1):
            front.arrive(state, self.model.norms(state), steps.rounding(state))
            if iteration % self.every == 0:
                self._record(front, iteration)
            converged = front.norms <= options.tol
            ended = converged | front.stalled | front.diverged
            if ended.any():
                self._end(front, front.stalled, "stalled", iteration)
                self._end(front, converged, "converged", iteration)
                self._end(front, front.diverged, "diverged", iteration)
                survivors = Survivors(~ended)
                front.keep(survivors)
                steps.keep(survivors)
            if iteration == options.max_iter:
                self._end(front, np.ones(len(front.ids), dtype=bool), "max_iter", iteration)
            if iteration == options.max_iter or not len(front.ids):
                break
            state, failed = steps.step(front.state)
            if failed.any():
                self._end(front, failed, "stalled", iteration)
                survivors = Survivors(~failed)
                state = state.keep(survivors)
                front.keep(survivors)
                steps.keep(survivors)
                if not len(front.ids):
                    break
        self._record_last()

    def _steps(self) -> BatchMethod:
        if isinstance(self.method, GradientDescent):
            return BatchGradientDescent(self.model, self.method.window)
        if isinstance(self.method, LBFGS):
            return BatchLBFGS(self.model, self.method.memory)
        return BatchConjugateGradient(self.model)

    def _end(self, front: "ActiveTrials", which: Numbers, outcome: Outcome, iteration: int) -> None:
        """Keep what these trials came to."""
        seconds = time.perf_counter() - self.began
        for place in places(which).tolist():
            trial, state = self.trials[int(front.ids[place])], front.state
            trial.x, trial.outcome, trial.iterations = state.x[place].copy(), outcome, iteration
            trial.value, trial.norm, trial.seconds = float(state.values[place]), float(front.norms[place]), seconds

    def _record(self, front: "ActiveTrials", iteration: int) -> None:
        """A row for each trial that still goes on."""
        trials = [self.trials[k] for k in front.ids.tolist()]
        count, seconds = len(trials), time.perf_counter() - self.began
        x = front.state.x if self.columns.need_points else None
        values, norms = front.state.values.tolist(), front.norms.tolist()
        self._add_rows(trials, [iteration] * count, [seconds] * count, x, values, norms)

    def _record_last(self) -> None:
        """A row at the end of those trials that have none there, all at once."""
        due = [trial for trial in self.trials if trial.rows["iteration"][-1] != trial.iterations]
        if due:
            values, norms = [trial.value for trial in due], [trial.norm for trial in due]
            steps, seconds = [trial.iterations for trial in due], [trial.seconds for trial in due]
            self._add_rows(due, steps, seconds, np.stack([trial.x for trial in due]), values, norms)

    def _add_rows(
        self,
        trials: list[TrialRecord],
        iterations: list[int],
        seconds: list[float],
        x: Vectors | None,
        values: list[float],
        norms: list[float],
    ) -> None:
        points = None if x is None else self.model.points(x)
        found = {"iteration": iterations, "seconds": seconds, **self.columns.at(points, values, norms)}
        for name, entries in found.items():
            for trial, entry in zip(trials, entries, strict=True):
                trial.rows[name].append(entry)

    def traces(self, seeds: Sequence[int]) -> list[Trace | None]:
        """A trace of each trial; None for one that must be solved by itself."""
        points = self.model.points(np.stack([trial.x for trial in self.trials]))
        return [self._trace(*each) for each in zip(self.trials, points, seeds, strict=True)]

    def _trace(self, trial: TrialRecord, point: Point, seed: int) -> Trace | None:
        regime, remark = reached(self.optimum, trial.value)
        elsewhere = self.optimum is not None and not near(self.optimum, trial.value) and trial.outcome == "converged"
        if elsewhere and self.problem.certify(point).verdict in (STRICT_SADDLE, NOT_CRITICAL):
            return None
        company = len(self.trials)
        how = f"after {trial.iterations} iterations in a batch of {company} the gradient norm is {trial.norm:.1e}"
        return Trace(
            point=point,
            history=trial.rows,
            converged=trial.outcome == "converged",
            method=self.method.name,
            message=f"{how}; {remark}.",
            outcome=trial.outcome,
            problem=self.problem,
            value=trial.value,
            gradient_norm=trial.norm,
            iterations=trial.iterations,
            seconds=trial.seconds / company,
            seed=seed,
            regime=regime,
        )


class ActiveTrials:
    """The trials that still go on: where they are, and what they have reached."""

    state: BatchState
    norms: Numbers
    stalled: Numbers
    """Whose value or gradient norm has not fallen for too long."""
    diverged: Numbers
    """Whose value or gradient norm is not finite."""

    def __init__(self, trials: int):
        self.ids = np.arange(trials)
        self._idle = np.zeros(trials, dtype=int)
        self._lowest, self._smallest = np.full((2, trials), np.inf)

    def arrive(self, state: BatchState, norms: Numbers, rounding: Numbers) -> None:
        """The trials have come to ``state``."""
        self.state, self.norms = state, norms
        progress = (state.values < self._lowest - rounding) | (norms < 0.99 * self._smallest)
        self._idle = np.where(progress, 0, self._idle + 1)
        self._lowest, self._smallest = np.minimum(self._lowest, state.values), np.minimum(self._smallest, norms)
        self.stalled = self._idle >= PATIENCE
        self.diverged = ~np.isfinite(state.values + norms)

    def keep(self, survivors: Survivors) -> None:
        """Only these trials go on."""
        self.state, self.ids, self.norms = self.state.keep(survivors), survivors.of(self.ids), survivors.of(self.norms)
        self._idle = survivors.of(self._idle)
        self._lowest, self._smallest = survivors.of(self._lowest), survivors.of(self._smallest)
