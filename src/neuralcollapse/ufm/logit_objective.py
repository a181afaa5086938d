"""The flat form of the two models on logits, with products counted.

Z = tau H W' + 1 b' are the logits, G (N, K) is the gradient of the mean loss in them. A value costs one
product of order N K d, a gradient two more, a Hessian product six; along a ray all values together cost two
(:class:`LogitLine`).

Large problems are worked on in parts of some rows, so that of all arrays of the logits' size only the logits
themselves, and along a ray their two derivatives, are ever held. A small problem is one part, and what was
computed of the loss there is kept.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, cast

import torch
from jaxtyping import Float
from torch import Tensor

from .normalized import NormalizedUFM
from .objective import Line, Model, Share, State, dot
from .point import Point
from .regularized import RegularizedUFM

__all__ = ["Along", "LogitHessian", "LogitLine", "LogitModel", "LogitState", "Part"]

REFRESH = 20
"""Line steps after which the logits are computed afresh, so that rounding does not add up."""
WHOLE = 1 << 19
"""Up to this many entries in features or logits (4 MB) a problem is one part."""
PART_ENTRIES, PART_ROWS = 1 << 17, 512
"""The entries of a part of a larger problem (1 MB), and the rows that it has at least."""


@dataclass(frozen=True)
class Part:
    """Some rows of the features and of the logits, and their share of all rows."""

    start: int
    rows: int
    labels: Tensor
    share: float

    def of(self, array: Tensor) -> Tensor:
        """These rows of ``array``, as a view (narrowing is the cheapest way to one)."""
        return array if self.share == 1 else array.narrow(0, self.start, self.rows)


def in_parts(labels: Tensor, width: int) -> list[Part]:
    """All rows, in parts of nearly equal size; ``width`` is what a row has entries."""
    count = len(labels)
    if count * width <= WHOLE:
        return [Part(0, count, labels, 1.0)]
    number = math.ceil(count / max(PART_ENTRIES // width, PART_ROWS))
    edges = [index * count // number for index in range(number + 1)]
    return [Part(start, end - start, labels[start:end], (end - start) / count) for start, end in pairwise(edges)]


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
        self.has_bias = problem.has_bias
        self.parts = in_parts(problem.labels, max(problem.num_classes, problem.dim))
        self.whole = len(self.parts) == 1
        # Where logits are large, and nearly as large as vectors, the same memory serves both.
        self._logit_shape = (problem.num_samples, problem.num_classes)
        self._one_memory = not self.whole and self.entries / 2 < math.prod(self._logit_shape) <= self.entries
        self._free: list[Tensor] = []
        self._free_logits: list[Tensor] = []
        self._columns: dict[torch.dtype, Tensor] = {}

    def take(self) -> Float[Tensor, " D"]:
        """A vector with arbitrary entries, one that was given back if possible.

        A large array that is new costs several times the arithmetic on it: the system has to clear its pages.
        """
        return self._free.pop() if self._free else torch.empty(self.entries, dtype=torch.float64)

    def give(self, vector: Float[Tensor, " D"]) -> None:
        """Keep ``vector`` for who takes one next."""
        self._free.append(vector)

    def take_logits(self) -> Float[Tensor, "N K"]:
        """An array of the logits' shape with arbitrary entries."""
        if self._one_memory:
            return self.take().as_strided(self._logit_shape, (self.classes, 1))
        return self._free_logits.pop() if self._free_logits else torch.empty(self._logit_shape, dtype=torch.float64)

    def give_logits(self, logits: Float[Tensor, "N K"]) -> None:
        """Keep the memory of ``logits``, which :meth:`take_logits` made."""
        if self._one_memory:
            self.give(logits.as_strided((self.entries,), (1,)))
        else:
            self._free_logits.append(logits)

    def rows(self, x: Float[Tensor, " D"]) -> Float[Tensor, "R d"]:
        """W above H, as a view."""
        return (x[: self.row_entries] if self.has_bias else x).view(self.shape)

    def bias(self, x: Float[Tensor, " D"]) -> Float[Tensor, " K"] | None:
        """b, as a view."""
        return x[self.row_entries :] if self.has_bias else None

    def halves(self, rows: Float[Tensor, "R d"]) -> tuple[Float[Tensor, "K d"], Float[Tensor, "N d"]]:
        """W and H, as views."""
        return rows.narrow(0, 0, self.classes), rows.narrow(0, self.classes, self.shape[0] - self.classes)

    def logits_at(self, x: Float[Tensor, " D"]) -> Float[Tensor, "N K"]:
        """Tau H W' + 1 b'."""
        W, H = self.halves(self.rows(x))
        return self.finish_logits_(torch.mm(H, W.T, out=self.take_logits()), self.bias(x))

    def finish_logits_(self, products: Tensor, bias: Float[Tensor, " K"] | None) -> Tensor:
        """Turn some rows of H W' into logits."""
        if self.temperature != 1:
            products *= self.temperature
        if bias is not None:
            products += bias
        return products

    def precondition(self, vector: Float[Tensor, " D"], out: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Each block times its scale, in one operation where there is no bias."""
        if self.has_bias:
            return super().precondition(vector, out)
        column = self._columns.get(vector.dtype)
        if column is None:
            column = torch.full((self.shape[0], 1), self.scales[1], dtype=vector.dtype)
            column[: self.classes] = self.scales[0]
            self._columns[vector.dtype] = column
        torch.mul(vector.view(self.shape), column, out=out.view(self.shape))
        return out

    def state(self, x: Float[Tensor, " D"]) -> "LogitState":
        """The model at ``x``."""
        return LogitState(self, x, self.logits_at(x))

    def line(self, state: State, direction: Float[Tensor, " D"]) -> "LogitLine":
        """The model along ``direction``, with O(NK) work a trial."""
        return LogitLine(self, cast("LogitState", state), direction)

    def penalty(self, x: Float[Tensor, " D"]) -> float:
        """What the objective has besides the mean loss."""
        return 0.0

    @abstractmethod
    def finish_gradient_(self, x: Float[Tensor, " D"], pull: Float[Tensor, " D"]) -> Tensor | None:
        """Turn the pull of the mean loss on x into the gradient; the result goes to the Hessian."""

    @abstractmethod
    def finish_hessian_(
        self,
        hessian: "LogitHessian",
        direction: Float[Tensor, " D"],
        turn: Float[Tensor, "R d"],
        bend: Float[Tensor, " D"],
        out: Float[Tensor, "R d"],
    ) -> None:
        """Turn the mean loss's own product ``bend`` into the whole one; ``turn`` and ``out`` are rows."""

    @abstractmethod
    def along(self, state: "LogitState", direction: Float[Tensor, " D"], unit: float) -> "Along":
        """How value and logits change along the ray x + t unit d besides Z0 + t Z1 + t^2 Z2."""


class PartLoss:
    """The mean loss of one part around its logits, as a share of the whole mean; the slope is kept if told."""

    def __init__(self, model: LogitModel, part: Part, logits: Float[Tensor, "n K"]):
        self.part = part
        self._keep = model.whole
        self._temperature = model.temperature
        self._inner = model.problem.loss.linearize(logits, part.labels)
        self._slope: Tensor | None = None

    @property
    def value(self) -> float:
        """What these rows add to the mean loss."""
        return self._inner.value * self.part.share

    @property
    def slope(self) -> Float[Tensor, "n K"]:
        """These rows of tau G; kept where the problem is one part."""
        if self._slope is not None:
            return self._slope
        slope, factor = self._inner.gradient, self._temperature * self.part.share
        if factor != 1:
            slope *= factor
        if self._keep:
            self._slope = slope
        return slope

    def hessian_vector(self, direction: Float[Tensor, "n K"]) -> Float[Tensor, "n K"]:
        """These rows of the Hessian in the logits times ``direction``, which may be overwritten."""
        bend = self._inner.hessian_vector(direction)
        if self.part.share != 1:
            bend *= self.part.share
        return bend


class LogitState(State):
    """A model on logits at one point."""

    def __init__(
        self,
        model: LogitModel,
        x: Float[Tensor, " D"],
        logits: Float[Tensor, "N K"],
        value: float | None = None,
        loss: PartLoss | None = None,
        age: int = 0,
    ):
        self.model, self.age = model, age
        self._x: Tensor | None = x
        self._logits: Tensor | None = logits
        self._gradient: Tensor | None = None
        self._multipliers: Tensor | None = None
        self._hessian: LogitHessian | None = None
        self._loss = loss
        self.value = sum(part.value for part in self.losses()) + model.penalty(x) if value is None else value

    @property
    def x(self) -> Float[Tensor, " D"]:
        """The point as one vector."""
        assert self._x is not None, "the state is retired"
        return self._x

    @property
    def logits(self) -> Float[Tensor, "N K"]:
        """The logits."""
        if self._logits is None:
            self._logits, self.age = self.model.logits_at(self.x), 0
        return self._logits

    @property
    def multipliers(self) -> Tensor | None:
        """What the gradient's computation found for the Hessian's; kept when the gradient is shed."""
        if self._multipliers is None:
            self.gradient  # noqa: B018  (computes them)
        return self._multipliers

    def losses(self, dtype: torch.dtype = torch.float64) -> Iterable[PartLoss]:
        """The loss of each part in turn; in double precision a single part's is kept."""
        logits, model = self.logits, self.model
        if not model.whole or dtype != logits.dtype:
            return (PartLoss(model, part, part.of(logits).to(dtype)) for part in model.parts)
        if self._loss is None:
            self._loss = PartLoss(model, model.parts[0], logits)
        return (self._loss,)

    @property
    def gradient(self) -> Float[Tensor, " D"]:
        """(G'H, GW, G'1) and what decay or the spheres make of it: two products."""
        if self._gradient is None:
            model, x = self.model, self.x
            W, H = model.halves(model.rows(x))
            pull = model.take()
            pull_W, pull_H = model.halves(model.rows(pull))
            pull_bias = model.bias(pull)
            if pull_bias is not None:
                pull_bias.zero_()
            for loss in self.losses():
                part, slope = loss.part, loss.slope
                pull_W.addmm_(slope.T, part.of(H), beta=min(part.start, 1))
                torch.mm(slope, W, out=part.of(pull_H))
                if pull_bias is not None:
                    pull_bias += slope.sum(0)
            self._multipliers = model.finish_gradient_(x, pull)
            self._gradient = pull
        return self._gradient

    def hessian_vector(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Six products, in the precision of ``direction``."""
        if self._hessian is None or self._hessian.dtype != direction.dtype:
            self.shed("hessian")
            self._hessian = LogitHessian(self, direction.dtype)
        return self._hessian(direction)

    def shed(self, *shares: Share) -> None:
        """Give ``shares`` back to the model (none named: all)."""
        if self._hessian is not None and (not shares or "hessian" in shares):
            self.model.give(self._hessian.memory)
            self._hessian = None
        if self._gradient is not None and (not shares or "gradient" in shares):
            self.gradient_norm  # noqa: B018  (stays known)
            self.model.give(self._gradient)
            self._gradient = None
        if self._logits is not None and (not shares or "logits" in shares):
            self.model.give_logits(self._logits)
            self._logits = self._loss = None

    def retire(self) -> None:
        """Give everything back, the point too."""
        self.shed()
        self.model.give(self.x)
        self._x = None


class LogitHessian:
    """The Hessian at one state in one precision: copies, views and buffers for many products."""

    def __init__(self, state: LogitState, dtype: torch.dtype):
        model = state.model
        self.dtype, self.model, self._state = dtype, model, state
        multipliers = state.multipliers
        self.multipliers = None if multipliers is None else multipliers.to(dtype)
        self.memory = model.take()
        if dtype == torch.float64:
            self._result, x = self.memory, state.x
        else:
            # Two vectors of single precision fill one of double precision.
            self._result, x = self.memory.view(dtype).split(model.entries)
            x.copy_(state.x)
        self.base = model.rows(x)
        self._W, self._H = model.halves(self.base)
        self._W_transposed = self._W.T
        self._out, self._out_bias = model.rows(self._result), model.bias(self._result)
        self._out_W, self._out_H = model.halves(self._out)
        self._kept = list(state.losses(dtype)) if model.whole else None
        self._direction: Tensor | None = None
        self._views: tuple[Tensor, Tensor, Tensor, Tensor | None]

    def __call__(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Two products into the logits, the softmax's Hessian, four products out."""
        model, W, H = self.model, self._W, self._H
        if direction is not self._direction:
            # The same vector comes many times over, with other entries.
            turn = model.rows(direction)
            self._direction, self._views = direction, (turn, *model.halves(turn), model.bias(direction))
        turn, dW, dH, turn_bias = self._views
        if self._out_bias is not None:
            self._out_bias.zero_()
        for loss in self._kept or self._state.losses(self.dtype):
            part, slope = loss.part, loss.slope
            H_part, dH_part, out_H = part.of(H), part.of(dH), part.of(self._out_H)
            change = torch.mm(dH_part, self._W_transposed).addmm_(H_part, dW.T)
            if model.temperature != 1:
                change *= model.temperature**2
            if turn_bias is not None:
                change += turn_bias
            bend = loss.hessian_vector(change)
            self._out_W.addmm_(bend.T, H_part, beta=min(part.start, 1)).addmm_(slope.T, dH_part)
            torch.mm(bend, W, out=out_H).addmm_(slope, dW)
            if self._out_bias is not None:
                self._out_bias += bend.sum(0)
        model.finish_hessian_(self, direction, turn, self._result, self._out)
        return self._result


class Along(Protocol):
    """What a model adds to a polynomial line: t counts in the line's own units."""

    def curvature(self) -> float:
        """The part of the second derivative at t = 0 that the logits' polynomial does not have."""
        ...

    def penalty(self, step: float) -> float:
        """What the objective has besides the mean loss at ``step``."""
        ...

    def factors(self, step: float) -> Float[Tensor, " R"] | None:
        """What the rows of W and H, and so the polynomial's logits, are multiplied by at ``step``."""
        ...


@dataclass(frozen=True)
class _Trial:
    """The last value found on a line; with logits and loss where the problem is one part."""

    step: float
    value: float
    logits: Tensor | None
    loss: PartLoss | None


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
        if state.age >= REFRESH:
            state.shed("logits")
        self._logits = state.logits
        length = math.sqrt(dot(direction, direction))
        self._unit = max(math.sqrt(dot(x, x)), 1.0) / length if length > 0 else 1.0
        self._along = model.along(state, direction, self._unit)
        self._first, self._second = model.take_logits(), model.take_logits()
        self._trial: _Trial | None = None
        self._expand()

    def _expand(self) -> None:
        """Z1 and Z2, part by part."""
        model, unit, x, direction = self._model, self._unit, self._state.x, self._direction
        (W, H), (dW, dH) = model.halves(model.rows(x)), model.halves(model.rows(direction))
        turn_W = dW * unit
        moved_W = turn_W + W
        bias, turn_bias = model.bias(x), model.bias(direction)
        if bias is not None and turn_bias is not None:
            bias = torch.add(bias, turn_bias, alpha=unit)
        for part in model.parts:
            turn = part.of(dH) * unit
            second = torch.mm(turn, turn_W.T, out=part.of(self._second))
            turn += part.of(H)
            first = torch.mm(turn, moved_W.T, out=part.of(self._first))
            if model.temperature != 1:
                second *= model.temperature
            model.finish_logits_(first, bias).sub_(part.of(self._logits)).sub_(second)

    def _move(self, part: Part, t: float, factors: Tensor | None, out: Tensor | None) -> Tensor:
        """The logits of a part at t, into ``out`` or a new array."""
        logits = torch.add(part.of(self._first), part.of(self._second), alpha=t, out=out)
        logits.mul_(t).add_(part.of(self._logits))
        if factors is not None:
            logits *= part.of(factors[self._model.classes :])[:, None]
            logits *= factors[: self._model.classes]
        return logits

    def value(self, step: float) -> float:
        """The value at t = ``step``, without a product."""
        return self._try(step).value

    def _try(self, step: float) -> "_Trial":
        if self._trial is not None:
            if self._trial.step == step:
                return self._trial
            self._drop_trial()
        model, t = self._model, step / self._unit
        factors, value = self._along.factors(t), self._along.penalty(t)
        logits = model.take_logits() if model.whole else None
        loss = None
        for part in model.parts:
            loss = PartLoss(model, part, self._move(part, t, factors, logits))
            value += loss.value
        self._trial = _Trial(step, value, logits, loss if model.whole else None)
        return self._trial

    def at(self, step: float) -> LogitState:
        """The state at t = ``step``, without a product; the logits of a large problem are put where Z1 was."""
        trial, self._trial = self._try(step), None
        model, logits = self._model, trial.logits
        if logits is None:
            t, logits = step / self._unit, self._first
            factors = self._along.factors(t)
            for part in model.parts:
                self._move(part, t, factors, part.of(logits))
        else:
            model.give_logits(self._first)
        model.give_logits(self._second)
        x = model.retract(self._state.x, self._direction, step)
        return LogitState(model, x, logits, trial.value, trial.loss, self._state.age + 1)

    def close(self) -> None:
        """Give all arrays back."""
        self._drop_trial()
        self._model.give_logits(self._first)
        self._model.give_logits(self._second)

    def _drop_trial(self) -> None:
        if self._trial is not None and self._trial.logits is not None:
            self._model.give_logits(self._trial.logits)
        self._trial = None

    def curvature(self) -> float:
        """<Z1, L Z1> + 2 <G, Z2> and the model's own part, L the loss's Hessian in the logits."""
        model, total = self._model, 0.0
        for loss in self._state.losses():
            first, second = loss.part.of(self._first), loss.part.of(self._second)
            bend = loss.hessian_vector(first.clone())
            total += dot(bend.view(-1), first.view(-1))
            total += 2 * dot(loss.slope.view(-1), second.view(-1)) / model.temperature
        return (total + self._along.curvature()) / self._unit**2
