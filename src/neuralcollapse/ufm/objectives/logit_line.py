"""An objective on logits along a ray: every trial costs O(NK) after two products."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from .base import Line, dot
from .logit_state import LogitState, PartLoss

if TYPE_CHECKING:
    from .logits import LogitObjective, Segment

__all__ = ["REFRESH", "LogitLine"]

REFRESH = 20
"""Line steps after which the logits are computed afresh, so that rounding does not add up."""
NOTHING = torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True)
class LineTrial:
    """The last value found on a line; with logits and loss where the problem is one part."""

    step: float
    value: float
    logits: Tensor | None
    loss: PartLoss | None


class LogitLine(Line):
    """Z(t) = Z0 + t Z1 + t^2 Z2 along x + t d, scaled by rows and columns where the step is retracted to spheres.

    Z2 = tau dH dW' is one product; Z1 comes from (H + dH)(W + dW)' - Z0 - Z2, one more, instead of two. The
    direction is first scaled to the size of x, so that this difference loses no digits that matter. Every trial is
    then O(NK).
    """

    def __init__(self, objective: "LogitObjective", state: LogitState, direction: Float[Tensor, " D"]):
        if state.age >= REFRESH:
            state.refresh()
        self._objective, self._direction = objective, direction
        self._state: LogitState | None = state
        x, self._logits = state.x, state.logits
        length = math.sqrt(dot(direction, direction))
        self._unit = max(math.sqrt(dot(x, x)), 1.0) / length if length > 0 else 1.0
        self._along = objective.along(state, direction, self._unit)
        state.leave(logits_too=False)
        self._first, self._second = objective.empty_logits(), objective.empty_logits()
        self._trial: LineTrial | None = None
        self._expand(x)

    @property
    def _start(self) -> LogitState:
        if self._state is None:
            raise RuntimeError("a step was taken along this line: it is used up")
        return self._state

    def _expand(self, x: Float[Tensor, " D"]) -> None:
        """Z1 and Z2, part by part."""
        objective, unit, direction = self._objective, self._unit, self._direction
        (W, H, bias), (dW, dH, d_bias) = objective.blocks(x), objective.blocks(direction)
        change_W = dW * unit
        moved_W = change_W + W
        if bias is not None and d_bias is not None:
            bias = torch.add(bias, d_bias, alpha=unit)
        for part in objective.parts:
            moved_H = part.of(dH) * unit
            second = torch.mm(moved_H, change_W.T, out=part.of(self._second))
            moved_H += part.of(H)
            first = torch.mm(moved_H, moved_W.T, out=part.of(self._first))
            if objective.temperature != 1:
                second *= objective.temperature
            objective.finish_logits_(first, bias).sub_(part.of(self._logits)).sub_(second)

    def _move(self, part: "Segment", t: float, factors: Tensor | None, out: Tensor | None = None) -> Tensor:
        """The logits of a part at t, into ``out`` or a new array."""
        logits = torch.add(part.of(self._first), part.of(self._second), alpha=t, out=out)
        logits.mul_(t).add_(part.of(self._logits))
        if factors is not None:
            classes = self._objective.classes
            logits *= part.of(factors[classes:])[:, None]
            logits *= factors[:classes]
        return logits

    def value(self, step: float) -> float:
        """The value at t = ``step``, without a product."""
        return self._try(step).value

    def _try(self, step: float) -> LineTrial:
        if self._trial is not None and self._trial.step == step:
            return self._trial
        objective, t = self._objective, step / self._unit
        factors, value = self._along.factors(t), self._along.penalty(t)
        self._trial = logits = loss = None
        for part in objective.parts:
            logits = self._move(part, t, factors)
            loss = PartLoss(objective, part, logits)
            value += loss.value
        kept = (logits, loss) if objective.whole else (None, None)
        self._trial = LineTrial(step, value, *kept)
        return self._trial

    def at(self, step: float) -> LogitState:
        """The state at t = ``step``, without a product; the logits of a large problem are put where Z1 was."""
        trial, start, objective = self._try(step), self._start, self._objective
        logits = trial.logits
        if logits is None:
            t, logits = step / self._unit, self._first
            factors = self._along.factors(t)
            for part in objective.parts:
                self._move(part, t, factors, part.of(logits))
        # Nothing of the line is needed any more: its memory is free for the new point.
        self._trial = self._state = None
        self._first = self._second = self._logits = NOTHING
        start.leave()
        x = objective.retract(start.x, self._direction, step)
        return LogitState(objective, x, logits, trial.value, trial.loss, start.age + 1)

    def curvature(self) -> float:
        """<Z1, L Z1> + 2 <G, Z2> and the model's own part, L the loss's Hessian in the logits."""
        total = 0.0
        for loss in self._start.losses():
            first, second = loss.part.of(self._first), loss.part.of(self._second)
            product = loss.hessian_vector(first.clone())
            total += dot(product.view(-1), first.view(-1))
            total += 2 * dot(loss.slope.view(-1), second.view(-1)) / self._objective.temperature
        return (total + self._along.curvature()) / self._unit**2
