"""One verb: from a start to a trace."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from torch import Tensor

from ..._support.checks import describe, integer, real
from ..._support.machine import keep_freed_blocks, torch_threads
from ..objectives.base import Objective, State
from ..point import Point
from ..problem import Problem
from ..results import NOT_CRITICAL, STRICT_SADDLE, Certificate, HistoryRow, Optimum, Outcome, Regime, Trace
from .history import USUAL, HistoryRecorder, check_record, sparing_interval
from .method import Method, solver_methods

__all__ = ["Iterate", "SolveKeywords", "SolveOptions", "methods", "perturb", "solve"]


@dataclass(frozen=True, eq=False)
class Iterate:
    """What ``on_iteration`` sees: the point (a copy), its value and its gradient norm."""

    iteration: int
    point: Point
    value: float
    gradient_norm: float


REACHED = 1e-7
"""A value farther than this from the closed form's, relative to max(1, |value|), is another critical point's."""
OF_SMALL = 1e-3
"""Besides, a value is that of a closed form that is smaller than one only within this share of it."""
PATIENCE = 200
"""Iterations without a lower value or gradient norm after which a solve has stalled."""


def methods(problem: Problem) -> list[str]:
    """The names of the methods that work on ``problem``."""
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be an unconstrained feature model, got {describe(problem)}")
    return [name for name, method in solver_methods.items() if method.supports(problem)]


@dataclass(frozen=True)
class SolveOptions:
    """When to stop and what to record; checked."""

    tol: float = 1e-8
    max_iter: int = 1000
    record: Sequence[str] = USUAL
    gap: float | None = None
    max_seconds: float | None = None
    every: int | None = None
    perturbation: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "tol", real("tol", self.tol, minimum=0))
        object.__setattr__(self, "max_iter", integer("max_iter", self.max_iter, minimum=0))
        object.__setattr__(self, "record", check_record(self.record))
        if self.gap is not None:
            object.__setattr__(self, "gap", real("gap", self.gap, minimum=0))
        if self.max_seconds is not None:
            object.__setattr__(self, "max_seconds", real("max_seconds", self.max_seconds, above=0))
        if self.every is not None:
            object.__setattr__(self, "every", integer("every", self.every, minimum=1))
        object.__setattr__(self, "perturbation", real("perturbation", self.perturbation, minimum=0))


class SolveKeywords(TypedDict, total=False):
    """The fields of :class:`SolveOptions` as keywords, for what hands them on."""

    tol: float
    max_iter: int
    record: Sequence[str]
    gap: float | None
    max_seconds: float | None
    every: int | None
    perturbation: float


def solve(
    problem: Problem,
    method: str | Method = "lbfgs",
    start: Point | None = None,
    seed: int = 0,
    tol: float = 1e-8,
    max_iter: int = 1000,
    record: Sequence[str] = USUAL,
    *,
    gap: float | None = None,
    max_seconds: float | None = None,
    every: int | None = None,
    perturbation: float = 0.0,
    on_record: Callable[[HistoryRow], None] | None = None,
    on_iteration: Callable[[Iterate], None] | None = None,
) -> Trace:
    """Minimise ``problem`` from ``start`` (a random point drawn from ``seed`` if None).

    The solve ends at a gradient norm of ``tol``, at ``gap`` above a proved lower bound on the minimum, after
    ``max_iter`` iterations or after ``max_seconds``; where rounding allows no further decrease; or at a strict saddle
    that the method does not leave. It works on one thread.

    Args:
        problem: what to minimise.
        method: a name of :func:`methods`, perhaps with parameters ("lbfgs:memory=5"), or a method object.
        start: where to begin.
        seed: decides the random start, and the perturbation.
        tol: the gradient norm to stop at.
        max_iter: iterations at most.
        record: what the history holds: value, gradient_norm, gap (to the closed form), certified_gap, accuracy, and the
            measures of :data:`neuralcollapse.metrics.METRICS` that means, spread and classifier give (nc1, nc2, nc3,
            ...; None where a report has a reason). With "points" among them (or ``record="points"``, the usual columns
            and the points) the trace keeps the point of each row.
        gap: the distance to a proved lower bound to stop at: the closed form, else the certificate's, which is asked
            ever more rarely.
        max_seconds: seconds at most.
        every: record every so many iterations; None for as often as costs a few percent.
        perturbation: the norm of a seeded Gaussian step that moves the start: from a critical point it shows whether a
            method gets away.
        on_record: called with each new row.
        on_iteration: called with an :class:`Iterate`, a copy of the point included, before the first and after each
            iteration.

    >>> from neuralcollapse.ufm import NormalizedUFM, solve
    >>> trace = solve(NormalizedUFM("ce", num_classes=4, per_class=3, dim=8), method="trust-region")
    >>> trace.outcome, trace.regime
    ('converged', 'neural collapse')

    """
    way = resolve_method(problem, method)
    options = SolveOptions(tol, max_iter, record, gap, max_seconds, every, perturbation)
    seed = integer("seed", seed)
    if start is not None:
        problem.check(start)
    begin = problem.random_point(seed) if start is None else start.map(torch.detach)
    if options.perturbation:
        begin = perturb(problem, begin, options.perturbation, seed)
    used = start is None or options.perturbation > 0
    run = SolveLoop(problem, way, options, on_record, on_iteration)
    # Inference mode makes small operations a fifth cheaper, but its tensors may not leave it: points are copied after.
    keep_freed_blocks()
    with torch_threads(1), torch.inference_mode():
        trace = run.trace(begin, seed if used else None)
    points = None if trace.points is None else tuple(way.restore(problem, point) for point in trace.points)
    return replace(trace, point=way.restore(problem, trace.point), points=points)


def resolve_method(problem: Problem, method: str | Method) -> Method:
    """``method`` as an object that works on ``problem``."""
    known = methods(problem)
    way = method if isinstance(method, Method) else solver_methods.create(method)
    if way.name not in known:
        raise ValueError(f"method {way.name!r} does not work on this model (known: {', '.join(known)})")
    return way


def perturb(problem: Problem, point: Point, size: float, seed: int) -> Point:
    """``point`` after a feasible step along a seeded Gaussian direction, of Frobenius norm ``size``."""
    generator = torch.Generator().manual_seed(seed)

    def gaussian(block: Tensor) -> Tensor:
        return torch.randn(block.shape, dtype=torch.float64, generator=generator)

    direction = problem.project(point, point.map(gaussian))
    length = direction.norm()
    if length == 0:
        raise ValueError("perturbation needs a direction to move in: on spheres in one dimension there is none")
    return problem.retract(point, direction * (size / length))


class SolveLoop:
    """One solve: the loop, and the words for how it ended. The trace has the recast problem's point."""

    def __init__(
        self,
        problem: Problem,
        method: Method,
        options: SolveOptions,
        on_record: Callable[[HistoryRow], None] | None,
        on_iteration: Callable[[Iterate], None] | None,
    ):
        self.problem, self.method, self.options = problem, method, options
        self.on_record, self.on_iteration = on_record, on_iteration
        self.optimum = known_optimum(problem)
        self.lower = self.optimum.value if self.optimum is not None and self.optimum.proved else -math.inf
        self.next_bound = 0
        self.note = ""

    def trace(self, start: Point, seed: int | None) -> Trace:
        inner, begin = self.method.recast(self.problem, start)
        objective = inner.objective()
        every = self.options.every or sparing_interval(objective, self.method, self.options.record)
        minimum = None if self.optimum is None else self.optimum.value
        recorder = HistoryRecorder(objective, self.options.record, every, minimum)
        outcome, message, state, iterations = self._loop(objective, begin, recorder)
        self._record(recorder, iterations, state, last=True)
        regime, remark = reached(self.optimum, state.value)
        return Trace(
            point=objective.point(state.x),
            history=recorder.columns,
            points=None if recorder.points is None else tuple(recorder.points),
            converged=outcome == "converged",
            method=self.method.name,
            message=f"{message}{self.note}; {remark}.",
            outcome=outcome,
            problem=self.problem,
            value=state.value,
            gradient_norm=state.gradient_norm,
            iterations=iterations,
            seconds=recorder.seconds,
            seed=seed,
            regime=regime,
        )

    def _loop(self, objective: Objective, begin: Point, recorder: HistoryRecorder) -> tuple[Outcome, str, State, int]:
        options = self.options
        state = objective.state(objective.flatten(begin))
        path = self.method.iterate(objective, state)
        lowest, smallest, idle, iteration = math.inf, math.inf, 0, 0
        unchecked_until = 0
        while True:
            self._record(recorder, iteration, state)
            self._show(objective, iteration, state)
            norm = state.gradient_norm
            if not math.isfinite(state.value + norm):
                return "diverged", "the value or the gradient is no longer finite", state, iteration
            if self._within_gap(objective, state, iteration):
                return (
                    "converged",
                    f"within {options.gap:g} of a proved lower bound on the minimum",
                    state,
                    iteration,
                )
            if norm <= options.tol and iteration >= unchecked_until:
                verdict = self._second_order_check(objective, state)
                if verdict is None:
                    return "converged", f"the gradient norm is {norm:.1e}", state, iteration
                if verdict.verdict == STRICT_SADDLE and self.method.leaves_saddles:
                    away = _leave_saddle(objective, state, verdict)
                    if away is not None:
                        state, iteration, unchecked_until = away, iteration + 1, iteration + 1
                        path = self.method.iterate(objective, state)
                        self.note = f", after leaving a strict saddle of curvature {verdict.curvature:.2g}"
                        continue
                elif norm == 0:
                    return "saddle", "at a strict saddle, where the gradient vanishes", state, iteration
                unchecked_until = iteration + 50
            if iteration >= options.max_iter:
                return (
                    "max_iter",
                    f"after {iteration} iterations the gradient norm is {norm:.1e}",
                    state,
                    iteration,
                )
            if options.max_seconds is not None and recorder.seconds >= options.max_seconds:
                return (
                    "max_seconds",
                    f"after {options.max_seconds:g} s the gradient norm is {norm:.1e}",
                    state,
                    iteration,
                )
            idle = 0 if state.value < lowest - objective.rounding(state) or norm < 0.99 * smallest else idle + 1
            lowest, smallest = min(lowest, state.value), min(smallest, norm)
            following = next(path, None) if norm > 0 and idle < PATIENCE else None
            if following is None:
                return "stalled", f"no further decrease at a gradient norm of {norm:.1e}", state, iteration
            state, iteration = following, iteration + 1

    def _record(self, recorder: HistoryRecorder, iteration: int, state: State, last: bool = False) -> None:
        row = recorder.add(iteration, state, last)
        if row is not None and self.on_record is not None:
            with torch.inference_mode(False):
                self.on_record(row)

    def _show(self, objective: Objective, iteration: int, state: State) -> None:
        if self.on_iteration is not None:
            norm = state.gradient_norm  # computed inside inference mode, whose buffers may not be written outside
            with torch.inference_mode(False):
                point = self.method.restore(self.problem, objective.point(state.x))
                self.on_iteration(Iterate(iteration, point, state.value, norm))

    def _within_gap(self, objective: Objective, state: State, iteration: int) -> bool:
        gap = self.options.gap
        if gap is None:
            return False
        proved = self.optimum is not None and self.optimum.proved
        if not proved and state.value - self.lower > gap and iteration >= self.next_bound:
            self.lower = max(self.lower, objective.problem.certify(objective.point(state.x)).lower_bound)
            self.next_bound = math.ceil(1.25 * iteration) + 1
        return state.value - self.lower <= gap

    def _second_order_check(self, objective: Objective, state: State) -> Certificate | None:
        """The certificate of a point with a small gradient that is no minimum; None where it may be one."""
        if near(self.optimum, state.value) or (self.optimum is None and not self.method.leaves_saddles):
            return None
        certificate = objective.problem.certify(objective.point(state.x))
        return certificate if certificate.verdict in (STRICT_SADDLE, NOT_CRITICAL) else None


