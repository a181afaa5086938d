"""How everything looks, said once: colours and marks of losses, classes and series, numbers and ticks that people read.

It lies below all layers because pictures of metrics, models and studies need it as well as the pages; ``web.theme``
makes style sheets and charts of it. The same loss has the same colour and the same mark wherever it is drawn.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .registry import Spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "BLACK",
    "BLUE",
    "CLASSES",
    "GREEN",
    "GREY",
    "GRID",
    "INK_ON_BRIGHT",
    "LOSSES",
    "MARKS",
    "NOTHING",
    "ORANGE",
    "PURPLE",
    "RED",
    "SERIES",
    "SKY",
    "YELLOW",
    "LossLook",
    "Mark",
    "class_colour",
    "counting_bar",
    "look_of",
    "number",
    "plain_axes",
    "plain_decimals",
    "regime_colour",
    "series_colour",
    "series_mark",
    "whole_epochs",
]

# Okabe and Ito's palette: told apart with any colour vision, and in print.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, BLACK = "#56B4E9", "#CC79A7", "#F0E442", "#000000"
GREY, GRID = "#666666", "#e4e4e4"
INK_ON_BRIGHT = "#111111"
"""Text on a bright cell of a heat map: not the page's ink, which is bright in the dark."""

SERIES = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY, BLACK, YELLOW)
"""For lines that stand for no loss and no class, in this order."""

CLASSES = (
    "#4b2e9e",
    "#c4566a",
    "#2a8c8c",
    "#8f8a1f",
    "#882255",
    "#5f93c4",
    "#a044a8",
    "#7a5c3a",
    "#2f6b3c",
    "#777777",
)
"""For classes: none of them is the colour of a loss."""


@dataclass(frozen=True)
class Mark:
    """One sign in the words of matplotlib and of plotly."""

    matplotlib: str
    plotly: str


MARKS = tuple(
    Mark(*names)
    for names in (
        ("o", "circle"),
        ("s", "square"),
        ("^", "triangle-up"),
        ("D", "diamond"),
        ("v", "triangle-down"),
        ("P", "cross"),
        ("X", "x"),
        ("*", "star"),
    )
)


@dataclass(frozen=True)
class LossLook:
    """Of a loss: its short name, its name in words, its colour (also in a terminal) and its mark."""

    short: str
    words: str
    colour: str
    mark: Mark


LOSSES = {
    "cross-entropy": LossLook("CE", "cross-entropy", BLUE, MARKS[0]),
    "focal": LossLook("FL", "focal", GREEN, MARKS[2]),
    "label-smoothing": LossLook("LS", "label smoothing", ORANGE, MARKS[3]),
    "squared-error": LossLook("MSE", "squared error", RED, MARKS[1]),
    "supervised-contrastive": LossLook("SC", "supervised contrastive", PURPLE, MARKS[4]),
}
SHORT = {look.short.lower(): name for name, look in LOSSES.items()} | {"fl": "focal", "sc": "supervised-contrastive"}


def look_of(spec: object) -> LossLook | None:
    """How the loss of a spec such as ``"focal:gamma=2"`` or ``"ce"`` looks; ``None`` for anything else.

    >>> look_of("focal:gamma=2").short, look_of("ce").colour, look_of("adam")
    ('FL', '#0072B2', None)
    """
    name = Spec.name_of(str(spec))
    return LOSSES.get(SHORT.get(name.lower(), name))


def series_colour(label: object, others: Iterable[object] = ()) -> str:
    """The colour of a loss; of anything else, by its place among ``others``."""
    look = look_of(label)
    if look is not None:
        return look.colour
    places = list(others)
    return SERIES[places.index(label) % len(SERIES)] if label in places else GREY


def series_mark(label: object, others: Iterable[object] = ()) -> Mark:
    """The mark of a loss; of anything else, by its place among ``others``."""
    look = look_of(label)
    if look is not None:
        return look.mark
    places = list(others)
    return MARKS[places.index(label) % len(MARKS)] if label in places else MARKS[0]


def class_colour(label: int) -> str:
    """The colour of a class; they repeat after ten."""
    return CLASSES[label % len(CLASSES)]


REGIME_COLOURS = {
    "zero": GREY,
    "neural collapse": BLUE,
    "neural collapse with a common direction": SKY,
    "orthogonal frame": PURPLE,
    "low rank": ORANGE,
    "broken symmetry": RED,
    "unknown": YELLOW,
}


def regime_colour(regime: str) -> str:
    """The colour of a regime in a phase diagram, the same as in the explorer."""
    return REGIME_COLOURS.get(regime, GREEN)


def plain_axes(axes: "Axes") -> None:
    """Lines on two sides only, and small numbers at them."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NOTHING = "–"


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits: plain from 0.001 to 99,999, beyond it as a multiple of a power of ten.

    >>> [number(x) for x in (0.0, 0.5, 1 / 3, -2.5, 1.25e-7, 12345.6, 123456.0, 12345, 250, None)]
    ['0', '0.5', '0.3333', '−2.5', '1.25×10⁻⁷', '12,346', '1.235×10⁵', '12,345', '250', '–']
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOTHING
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if isinstance(value, int) or size == 0:
        text = _with_commas(f"{size:.0f}" if isinstance(size, float) else str(size))
    elif 1e-3 <= size < 1e5:
        text = f"{size:.{digits}g}" if size < 10**digits else f"{size:.0f}"
        # Rounding may have led to a power of ten that has one digit more.
        text = _with_commas(f"{float(text):.0f}" if "e" in text else text)
    else:
        front, _, power = f"{size:.{digits - 1}e}".partition("e")
        front = front.rstrip("0").rstrip(".") if "." in front else front
        text = f"{front}×10{str(int(power)).translate(RAISED)}"
    return f"−{text}" if value < 0 else text


def _with_commas(text: str) -> str:
    """Commas in a whole part of five digits and more."""
    whole, point, rest = text.partition(".")
    return f"{int(whole):,}{point}{rest}" if len(whole) > 4 else text


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
            multiples = next((some for some in MULTIPLES if _ticks_between(some, low, high) >= ENOUGH), None)
            axis.set_minor_formatter(NullFormatter())
            if multiples != MULTIPLES[0]:
                axis.set_major_locator(MaxNLocator(4) if multiples is None else LogLocator(subs=multiples, numticks=20))
                axis.set_minor_locator(NullLocator())
            if multiples != MULTIPLES[0] or (low > 0.5 * LEAST and high < 2 * MOST):
                axis.set_major_formatter(FuncFormatter(lambda value, _: number(float(value))))


def _ticks_between(multiples: tuple[float, ...], low: float, high: float) -> int:
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


def _automatic(axis: "Axis") -> bool:
    """Whether nobody has chosen this axis's ticks."""
    from matplotlib.ticker import FixedLocator

    return not isinstance(axis.get_major_locator(), FixedLocator)


@contextmanager
def counting_bar(text: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A bar on stderr with the time left, gone at the end; the function that it gives says that one more is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
