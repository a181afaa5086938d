"""Ticks that people read: plain decimals on logarithmic axes where they fit, whole epochs, no label twice."""

import math
from typing import TYPE_CHECKING, Any

from .theme import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plain_decimals", "whole_epochs"]

MULTIPLES = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0))
"""Of powers of ten, where ticks may lie: the first that gives three of them; round numbers where none does."""
ENOUGH = 3
LEAST, MOST = 1e-3, 1e4
"""Between them a power of ten is written in full."""


def plain_decimals(picture: "Figure") -> None:
    """Write 0.6 instead of 6 x 10^-1 on logarithmic axes, and powers of ten only where a decimal would be long.

    Every axis has at least three labels, or as many as fit, and none at the small ticks between.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    for axes in picture.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(map(float, axis.get_view_interval()))
            if axis.get_scale() != "log" or not 0 < low < high or not _automatic(axis):
                continue
            multiples = next((some for some in MULTIPLES if _count(some, low, high) >= ENOUGH), None)
            axis.set_minor_formatter(NullFormatter())
            if multiples != MULTIPLES[0]:
                axis.set_major_locator(MaxNLocator(4) if multiples is None else LogLocator(subs=multiples, numticks=20))
                axis.set_minor_locator(NullLocator())
            if multiples != MULTIPLES[0] or (low > 0.5 * LEAST and high < 2 * MOST):
                axis.set_major_formatter(FuncFormatter(lambda value, _: number(float(value))))


def _count(multiples: tuple[float, ...], low: float, high: float) -> int:
    """How many multiples of powers of ten lie between ``low`` and ``high``."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return sum(low <= part * 10.0**power <= high for part in multiples for power in powers)


def whole_epochs(picture: "Figure") -> None:
    """Ticks at whole numbers on axes of epochs, which have no halves."""
    from matplotlib.ticker import MaxNLocator

    for axes in picture.axes:
        axis = axes.xaxis
        if "epoch" not in axes.get_xlabel() or not _automatic(axis):
            continue
        low, high = sorted(axis.get_view_interval())
        if axis.get_scale() == "linear" or (low > 0 and high <= 3 * low):
            axis.set_major_locator(MaxNLocator(nbins=5, integer=True))


def _automatic(axis: Any) -> bool:
    """Whether nobody has chosen this axis's ticks."""
    from matplotlib.ticker import FixedLocator

    return not isinstance(axis.get_major_locator(), FixedLocator)
