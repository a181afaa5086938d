"""Which code more classes than dimensions take on spheres, over the temperature."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._support.checks import integer, positive_scale
from .._support.numerics import root
from .._support.theme import plain_axes, series_colour
from ..ufm.normalized.optimum import simplices_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CodeDiagram", "code_diagram"]

MOST_PARTITIONS = 2000
"""Ways to part the classes up to which all are compared."""


@dataclass(frozen=True, eq=False)
class CodeDiagram:
    """The best partition of K classes into K-d orthogonal simplices at each temperature.

    ``best`` has the sizes at each temperature, ``values`` the cross-entropy of each of ``codes`` (rows) at each
    temperature (columns), ``changes`` the temperatures between which neighbours in the grid exchange.
    """

    num_classes: int
    dim: int
    temperatures: tuple[float, ...]
    codes: tuple[tuple[int, ...], ...]
    values: np.ndarray
    best: tuple[tuple[int, ...], ...]
    changes: tuple[float, ...]

    def __repr__(self) -> str:
        order = [_code_name(code) for code, _ in itertools.groupby(self.best)]
        at = ", ".join(f"{change:.4g}" for change in self.changes)
        return f"CodeDiagram(K={self.num_classes}, d={self.dim}, {' then '.join(order)}{', at ' + at if at else ''})"

    def plot(self) -> "Figure":
        """How far each code is above the best one, relative to it, over the temperature, as a matplotlib figure.

        Only codes that are best somewhere have a name in the legend; changes are dashed.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.0, 3.6), layout="constrained")
        axis = figure.subplots()
        excess = self.values / self.values.min(axis=0) - 1
        winners = set(self.best)
        named = [_code_name(code) for code in self.codes if code in winners]
        for code, row in zip(self.codes, excess, strict=True):
            won = code in winners
            axis.plot(
                self.temperatures,
                row,
                color=series_colour(_code_name(code), named) if won else "0.85",
                label=_code_name(code) if won else None,
                zorder=2 if won else 1,
            )
        for change in self.changes:
            axis.axvline(change, color="0.4", linestyle="--", linewidth=0.8)
        # Differences are tiny at low temperatures, and zero for the best.
        axis.set_yscale("symlog", linthresh=1e-5)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("temperature τ")
        axis.set_ylabel("loss over the best, less 1")
        axis.set_title(f"{self.num_classes} classes in {self.dim} dimensions: orthogonal simplices")
        axis.legend(frameon=False)
        plain_axes(axis)
        return figure


def code_diagram(num_classes: int, dim: int, temperatures: Sequence[float] | np.ndarray) -> CodeDiagram:
    """The best of all partitions into K-d orthogonal simplices over ``temperatures``, for d + 2 <= K <= 2d.

    The cross-entropy of sizes k_i is the mean over classes of log(1 + (k-1) e^(-tau k/(k-1)) + (K-k) e^(-tau)). Only
    such codes are compared: others can be lower, at high temperatures above all.

    >>> code_diagram(6, 4, [0.5, 2.0, 5.0])
    CodeDiagram(K=6, d=4, 3+3 then 4+2, at 1.97)

    Args:
        num_classes: K.
        dim: feature dimension d.
        temperatures: tau > 0, rising.

    """
    dim = integer("dim", dim, minimum=2)
    count = integer("num_classes", num_classes)
    if not dim + 2 <= count <= 2 * dim:
        raise ValueError(
            f"num_classes must be in {dim + 2}..{2 * dim} for orthogonal simplices in dim {dim}, got {count}"
        )
    listed = np.asarray(temperatures).tolist()
    grid = [positive_scale(f"temperatures[{index}]", value) for index, value in enumerate(listed)]
    if not grid or any(later <= earlier for earlier, later in itertools.pairwise(grid)):
        raise ValueError("temperatures must be at least one number, rising")
    codes = list(itertools.islice(partitions(count, count - dim), MOST_PARTITIONS + 1))
    if len(codes) > MOST_PARTITIONS:
        raise ValueError(
            f"{count} classes in dim {dim} have more than {MOST_PARTITIONS} partitions: too many to compare"
        )
    values = np.array([[simplices_value(code, temperature) for temperature in grid] for code in codes])
    best = [codes[index] for index in values.argmin(axis=0)]
    changes = [
        _exchange(codes_here, low, high)
        for codes_here, (low, high) in zip(itertools.pairwise(best), itertools.pairwise(grid), strict=True)
        if codes_here[0] != codes_here[1]
    ]
    named = tuple(tuple(code) for code in codes)
    return CodeDiagram(count, dim, tuple(grid), named, values, tuple(tuple(code) for code in best), tuple(changes))


def partitions(count: int, parts: int, largest: int | None = None) -> Iterator[list[int]]:
    """All ways to write ``count`` as a sum of ``parts`` numbers >= 2, falling."""
    top = min(count - 2 * (parts - 1), count if largest is None else largest)
    if parts == 1:
        if 2 <= count <= top:
            yield [count]
        return
    for first in range(top, 1, -1):
        for rest in partitions(count - first, parts - 1, first):
            yield [first, *rest]


def _exchange(pair: tuple[list[int], list[int]], low: float, high: float) -> float:
    """The temperature between at which the two have the same value."""
    first, second = pair
    return root(lambda tau: simplices_value(first, tau) - simplices_value(second, tau), low, high)


def _code_name(code: Sequence[int]) -> str:
    return "+".join(str(size) for size in code)
