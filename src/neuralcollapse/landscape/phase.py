"""Which solution is the global minimum at which decay."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..losses import LogitLoss, Transition
from ..ufm import RegularizedUFM

__all__ = ["PhaseDiagram", "phase_diagram"]


@dataclass(frozen=True)
class PhaseDiagram:
    """Regimes on a grid of decays: axis 0 is the weight decay, axis 1 the feature decay.

    ``boundary`` has, for contrastive losses, the values of s = sqrt(n lW lH) between which zero and collapse exchange:
    the boundaries are hyperbolas lW lH = s^2/n.
    """

    weight_decays: tuple[float, ...]
    feature_decays: tuple[float, ...]
    regimes: np.ndarray
    values: np.ndarray
    logit_scales: np.ndarray
    boundary: Transition | None


def phase_diagram(
    loss: LogitLoss | str,
    num_classes: int,
    per_class: int,
    dim: int,
    weight_decays: Sequence[float],
    feature_decays: Sequence[float],
    bias_decay: float | None = None,
) -> PhaseDiagram:
    """The regime of the regularised model's optimum at each pair of decays; "unknown" where no closed form is known."""
    shape = len(weight_decays), len(feature_decays)
    regimes = np.empty(shape, dtype=object)
    values, scales = np.full(shape, np.nan), np.full(shape, np.nan)
    model = None
    for row, weight in enumerate(weight_decays):
        for column, feature in enumerate(feature_decays):
            model = RegularizedUFM(loss, num_classes, per_class, dim, weight, feature, bias_decay)
            try:
                optimum = model.optimum()
            except NotImplementedError:
                regimes[row, column] = "unknown"
                continue
            regimes[row, column] = optimum.regime
            values[row, column], scales[row, column] = optimum.value, optimum.logit_scale
    if model is None:
        raise ValueError("weight_decays and feature_decays must each name at least one value")
    boundary = model.loss.transition(num_classes) if model.loss.depends_on_margins else None
    return PhaseDiagram(tuple(weight_decays), tuple(feature_decays), regimes, values, scales, boundary)
