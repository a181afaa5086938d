"""The objective of the regularised model."""

import math
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from ..objectives.base import dot
from ..objectives.logit_state import LogitState
from ..objectives.logits import LogitObjective

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["RegularizedObjective"]


class RegularizedObjective(LogitObjective):
    """g(H W' + 1 b') + lW/2 |W|^2 + lH/2 |H|^2 + lb/2 |b|^2 in a flat space.

    The gradient is (G'H + lW W, G W + lH H, G'1 + lb b), G that of g in the logits.

    At a critical point lW W'W = lH H'H, and the loss's curvatures in W and in H stand as lW to lH: so does
    the metric.
    """

    def __init__(self, problem: "RegularizedUFM"):
        weight, feature, bias = problem.weight_decay, problem.feature_decay, problem.bias_decay or 0.0
        if weight > 0 and feature > 0:
            spread = problem.mu * math.sqrt(problem.num_samples / problem.num_classes)
            scales = (1 / weight, 1 / feature, 1 / (spread + bias))
        else:
            scales = (float(problem.num_classes), float(problem.num_samples), float(problem.num_classes))
        super().__init__(problem, 1.0, scales if problem.has_bias else scales[:2])
        self.decays = (weight, feature, bias)

    def decay_dot(self, left: Float[Tensor, " D"], right: Float[Tensor, " D"]) -> float:
        """lW <W, W'> + lH <H, H'> + lb <b, b'>."""
        pieces = zip(left.split_with_sizes(self.sizes), right.split_with_sizes(self.sizes), self.decays, strict=False)
        return sum(decay * dot(a, b) for a, b, decay in pieces)

    def penalty(self, x: Float[Tensor, " D"]) -> float:
        """Half the decays times the squared norms."""
        return self.decay_dot(x, x) / 2

    def along(self, state: LogitState, direction: Float[Tensor, " D"], unit: float) -> "DecayAlong":
        """The penalty is a parabola along the ray."""
        x = state.x
        first, second = unit * self.decay_dot(x, direction), unit**2 * self.decay_dot(direction, direction)
        return DecayAlong(self.penalty(x), first, second)


class DecayAlong:
    """The decays along a ray: start + first t + second t^2/2."""

    def __init__(self, start: float, first: float, second: float):
        self._coefficients = (start, first, second)

    def curvature(self) -> float:
        """The parabola's."""
        return self._coefficients[2]

    def penalty(self, step: float) -> float:
        """The parabola."""
        start, first, second = self._coefficients
        return start + step * (first + step * second / 2)

    def factors(self, step: float) -> None:
        """Rows move freely."""
        return
