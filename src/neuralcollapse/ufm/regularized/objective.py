"""The flat form of the regularised model."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..logit_objective import LogitHessian, LogitModel, LogitState
from ..objective import dot
from .model import RegularizedUFM

__all__ = ["RegularizedModel"]


class RegularizedModel(LogitModel):
    """Weight decay on all blocks; a flat space.

    At a critical point lW W'W = lH H'H, and the loss's curvatures in W and in H stand as lW to lH: so does
    the metric.
    """

    def __init__(self, problem: RegularizedUFM):
        weight, feature = problem.weight_decay, problem.feature_decay
        if weight > 0 and feature > 0:
            spread = problem.mu * math.sqrt(problem.num_samples / problem.num_classes)
            scales = (1 / weight, 1 / feature, 1 / (spread + (problem.bias_decay or 0.0)))
        else:
            scales = (float(problem.num_classes), float(problem.num_samples), float(problem.num_classes))
        super().__init__(problem, 1.0, scales if problem.has_bias else scales[:2])
        self.decays = (weight, feature, problem.bias_decay or 0.0)[: len(self.scales)]

    def decay_dot(self, left: Float[Tensor, " D"], right: Float[Tensor, " D"]) -> float:
        """LW <W, W'> + lH <H, H'> + lb <b, b'>."""
        pieces = zip(torch.split(left, self._sizes), torch.split(right, self._sizes), self.decays, strict=True)
        return sum(decay * dot(a, b) for a, b, decay in pieces)

    def add_decay_(self, target: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Target += (lW W, lH H, lb b)."""
        pieces = zip(torch.split(target, self._sizes), torch.split(vector, self._sizes), self.decays, strict=True)
        for piece, other, decay in pieces:
            piece.add_(other, alpha=decay)
        return target

    def penalty(self, x: Float[Tensor, " D"]) -> float:
        """Half the decays times the squared norms."""
        return self.decay_dot(x, x) / 2

    def finish_gradient_(self, x: Float[Tensor, " D"], pull: Float[Tensor, " D"]) -> None:
        """Add the decays' part."""
        self.add_decay_(pull, x)

    def finish_hessian_(
        self,
        hessian: LogitHessian,
        direction: Float[Tensor, " D"],
        turn: Float[Tensor, "R d"],
        bend: Float[Tensor, " D"],
        out: Float[Tensor, "R d"],
    ) -> None:
        """Add the decays' part."""
        self.add_decay_(bend, direction)

    def along(self, state: LogitState, direction: Float[Tensor, " D"], unit: float) -> "_DecayAlong":
        """The penalty is a parabola along the ray."""
        x = state.x
        first, second = unit * self.decay_dot(x, direction), unit**2 * self.decay_dot(direction, direction)
        return _DecayAlong(self.penalty(x), first, second)


class _DecayAlong:
    def __init__(self, start: float, first: float, second: float):
        self._coefficients = (start, first, second)

    def curvature(self) -> float:
        return self._coefficients[2]

    def penalty(self, step: float) -> float:
        start, first, second = self._coefficients
        return start + step * (first + step * second / 2)

    def factors(self, step: float) -> None:
        return None
