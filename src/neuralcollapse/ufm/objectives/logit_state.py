"""An objective on logits at one point: value, gradient, Hessian products."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ...losses import Linearization
from .base import State

if TYPE_CHECKING:
    from .logits import LogitObjective, Segment

__all__ = ["LogitHessian", "LogitState", "PartLoss"]


class PartLoss:
    """The mean loss of one part around its logits, as a share of the whole mean; a single part's slope is kept."""

    def __init__(self, objective: "LogitObjective", part: "Segment", logits: Float[Tensor, "n K"]):
        self.part = part
        self._keep = objective.whole
        self._factor = objective.temperature * part.share
        self._linearization: Linearization | None = objective.loss.linearize(logits, part.labels)
        self._slope: Tensor | None = None

    @property
    def _inner(self) -> Linearization:
        if self._linearization is None:
            raise RuntimeError("the loss of this part was left behind")
        return self._linearization

    def release(self) -> None:
        """Nothing more is asked of this part: its arrays are free for the next."""
        self._linearization = self._slope = None

    @property
    def value(self) -> float:
        """What these rows add to the mean loss."""
        return self._inner.value * self.part.share

    @property
    def slope(self) -> Float[Tensor, "n K"]:
        """These rows of tau G."""
        if self._slope is not None:
            return self._slope
        slope = self._inner.gradient
        if self._factor != 1:
            slope *= self._factor
        if self._keep:
            self._slope = slope
        return slope

    def hessian_vector(self, change: Float[Tensor, "n K"]) -> Float[Tensor, "n K"]:
        """These rows of the Hessian in the logits times ``change``, which may be overwritten."""
        product = self._inner.hessian_vector(change)
        if self.part.share != 1:
            product *= self.part.share
        return product


class LogitState(State):
    """The objective at ``x``, whose logits are known."""

    def __init__(
        self,
        objective: "LogitObjective",
        x: Float[Tensor, " D"],
        logits: Float[Tensor, "N K"],
        value: float | None = None,
        loss: PartLoss | None = None,
        age: int = 0,
    ):
        self.objective, self.x, self.age = objective, x, age
        self._logits: Tensor | None = logits
        self._gradient: Tensor | None = None
        self._multipliers: Tensor | None = None
        self._hessian: LogitHessian | None = None
        self._loss = loss
        self.value = sum(part.value for part in self.losses()) + objective.penalty(x) if value is None else value

    @property
    def logits(self) -> Float[Tensor, "N K"]:
        """The logits."""
        if self._logits is None:
            self._logits, self.age = self.objective.logits_at(self.x), 0
        return self._logits

    def losses(self, dtype: torch.dtype = torch.float64) -> Iterable[PartLoss]:
        """The loss of each part in turn; in double precision a single part's is kept."""
        logits, objective = self.logits, self.objective
        if not objective.whole or dtype != logits.dtype:
            return objective.losses(logits, dtype)
        if self._loss is None:
            self._loss = PartLoss(objective, objective.parts[0], logits)
        return (self._loss,)

    @property
    def gradient(self) -> Float[Tensor, " D"]:
        """(G'H + lW W, GW + lH H, G'1 + lb b), or what the spheres make of it: two products."""
        if self._gradient is None:
            self._gradient, self._multipliers = self._differentiate()
        return self._gradient

    def _differentiate(self) -> tuple[Tensor, Tensor]:
        """(gradient, multipliers)."""
        objective, x = self.objective, self.x
        W, H, bias = objective.blocks(x)
        gradient = objective.empty()
        gradient_W, gradient_H, gradient_bias = objective.blocks(gradient)
        decay_W, decay_H, decay_bias = objective.decays
        if gradient_bias is not None and bias is not None:
            torch.mul(bias, decay_bias, out=gradient_bias)
        for loss in self.losses():
            part, slope = loss.part, loss.slope
            H_part = part.of(H)
            if part.start:
                gradient_W.addmm_(slope.T, H_part)
            else:
                torch.addmm(W, slope.T, H_part, beta=decay_W, out=gradient_W)
            torch.addmm(H_part, slope, W, beta=decay_H, out=part.of(gradient_H))
            if gradient_bias is not None:
                gradient_bias += slope.sum(0)
        return gradient, objective.finish_gradient_(x, gradient)

    @property
    def multipliers(self) -> Float[Tensor, "R 1"]:
        """Those of the constraints (none in a flat space); kept when the gradient is not."""
        if self._multipliers is None:
            self._gradient, self._multipliers = self._differentiate()
        return self._multipliers

    def hessian_vector(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Six products, in the precision of ``direction``."""
        if self._hessian is None or self._hessian.dtype != direction.dtype:
            self._hessian = None
            self._hessian = LogitHessian(self, direction.dtype)
        return self._hessian(direction)

    def refresh(self) -> None:
        """Compute the logits anew from the point: rounding adds up along lines."""
        self._logits = self._loss = None

    def leave(self, logits_too: bool = True) -> None:
        """A step is taken from here: a large problem's state lets go of what can be computed again."""
        if not self.objective.whole:
            self._gradient = self._hessian = None
            if logits_too:
                self._logits = self._loss = None


class LogitHessian:
    """The Hessian at one state in one precision: copies, views and buffers for many products."""

    def __init__(self, state: LogitState, dtype: torch.dtype):
        objective = state.objective
        self.dtype, self._objective = dtype, objective
        self.multipliers = state.multipliers.to(dtype)
        if dtype == torch.float64:
            self.result, x = objective.empty(), state.x
        else:
            self.result, x = objective.two_empty(dtype)
            x.copy_(state.x)
        self.x = x
        self._W, self._H, _ = objective.blocks(x)
        self._W_transposed = self._W.T
        self._result_W, self._result_H, self._result_bias = objective.blocks(self.result)
        # The logits, not the state that keeps this Hessian: nothing here may outlive the state.
        self._logits = state.logits
        self._kept = list(state.losses(dtype)) if objective.whole else None
        self._direction: Tensor | None = None
        self._views: tuple[Tensor, Tensor, Tensor | None]

    def __call__(self, direction: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Two products into the logits, the softmax's Hessian, four products out."""
        objective, W, H = self._objective, self._W, self._H
        if direction is not self._direction:
            # The same vector comes many times over, with other entries.
            self._direction, self._views = direction, objective.blocks(direction)
        dW, dH, d_bias = self._views
        decay_W, decay_H, decay_bias = objective.decays
        result_W, result_bias = self._result_W, self._result_bias
        if result_bias is not None and d_bias is not None:
            torch.mul(d_bias, decay_bias, out=result_bias)
        for loss in self._kept or objective.losses(self._logits, self.dtype):
            part, slope = loss.part, loss.slope
            H_part, dH_part = part.of(H), part.of(dH)
            change = torch.mm(dH_part, self._W_transposed).addmm_(H_part, dW.T)
            if objective.temperature != 1:
                change *= objective.temperature**2
            if d_bias is not None:
                change += d_bias
            product = loss.hessian_vector(change)
            if part.start:
                result_W.addmm_(product.T, H_part)
            else:
                torch.addmm(dW, product.T, H_part, beta=decay_W, out=result_W)
            result_W.addmm_(slope.T, dH_part)
            torch.addmm(dH_part, product, W, beta=decay_H, out=part.of(self._result_H)).addmm_(slope, dW)
            if result_bias is not None:
                result_bias += product.sum(0)
        objective.finish_hessian_(self, direction)
        return self.result
