"""The flat form of the two models on logits, with products counted.

Z = tau H W' + 1 b' are the logits, G (N, K) is the gradient of the mean loss in them. A value costs one
product of order N K d, a gradient two more, a Hessian product six; along a ray all values together cost two
(:class:`LogitLine`).
"""

import math
from typing import Protocol, cast

import torch
from jaxtyping import Float
from torch import Tensor

from ..normalized import NormalizedUFM
from ..point import Point
from ..regularized import RegularizedUFM
from ._model import Line, Model, State, dot

__all__ = ["Along", "LogitHessian", "LogitLine", "LogitModel", "LogitState"]

REFRESH = 20
"""Line steps after which the logits are computed afresh, so that rounding does not add up."""


class LogitModel(Model):
    """What the regularised and the normalised model share."""

    problem: RegularizedUFM | NormalizedUFM

    def __init__(self, problem: RegularizedUFM | NormalizedUFM, temperature: float, scales: tuple[float, ...]):
        shape = (problem.num_classes + problem.num_samples, problem.dim)
        rows = torch.empty(1, dtype=torch.float64).expand(shape)
        bias = torch.empty(1, dtype=torch.float64).expand(problem.num_classes) if problem.has_bias else None
        template = Point(rows[: problem.num_classes], rows[problem.num_classes :], bias)
        super().__init__(problem, template, scales)
        self.temperature = temperature
        self.classes = problem.num_classes
        self.shape = shape
        self.row_entries = shape[0] * shape[1]
        self.labels = problem.labels
        self.has_bias = problem.has_bias
        self._columns: dict[torch.dtype, Tensor] = {}

    def rows(self, x: Float[Tensor, " D"]) -> Float[Tensor, "R d"]:
        """W above H, as a view."""
        return (x[: self.row_entries] if self.has_bias else x).view(self.shape)

    def bias(self, x: Float[Tensor, " D"]) -> Float[Tensor, " K"] | None:
        """b, as a view."""
        return x[self.row_entries :] if self.has_bias else None

    def halves(self, rows: Float[Tensor, "R d"]) -> tuple[Float[Tensor, "K d"], Float[Tensor, "N d"]]:
        """W and H, as views (narrowing is the cheapest way to one)."""
        return rows.narrow(0, 0, self.classes), rows.narrow(0, self.classes, self.shape[0] - self.classes)

    def logits_at(self, x: Float[Tensor, " D"]) -> Float[Tensor, "N K"]:
        """Tau H W' + 1 b'."""
        W, H = self.halves(self.rows(x))
        logits = torch.mm(H, W.T)
        if self.temperature != 1:
            logits *= self.temperature
        bias = self.bias(x)
        if bias is not None:
            logits += bias
        return logits

    def precondition(self, vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Each block times its scale, in one operation where there is no bias."""
        if self.has_bias:
            return super().precondition(vector)
        column = self._columns.get(vector.dtype)
        if column is None:
            column = torch.full((self.shape[0], 1), self.scales[1], dtype=vector.dtype)
            column[: self.classes] = self.scales[0]
            self._columns[vector.dtype] = column
        return torch.mul(vector.view(self.shape), column).view(-1)

    def state(self, x: Float[Tensor, " D"]) -> "LogitState":
        """The model at ``x``."""
        return LogitState(self, self.logits_at(x), self.penalty(x), x=x)

    def line(self, state: State, direction: Float[Tensor, " D"]) -> "LogitLine":
        """The model along ``direction``, with O(NK) work a trial."""
        return LogitLine(self, cast("LogitState", state), direction)

    def penalty(self, x: Float[Tensor, " D"]) -> float:
        """What the objective has besides the mean loss."""
        return 0.0

    def finish_gradient_(self, x: Float[Tensor, " D"], pull: Float[Tensor, " D"]) -> Tensor | None:
        """Turn the pull of the mean loss on x into the gradient; the result goes to the Hessian."""
        raise NotImplementedError

    def finish_hessian_(
        self,
        hessian: "LogitHessian",
        direction: Float[Tensor, " D"],
        turn: Float[Tensor, "R d"],
        bend: Float[Tensor, " D"],
        out: Float[Tensor, "R d"],
    ) -> None:
        """Turn the mean loss's own product ``bend`` into the whole one; ``turn`` and ``out`` are rows."""
        raise NotImplementedError

    def along(self, state: "LogitState", direction: Float[Tensor, " D"]) -> "Along":
        """How value and logits change along a ray besides Z0 + t Z1 + t^2 Z2."""
        raise NotImplementedError


class LogitState(State):
    """A model on logits at one point; the softmax is kept for all Hessian products."""

    def __init__(
        self,
        model: LogitModel,
        logits: Float[Tensor, "N K"],
        penalty: float,
        *,
        x: Float[Tensor, " D"] | None = None,
        ray: tuple[Float[Tensor, " D"], Float[Tensor, " D"], float] | None = None,
        age: int = 0,
    ):
        self.model, self.age = model, age
        self._logits, self._x, self._ray = logits, x, ray
        self.loss = model.problem.loss.linearize(logits, model.labels)
        self.value = self.loss.value + penalty
        self._slope: Tensor | None = None
        self._gradient: Tensor | None = None
        self.multipliers: Tensor | None = None
        self._hessian: LogitHessian | None = None

    @property
    def x(self) -> Float[Tensor, " D"]:
        """The point as one vector; on a ray it is computed when first asked for."""
        if self._x is None:
            assert self._ray is not None
            self._x = self.model.retract(*self._ray)
            self._ray = None
        return self._x

    @property
    def logits(self) -> Float[Tensor, "N K"]:
        """The logits."""
        return self._logits

    @property
    def slope(self) -> Float[Tensor, "N K"]:
        """Tau G."""
        if self._slope is None:
            self._slope = self.loss.gradient
            if self.model.temperature != 1:
                self._slope *= self.model.temperature
        return self._slope

    @property
    def gradient(self) -> Float[Tensor, " D"]:
        """(G'H, GW, G'1) and what decay or the spheres make of it: two products."""
        if self._gradient is None:
            model, x, slope = self.model, self.x, self.slope
            W, H = model.halves(model.rows(x))
            pull = torch.empty_like(x)
            pull_W, pull_H = model.halves(model.rows(pull))
            pull_bias = model.bias(pull)
            torch.mm(slope.T, H, out=pull_W)
            torch.mm(slope, W, out=pull_H)
            if pull_bias is not None:
                torch.sum(slope, dim=0, out=pull_bias)
            self.multipliers = model.finish_gradient_(x, pull)
            self._gradient = pull
        return self._gradient

    def hessian_vector(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Six products, in the precision of ``direction``."""
        if self._hessian is None or self._hessian.dtype != direction.dtype:
            self._hessian = LogitHessian(self, direction.dtype)
        return self._hessian(direction)


class LogitHessian:
    """The Hessian at one state in one precision: copies, views and buffers for many products."""

    def __init__(self, state: LogitState, dtype: torch.dtype):
        model = state.model
        self.dtype, self.model = dtype, model
        state.gradient  # noqa: B018  (computes the multipliers)
        self.x, slope = state.x.to(dtype), state.slope.to(dtype)
        self.multipliers = None if state.multipliers is None else state.multipliers.to(dtype)
        self.loss = state.loss
        if dtype != state.x.dtype:
            self.loss = model.problem.loss.linearize(state.logits.to(dtype), model.labels)
        self.base = model.rows(self.x)
        self._W, self._H = model.halves(self.base)
        self._W_transposed = self._W.T
        self._slope, self._slope_transposed = slope, slope.T
        self._change = torch.empty_like(slope)
        self._result = torch.empty_like(self.x)
        self._out, self._out_bias = model.rows(self._result), model.bias(self._result)
        self._out_W, self._out_H = model.halves(self._out)

    def __call__(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Two products into the logits, the softmax's Hessian, four products out."""
        model, W, H = self.model, self._W, self._H
        turn, turn_bias = model.rows(direction), model.bias(direction)
        dW, dH = model.halves(turn)
        change = torch.mm(dH, self._W_transposed, out=self._change)
        change.addmm_(H, dW.T)
        if model.temperature != 1:
            change *= model.temperature**2
        if turn_bias is not None:
            change += turn_bias
        bend = self.loss.hessian_vector(change)
        torch.mm(bend.T, H, out=self._out_W).addmm_(self._slope_transposed, dH)
        torch.mm(bend, W, out=self._out_H).addmm_(self._slope, dW)
        if self._out_bias is not None:
            torch.sum(bend, dim=0, out=self._out_bias)
        model.finish_hessian_(self, direction, turn, self._result, self._out)
        return self._result


class Along(Protocol):
    """What a model adds to a polynomial line: t counts in the line's own units."""

    def curvature(self) -> float:
        """The part of the second derivative at t = 0 that the logits' polynomial does not have."""
        ...

    def bend_(self, logits: Float[Tensor, "N K"], step: float) -> float:
        """Make the polynomial's logits those at ``step``, in place; the penalty there is returned."""
        ...


class LogitLine(Line):
    """Z(t) = Z0 + t Z1 + t^2 Z2 along x + t d, scaled by rows and columns where the step is retracted to
    spheres.

    Z2 = tau dH dW' is one product; Z1 comes from (H + dH)(W + dW)' - Z0 - Z2, one more, instead of two. The
    direction is first scaled to the size of x, so that this difference loses no digits that matter. Every
    trial is then O(NK).
    """

    def __init__(self, model: LogitModel, state: LogitState, direction: Float[Tensor, " D"]):
        self._model, self._state, self._direction = model, state, direction
        x = state.x
        self._logits = state.logits if state.age < REFRESH else model.logits_at(x)
        self._age = state.age if state.age < REFRESH else 0
        length = math.sqrt(dot(direction, direction))
        self._unit = max(math.sqrt(dot(x, x)), 1.0) / length if length > 0 else 1.0
        turn = direction * self._unit
        self._along = model.along(state, turn)
        dW, dH = model.halves(model.rows(turn))
        self._second = torch.mm(dH, dW.T)
        if model.temperature != 1:
            self._second *= model.temperature
        self._first = model.logits_at(turn.add_(x))
        self._first -= self._logits
        self._first -= self._second

    def at(self, step: float) -> LogitState:
        """The state at t = ``step``, without a product."""
        t = step / self._unit
        logits = torch.add(self._first, self._second, alpha=t).mul_(t).add_(self._logits)
        penalty = self._along.bend_(logits, t)
        ray = (self._state.x, self._direction, step)
        return LogitState(self._model, logits, penalty, ray=ray, age=self._age + 1)

    def curvature(self) -> float:
        """<Z1, L Z1> + 2 <G, Z2> and the model's own part, L the loss's Hessian in the logits."""
        state = self._state
        bend = state.loss.hessian_vector(self._first.clone())
        total = dot(bend.view(-1), self._first.view(-1))
        total += 2 * dot(state.slope.view(-1), self._second.view(-1)) / self._model.temperature
        return (total + self._along.curvature()) / self._unit**2