def known_optimum(problem: Problem) -> Optimum | None:
    """The closed form, if there is one at once."""
    try:
        return problem.closed_form()
    except ValueError:
        return None


def near(optimum: Optimum | None, value: float) -> bool:
    """Whether ``value`` is no other critical point's than the closed form's, as far as a gradient of ``tol`` tells."""
    return optimum is not None and abs(value - optimum.value) <= REACHED * max(1.0, abs(value))


def reached(optimum: Optimum | None, value: float) -> tuple[Regime | None, str]:
    """The regime of the closed form if ``value`` is its, and a remark on where the value is."""
    if not math.isfinite(value):
        return None, f"the value is {value}"
    if optimum is None:
        return None, f"the value is {value:.10g}, and no closed form is known"
    above, size = value - optimum.value, abs(optimum.value)
    if near(optimum, value) and (abs(above) <= OF_SMALL * size or size == 0):
        return optimum.regime, f"the value is that of the closed form, regime {optimum.regime!r}"
    where = f"{above:.3g} above" if above > 0 else f"{-above:.3g} below"
    return None, f"the value is {where} that of the closed form, regime {optimum.regime!r}"


def _leave_saddle(objective: Objective, state: State, certificate: Certificate) -> State | None:
    """The lowest of states at steps of many lengths along both senses of the escape direction."""
    assert certificate.escape is not None
    direction = objective.flatten(certificate.escape)
    line = objective.line(state, direction)
    reach = 2 * max(1.0, float(state.x.norm()))
    trials = [sign * reach * 0.5**power for power in range(20) for sign in (1.0, -1.0)]
    best = line.at(min(trials, key=line.value))
    return best if best.value < state.value else None
