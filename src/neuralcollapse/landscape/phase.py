"""Which solution is the global minimum at which decay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..losses import LogitLoss, Transition
from ..ufm import RegularizedUFM

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

    def plot(self) -> "Figure":
        """The regimes as coloured cells over both decays, on logarithmic axes, as a matplotlib figure."""
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch

        names = sorted(set(self.regimes.ravel().tolist()))
        cells = np.vectorize(names.index)(self.regimes)
        figure = Figure(figsize=(5.2, 4.0), layout="constrained")
        axis = figure.subplots()
        axis.set_xscale("log")
        axis.set_yscale("log")
        mesh = axis.pcolormesh(
            _edges(self.feature_decays),
            _edges(self.weight_decays),
            cells,
            cmap="viridis",
            vmin=0,
            vmax=max(len(names) - 1, 1),
        )
        colours = mesh.to_rgba(np.arange(len(names), dtype=np.float64))
        patches = [Patch(color=tuple(colour), label=name) for colour, name in zip(colours, names, strict=True)]
        figure.legend(handles=patches, loc="outside lower center", ncols=2)
        axis.set_xlabel("feature decay")
        axis.set_ylabel("weight decay")
        return figure


def _edges(decays: Sequence[float]) -> np.ndarray:
    """Borders of cells around the decays: geometric means, the outer ones as wide as their neighbours."""
    logs = np.log(np.asarray(decays, dtype=np.float64))
    if len(logs) == 1:
        return np.exp(logs[0] + np.array([-0.5, 0.5]))
    middles = (logs[1:] + logs[:-1]) / 2
    return np.exp(np.concatenate([[2 * logs[0] - middles[0]], middles, [2 * logs[-1] - middles[-1]]]))


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
