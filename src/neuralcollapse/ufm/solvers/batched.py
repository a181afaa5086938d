"""Many trials of one problem as one tensor: the same steps for all, each with its own length and its own end.

x (T, D) has a trial a row. Small problems spend most of a solve on the overhead of small operations, which a batch pays
once; a trial that has converged leaves it.
"""

import math
import time
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..._support.memory import keep_freed_blocks
from ..normalized import NormalizedUFM
from ..optimum import Optimum
from ..point import Point
from ..problem import Problem
from ..regularized import RegularizedUFM
from .method import Method, flat_model
from .methods.gradient_descent import GradientDescent
from .methods.lbfgs import LBFGS
from .trace import Outcome, Trace

__all__ = ["solve_batch", "supports_batch"]

SUFFICIENT = 1e-4
TRIALS = 25
RECORDABLE = ("value", "gradient_norm")


def supports_batch(problem: Problem, method: Method) -> bool:
    """Whether :func:`solve_batch` has the method for the model."""
    if isinstance(problem, RegularizedUFM):
        return isinstance(method, LBFGS | GradientDescent) and not problem.nonnegative
    return isinstance(problem, NormalizedUFM) and isinstance(method, LBFGS | GradientDescent)


class BatchedModel:
    """The regularised or the normalised model at many points at once."""

    def __init__(self, problem: RegularizedUFM | NormalizedUFM):
        self.problem = problem
        self.sphere = isinstance(problem, NormalizedUFM)
        self.temperature = problem.temperature if isinstance(problem, NormalizedUFM) else 1.0
        self.decays = (0.0, 0.0, 0.0)
        if isinstance(problem, RegularizedUFM):
            self.decays = problem.weight_decay, problem.feature_decay, problem.bias_decay or 0.0
        self.classes, self.samples, self.dim = problem.num_classes, problem.num_samples, problem.dim
        self.rows = self.classes + self.samples
        flat = flat_model(problem)
        sizes = [self.classes * self.dim, self.samples * self.dim, self.classes][: len(flat.scales)]
        self.metric = torch.cat([torch.full((size,), scale) for size, scale in zip(sizes, flat.scales, strict=True)])
        self.metric = self.metric.to(torch.float64)

    def split(self, x: Float[Tensor, "T D"]) -> tuple[Tensor, Tensor, Tensor | None]:
        """W (T, K, d), H (T, N, d), b (T, 1, K), as views."""
        cut = self.rows * self.dim
        rows = x[:, :cut].view(len(x), self.rows, self.dim)
        bias = x[:, cut:].view(len(x), 1, self.classes) if self.problem.has_bias else None
        return rows[:, : self.classes], rows[:, self.classes :], bias

    def evaluate(self, x: Float[Tensor, "T D"]) -> tuple[Tensor, Tensor]:
        """Values (T,) and gradients (T, D)."""
        weight, features, bias = self.split(x)
        logits = self.temperature * torch.bmm(features, weight.mT)
        if bias is not None:
            logits += bias
        trials = len(x)
        flat, labels = logits.view(trials * self.samples, self.classes), self.problem.labels.repeat(trials)
        loss = self.problem.loss
        values = loss.values(flat, labels).view(trials, self.samples).mean(1)
        blocks = zip((weight, features, bias), self.decays, strict=True)
        for block, decay in blocks:
            if block is not None and decay:
                values = values + decay / 2 * block.square().sum(dim=(1, 2))
        gradient = torch.empty_like(x)
        slope = loss.linearize(flat, labels).gradient.view_as(logits) * (trials * self.temperature)
        pull_weight, pull_features, pull_bias = self.split(gradient)
        torch.add(torch.bmm(slope.mT, features), weight, alpha=self.decays[0], out=pull_weight)
        torch.add(torch.bmm(slope, weight), features, alpha=self.decays[1], out=pull_features)
        if pull_bias is not None and bias is not None:
            pull_bias.copy_(slope.sum(1, keepdim=True) + self.decays[2] * bias)
        return values, self.project_(x, gradient)

    def project_(self, x: Float[Tensor, "T D"], vectors: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """Replace ``vectors`` by their tangent parts."""
        if self.sphere:
            base, rows = (array.view(len(x), self.rows, self.dim) for array in (x, vectors))
            rows -= base * (base * rows).sum(2, keepdim=True)
        return vectors

    def retract(self, x: Float[Tensor, "T D"], steps: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """X + steps, with rows scaled to unit norm on spheres."""
        result = x + steps
        if self.sphere:
            rows = result.view(len(x), self.rows, self.dim)
            rows /= rows.norm(dim=2, keepdim=True)
        return result


class Pairs:
    """The last pairs of L-BFGS of every trial; a pair without positive curvature has weight zero."""

    def __init__(self, memory: int):
        self.memory = memory
        self.changes: list[Tensor] = []
        self.turns: list[Tensor] = []
        self.inverses: list[Tensor] = []

    def add(self, change: Tensor, turn: Tensor) -> None:
        inner = _dot(change, turn)
        good = inner > 1e-10 * (_dot(change, change) * _dot(turn, turn)).sqrt()
        self.changes.append(change)
        self.turns.append(turn)
        self.inverses.append(torch.where(good, 1 / torch.where(good, inner, 1.0), 0.0))
        if len(self.changes) > self.memory:
            for column in (self.changes, self.turns, self.inverses):
                column.pop(0)

    def keep(self, mask: Tensor) -> None:
        """Only these trials go on."""
        for column in (self.changes, self.turns, self.inverses):
            column[:] = [array[mask] for array in column]

    def forget(self, mask: Tensor) -> None:
        """These trials start anew."""
        self.inverses[:] = [torch.where(mask, 0.0, inverse) for inverse in self.inverses]

    def direction(self, gradient: Tensor, metric: Tensor, plain: bool) -> Tensor:
        """-B grad of each trial by the two-loop recursion; ``plain``: Barzilai and Borwein's step instead."""
        result = gradient.clone()
        weights = []
        scale = torch.ones(len(gradient), dtype=gradient.dtype)
        for turn, inverse in zip(self.turns, self.inverses, strict=True):
            fresh = 1 / (_dot(turn, metric * turn) * torch.where(inverse > 0, inverse, 1.0))
            scale = torch.where(inverse > 0, fresh, scale)
        if plain:
            return -gradient * metric * scale[:, None]
        for change, turn, inverse in zip(
            reversed(self.changes), reversed(self.turns), reversed(self.inverses), strict=True
        ):
            weight = _dot(change, result) * inverse
            result -= weight[:, None] * turn
            weights.append(weight)
        result *= metric * scale[:, None]
        pieces = zip(self.changes, self.turns, self.inverses, reversed(weights), strict=True)
        for change, turn, inverse, weight in pieces:
            result += (weight - _dot(turn, result) * inverse)[:, None] * change
        return result.neg_()


def solve_batch(
    problem: RegularizedUFM | NormalizedUFM,
    method: Method,
    starts: Sequence[Point],
    seeds: Sequence[int],
    tol: float,
    max_iter: int,
    record: Sequence[str],
) -> list[Trace]:
    """One trace a start; each trial stops at its own gradient norm of ``tol``."""
    began = time.perf_counter()
    keep_freed_blocks()
    model = BatchedModel(problem)
    x = torch.stack([point.flatten() for point in starts])
    with torch.inference_mode():
        found = _descend(model, method, x, tol, max_iter)
    seconds = (time.perf_counter() - began) / len(starts)
    optimum = _known(problem)
    traces = []
    for index, seed in enumerate(seeds):
        rows = found.rows[index]
        value, norm = rows[-1][1:]
        reached = optimum is not None and value - optimum.value <= 1e-7 * max(1.0, abs(value))
        outcome: Outcome = found.outcomes[index]
        history: dict[str, list[float | int | None]] = {"iteration": [row[0] for row in rows]}
        history["seconds"] = [seconds * (k + 1) / len(rows) for k in range(len(rows))]
        for name in record:
            history[name] = [row[1 + RECORDABLE.index(name)] for row in rows]
        traces.append(
            Trace(
                point=starts[index].like(found.x[index].clone()),
                history=history,
                converged=outcome == "converged",
                method=method.name,
                message=f"in a batch of {len(seeds)}: the gradient norm is {norm:.1e}, the value {value:.10g}.",
                outcome=outcome,
                problem=problem,
                value=value,
                gradient_norm=norm,
                iterations=rows[-1][0],
                seconds=seconds,
                seed=seed,
                regime=optimum.regime if reached and optimum is not None else None,
            )
        )
    return traces


class _Found:
    """What each trial came to: its last point, how it ended, and (iteration, value, gradient norm) rows."""

    def __init__(self, x: Tensor):
        self.x = x.clone()
        self.outcomes: list[Outcome] = ["max_iter"] * len(x)
        self.rows: list[list[tuple[int, float, float]]] = [[] for _ in x]


def _descend(model: BatchedModel, method: Method, x: Tensor, tol: float, max_iter: int) -> _Found:
    found = _Found(x)
    active = torch.arange(len(x))
    values, gradient = model.evaluate(x)
    plain = not isinstance(method, LBFGS)
    pairs = Pairs(method.memory if isinstance(method, LBFGS) else 1)
    lengths = torch.ones(len(x), dtype=torch.float64)
    for iteration in range(max_iter + 1):
        norms = gradient.norm(dim=1)
        for index, value, norm in zip(active.tolist(), values.tolist(), norms.tolist(), strict=True):
            found.rows[index].append((iteration, value, norm))
        finished = norms <= tol
        for index in active[finished].tolist():
            found.outcomes[index] = "converged"
        found.x[active] = x
        if iteration == max_iter or bool(finished.all()):
            break
        if bool(finished.any()):
            going = ~finished
            active, x, values, gradient, lengths = (a[going] for a in (active, x, values, gradient, lengths))
            pairs.keep(going)
        direction = pairs.direction(gradient, model.metric, plain) if pairs.changes else -model.metric * gradient
        direction = model.project_(x, direction)
        slope = _dot(gradient, direction)
        uphill = ~(slope < 0)
        if bool(uphill.any()):
            pairs.forget(uphill)
            direction = torch.where(uphill[:, None], -model.metric * gradient, direction)
            slope = _dot(gradient, direction)
        after, new_values, new_gradient, stuck = _search(model, x, values, gradient, direction, slope, lengths)
        pairs.add(after - x, new_gradient - gradient)
        if bool(stuck.any()):
            pairs.forget(stuck)
        idle = stuck & (_dot(after - x, after - x) == 0)
        x, values, gradient = after, new_values, new_gradient
        lengths = torch.ones_like(values)
        if bool(idle.any()):
            for index in active[idle].tolist():
                found.outcomes[index] = "stalled"
            found.x[active] = x
            going = ~idle
            active, x, values, gradient, lengths = (a[going] for a in (active, x, values, gradient, lengths))
            pairs.keep(going)
            if len(active) == 0:
                break
    return found


def _search(
    model: BatchedModel,
    x: Tensor,
    values: Tensor,
    gradient: Tensor,
    direction: Tensor,
    slope: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Armijo backtracking, each trial at its own length: (points, values, gradients, which found no step and stay)."""
    noise = 1e-15 * values.abs().clamp(min=1.0, max=math.inf)
    after = model.retract(x, lengths[:, None] * direction)
    new_values, new_gradient = model.evaluate(after)
    open_trials = torch.arange(len(x))
    for _ in range(TRIALS):
        excess = new_values[open_trials] - values[open_trials]
        promised = lengths[open_trials] * slope[open_trials]
        failed = ~(excess <= SUFFICIENT * promised + noise[open_trials])
        if not bool(failed.any()):
            return after, new_values, new_gradient, torch.zeros(len(x), dtype=torch.bool)
        open_trials = open_trials[failed]
        bend = (excess - promised)[failed]
        shrink = torch.where(bend > 0, -promised[failed] / (2 * bend), 0.5).nan_to_num(0.1).clamp(0.1, 0.5)
        lengths[open_trials] *= shrink
        after[open_trials] = model.retract(x[open_trials], lengths[open_trials, None] * direction[open_trials])
        new_values[open_trials], new_gradient[open_trials] = model.evaluate(after[open_trials])
    stuck = torch.zeros(len(x), dtype=torch.bool)
    stuck[open_trials] = True
    after[open_trials], new_values[open_trials] = x[open_trials], values[open_trials]
    new_gradient[open_trials] = gradient[open_trials]
    return after, new_values, new_gradient, stuck


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """<u, v> of each trial."""
    return torch.linalg.vecdot(left, right, dim=1)


def _known(problem: Problem) -> Optimum | None:
    try:
        return problem.closed_form()
    except ValueError:
        return None
