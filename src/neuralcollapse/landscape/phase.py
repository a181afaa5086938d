"""Which solution is the global minimum at which decay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._support.theme import INK_ON_BRIGHT, plain_axes, plain_decimals, regime_colour
from ..losses import LogitLoss, Transition
from ..ufm import RegularizedUFM

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PhaseDiagram", "phase_diagram"]

SHARE_WITH_NAME = 0.08
LONGEST_NAME = 20
"""Letters that fit into a region of that share."""


@dataclass(frozen=True)
class PhaseDiagram:
    """Regimes on a grid of decays: axis 0 is the weight decay, axis 1 the feature decay.

    ``boundary`` has, for losses of margins, the values of s = sqrt(n lW lH) between which zero and collapse exchange:
    the boundaries are hyperbolas lW lH = s^2/n.
    """

    weight_decays: tuple[float, ...]
    feature_decays: tuple[float, ...]
    regimes: np.ndarray
    values: np.ndarray
    logit_scales: np.ndarray
    boundary: Transition | None

    def plot(self) -> "Figure":
        """The regimes as coloured cells over both decays, on logarithmic axes, as a matplotlib figure.

        A regime's name stands in its region; those with little room have theirs in a legend.
        """
        from matplotlib.colors import ListedColormap
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
        from scipy.ndimage import distance_transform_edt

        names = sorted(set(self.regimes.ravel().tolist()))
        cells = np.vectorize(names.index)(self.regimes)
        figure = Figure(figsize=(5.2, 4.0), layout="constrained")
        axis = figure.subplots()
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.pcolormesh(
            _edges(self.feature_decays),
            _edges(self.weight_decays),
            cells,
            cmap=ListedColormap([regime_colour(name) for name in names]),
            vmin=-0.5,
            vmax=len(names) - 0.5,
            alpha=0.75,
            linewidth=0,
            rasterized=True,  # as vectors, the page shines through between neighbours
        )
        narrow = []
        for place, name in enumerate(names):
            # The cell that is farthest from all others and from the edges has the most room around it.
            room = np.asarray(distance_transform_edt(np.pad(cells == place, 1)))[1:-1, 1:-1]
            row, column = np.unravel_index(np.argmax(room), room.shape)
            if np.mean(cells == place) < SHARE_WITH_NAME or len(name) > LONGEST_NAME:
                narrow.append(Patch(color=regime_colour(name), alpha=0.75, label=name))
                continue
            spot = self.feature_decays[int(column)], self.weight_decays[int(row)]
            axis.annotate(name, spot, ha="center", va="center", fontsize=10, color=INK_ON_BRIGHT)
        if narrow:
            figure.legend(handles=narrow, loc="outside lower center", ncols=2, frameon=False)
        axis.set_xlabel("feature decay")
        axis.set_ylabel("weight decay")
        plain_axes(axis)
        plain_decimals(figure)
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
    """The regime of the regularised model's optimum at each pair of decays; "unknown" where none can be computed.

    >>> diagram = phase_diagram("ce", 3, 1, 2, weight_decays=[0.1, 2.0], feature_decays=[0.1])
    >>> diagram.regimes[:, 0].tolist()  # s = 0.1 is below 1/K, s = 0.45 above it
    ['neural collapse', 'zero']

    Args:
        loss: a loss on logits.
        num_classes: K.
        per_class: n, the same for all classes.
        dim: feature dimension d.
        weight_decays: the values of lW, one a row.
        feature_decays: the values of lH, one a column.
        bias_decay: lb; None for no bias.

    """
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
