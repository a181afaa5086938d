"""Trust regions: Steihaug and Toint's truncated conjugate gradients on the analytic Hessian."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ...._support.checks import flag
from ...objective import Model, State, dot
from ..line_search import backtrack
from ..method import Method, methods_registry, rounding

__all__ = ["TrustRegion"]


SINGLE_FROM = 5e5
"""From this many multiplications a product on, the quadratic model is solved in single precision: a product
costs half.

Values, gradients and the test of a step stay in double precision, so the minimum found is as exact.
"""


@dataclass(frozen=True)
class _ModelStep:
    """A step within the region, the decrease that the quadratic model promises, and whether it ends on the
    border.
    """

    step: Float[Tensor, " D"]
    promised: float
    slope: float
    on_border: bool


@methods_registry.add("trust-region", "tr")
@dataclass(frozen=True)
class TrustRegion(Method):
    """min over |s| <= radius of <grad, s> + <s, Hessian s>/2, approximately; lengths are measured in the
    block metric.

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

    def iterate(self, model: Model, state: State) -> Iterator[State]:
        """One region an iteration."""
        if self.plain:
            model.weigh_alike()
        unit = math.sqrt(len(model.scales))
        radius, widest = unit, math.pi * unit
        precision = torch.float32 if model.work >= SINGLE_FROM else torch.float64
        while True:
            proposal = truncated_conjugate_gradient(model, state, radius, precision)
            state.shed("hessian")
            trial = model.step(state, proposal.step)
            noise = 1e3 * rounding(model, state)
            ratio = (state.value - trial.value + noise) / (proposal.promised + noise)
            length = radius
            if not ratio >= 0.1:
                trial.retire()
                line = model.line(state, proposal.step)
                shorter = backtrack(line, state.value, proposal.slope, 0.5, rounding(model, state))
                if shorter is None:
                    if precision == torch.float64:
                        return
                    line.close()
                    model.give(proposal.step)
                    precision = torch.float64
                    continue
                length = shorter.length * model.metric_norm(proposal.step)
                trial = line.at(shorter.length)
            if not ratio >= 0.25:
                radius = 0.5 * length
            elif ratio > 0.75 and proposal.on_border:
                radius = min(2 * radius, widest)
            model.give(proposal.step)
            state.shed()
            yield trial
            state.retire()
            state = trial


def truncated_conjugate_gradient(model: Model, state: State, radius: float, precision: torch.dtype) -> _ModelStep:
    """Preconditioned conjugate gradients, stopped at the border, at negative curvature or at a small
    residual.

    The residual has to fall by min(1/4, cube root of its size): superlinear convergence without solving the
    model better than it is. The gradient is scaled to unit length first, so that single precision neither
    under- nor overflows.
    """
    exact = state.gradient
    memory = [model.take() for _ in range(2 if precision == torch.float32 else 4)]
    scale = math.sqrt(dot(exact, model.precondition(exact, memory[0])))
    # Two vectors of single precision fill one of double precision.
    residual, step, scaled, direction = (
        part for block in memory for part in block.view(precision).split(model.entries)
    )
    torch.mul(exact, 1 / scale, out=memory[-1])
    residual.copy_(memory[-1])
    step.zero_()
    border = radius / scale
    model.precondition(residual, scaled)
    torch.neg(scaled, out=direction)
    size = dot(residual, scaled)
    target = math.sqrt(size) * max(min(0.25, scale ** (1 / 3)), 1e-4)
    step_square, cross, direction_square, promised = 0.0, 0.0, size, 0.0
    on_border = False
    for _ in range(residual.numel()):
        bend = state.hessian_vector(direction)
        curvature = dot(direction, bend)
        length = size / curvature if curvature > 0 else math.inf
        beyond = step_square + 2 * length * cross + length**2 * direction_square
        if not beyond < border**2:
            length = (-cross + math.sqrt(cross**2 + direction_square * (border**2 - step_square))) / direction_square
            step.add_(direction, alpha=length)
            promised += length * size - length**2 * curvature / 2
            on_border = True
            break
        step.add_(direction, alpha=length)
        residual.add_(bend, alpha=length)
        promised += length * size / 2
        model.precondition(residual, scaled)
        new_size = dot(residual, scaled)
        if math.sqrt(new_size) <= target:
            break
        ratio = new_size / size
        direction.mul_(ratio).sub_(scaled)
        step_square = beyond
        cross = ratio * (cross + length * direction_square)
        direction_square = new_size + ratio**2 * direction_square
        size = new_size
    whole = memory.pop()
    torch.mul(step, scale, out=whole)
    if precision == torch.float32:
        model.project_(state.x, whole)
    for block in memory:
        model.give(block)
    return _ModelStep(whole, promised * scale**2, dot(exact, whole), on_border)
