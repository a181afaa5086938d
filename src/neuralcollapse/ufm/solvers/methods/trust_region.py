"""Trust regions: Steihaug and Toint's truncated conjugate gradients on the analytic Hessian."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ...._support.checks import flag
from ...objectives.base import Objective, State, dot
from ..line_search import backtrack
from ..method import Method, solver_methods

__all__ = ["TrustRegion"]


SINGLE_FROM = 5e5
"""From this many multiplications a product on, the quadratic model is solved in single precision, at half the price.

Values, gradients and the test of a step stay in double precision, so the minimum found is as exact.
"""


@dataclass(frozen=True)
class ModelStep:
    """A step within the region, the decrease that the quadratic model promises, and whether it ends on the border."""

    step: Float[Tensor, " D"]
    promised: float
    slope: float
    on_border: bool


@solver_methods.add("trust-region", "tr")
@dataclass(frozen=True)
class TrustRegion(Method):
    """min over |s| <= radius of <grad, s> + <s, Hessian s>/2, approximately; lengths are those of the block metric.

    Directions of negative curvature are followed to the border, and a critical point that the certificate
    finds to be a strict saddle is left along its escape direction. A step that fails is shortened along its
    ray, at O(NK) a trial, instead of solving again in a smaller region (Nocedal and Yuan 1998).
    """

    plain: bool = False
    """Whether to weigh all blocks alike instead of by the block metric."""

    name: ClassVar[str] = "trust-region"
    summary: ClassVar[str] = "Steihaug-Toint on the analytic Hessian in the block metric; leaves saddles"
    leaves_saddles: ClassVar[bool] = True
    products: ClassVar[int] = 12

    def __post_init__(self) -> None:
        flag("plain", self.plain)

    def iterate(self, objective: Objective, state: State) -> Iterator[State]:
        """One region an iteration."""
        if self.plain:
            objective.weigh_alike()
        unit = math.sqrt(len(objective.scales))
        radius, widest = unit, math.pi * unit
        precision = torch.float32 if objective.work >= SINGLE_FROM else torch.float64
        while True:
            proposal = truncated_conjugate_gradient(objective, state, radius, precision)
            trial = objective.step(state, proposal.step)
            noise = 1e3 * objective.rounding(state)
            ratio = (state.value - trial.value + noise) / (proposal.promised + noise)
            length = radius
            if not ratio >= 0.1:
                del trial
                line = objective.line(state, proposal.step)
                shorter = backtrack(line, state.value, proposal.slope, 0.5, objective.rounding(state))
                if shorter is None:
                    if precision == torch.float64:
                        return
                    del line, proposal
                    precision = torch.float64
                    continue
                length = shorter.length * objective.metric_norm(proposal.step)
                trial = line.at(shorter.length)
            if not ratio >= 0.25:
                radius = 0.5 * length
            elif ratio > 0.75 and proposal.on_border:
                radius = min(2 * radius, widest)
            del proposal
            state = trial
            yield state


def truncated_conjugate_gradient(
    objective: Objective, state: State, radius: float, precision: torch.dtype
) -> ModelStep:
    """Preconditioned conjugate gradients, stopped at the border, at negative curvature or at a small residual.

    The residual has to fall by min(1/4, cube root of its size): superlinear convergence without solving the
    model better than it is. The gradient is scaled to unit length first, so that single precision neither
    under- nor overflows.
    """
    exact = state.gradient
    unit = objective.precondition(exact)
    scale = math.sqrt(dot(exact, unit))
    torch.mul(exact, 1 / scale, out=unit)
    residual, scaled = objective.two_empty(precision)
    residual.copy_(unit)
    del unit
    step, direction = objective.two_empty(precision)
    step.zero_()
    border = radius / scale
    objective.precondition(residual, out=scaled)
    torch.neg(scaled, out=direction)
    size = dot(residual, scaled)
    target = math.sqrt(size) * max(min(0.25, scale ** (1 / 3)), 1e-4)
    step_square, cross, direction_square, promised = 0.0, 0.0, size, 0.0
    on_border = False
    for _ in range(residual.numel()):
        product = state.hessian_vector(direction)
        curvature = dot(direction, product)
        length = size / curvature if curvature > 0 else math.inf
        beyond = step_square + 2 * length * cross + length**2 * direction_square
        if not beyond < border**2:
            length = (-cross + math.sqrt(cross**2 + direction_square * (border**2 - step_square))) / direction_square
            step.add_(direction, alpha=length)
            promised += length * size - length**2 * curvature / 2
            on_border = True
            break
        step.add_(direction, alpha=length)
        residual.add_(product, alpha=length)
        promised += length * size / 2
        objective.precondition(residual, out=scaled)
        new_size = dot(residual, scaled)
        if math.sqrt(new_size) <= target:
            break
        ratio = new_size / size
        direction.mul_(ratio).sub_(scaled)
        step_square = beyond
        cross = ratio * (cross + length * direction_square)
        direction_square = new_size + ratio**2 * direction_square
        size = new_size
    del residual, scaled
    # Not torch.mul(step, scale, out=...), which would multiply in single precision, in memory of its own.
    whole = objective.empty().copy_(step).mul_(scale)
    if precision == torch.float32:
        objective.project_(state.x, whole)
    return ModelStep(whole, promised * scale**2, dot(exact, whole), on_border)
