"""How pictures look: one style, the same colour for the same loss everywhere, saved as SVG, PDF and PNG."""

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from .._support.files import write_bytes
from .._support.registry import Spec
from .._support.theme import (
    BLUE,
    GREEN,
    GREY,
    GRID,
    INK_ON_BRIGHT,
    LOSSES,
    MARKS,
    PURPLE,
    RED,
    SERIES,
    SKY,
    class_colour,
    look_of,
    number,
    plain_decimals,
    series_mark,
    whole_epochs,
)
from .._support.theme import series_colour as colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

    from ._results import Results

__all__ = [
    "BLUE",
    "COLOURS",
    "GREEN",
    "GREY",
    "LOSSES",
    "MARKERS",
    "PURPLE",
    "RED",
    "SKY",
    "Figure",
    "band",
    "class_colour",
    "colour",
    "empty_picture",
    "figure",
    "heat_map",
    "legend_below",
    "loss_name",
    "marker",
    "metric_name",
    "number",
    "plain_decimals",
    "property_name",
    "save_picture",
    "series",
    "shades",
    "styled",
    "whole_epochs",
]

COLUMN = 3.35
"""Width of one column, in inches."""

COLOURS = SERIES
MARKERS = tuple(mark.matplotlib for mark in MARKS)

PROPERTIES = {
    "nc1": ("NC1", "variability"),
    "nc2": ("NC2", "classifier to ETF"),
    "nc2_projected": ("NC2", "classifier to ETF"),
    "nc3": ("NC3", "self-duality"),
    "nc3_projected": ("NC3", "self-duality"),
    "nc4_bias": ("NC4", "bias collapse"),
    "nc4_mismatch": ("NC4", "not nearest mean"),
}
"""Of a metric the property of collapse, and what it measures of it."""
OTHERS = {"value": "objective", "gap": "gap to the optimum"}
"""What else has a name of its own on an axis."""

Figure: TypeAlias = "MatplotlibFigure"
"""What a study draws: a figure of matplotlib, which is not loaded before one is drawn."""

STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.2,
    "xtick.labelsize": 6.8,
    "ytick.labelsize": 6.8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 6.8,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "neuralcollapse",
    "image.cmap": "viridis",
}


@contextmanager
def styled() -> Iterator[None]:
    """The project's style, for all that is drawn inside."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        yield


def figure(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float] | None = None, **options: Any
) -> tuple[Figure, np.ndarray]:
    """(figure, axes as a rows x columns array) in the project's style; ``size`` of one panel in inches.

    ``options`` go to ``Figure.subplots``. No window, no global state.
    """
    from matplotlib.figure import Figure as MatplotlibFigure

    width, height = size or (COLUMN if columns == 1 else 2.35, 2.2 if columns == 1 else 1.9)
    picture = MatplotlibFigure(figsize=(width * columns, height * rows), layout="constrained")
    return picture, picture.subplots(rows, columns, squeeze=False, **options)


def loss_name(spec: str) -> str:
    """A loss in two or three letters, with what is not its default: "FL", "MSE (alpha=5)"."""
    loss = Spec.parse(spec, "loss")
    look = look_of(loss.name)
    short = loss.name if look is None else look.short
    return f"{short} ({loss.details})" if loss.details and short == "MSE" else short


def shades(count: int) -> list[tuple[float, float, float, float]]:
    """Colours for so many values of one quantity, dark to bright; the brightest can still be seen on white."""
    import matplotlib as mpl

    return [tuple(shade) for shade in mpl.colormaps["viridis"](np.linspace(0, 0.88, count))]


def metric_name(name: str) -> str:
    """What an axis says.

    >>> metric_name("nc1"), metric_name("gradient_norm")
    ('NC1: variability', 'gradient norm')
    """
    return ": ".join(PROPERTIES[name]) if name in PROPERTIES else OTHERS.get(name, name.replace("_", " "))


def property_name(name: str) -> str:
    """The property of collapse alone, for panels with little room; of other metrics all of the name.

    >>> property_name("nc1"), property_name("accuracy")
    ('NC1', 'accuracy')
    """
    return PROPERTIES[name][0] if name in PROPERTIES else metric_name(name)


def marker(label: object, others: Iterable[object] = ()) -> str:
    """The mark of a loss; of anything else, by its place among ``others``."""
    return series_mark(label, others).matplotlib


def band(axis: "Axes", x: np.ndarray, runs: np.ndarray, *, log: bool = False, **line: Any) -> None:
    """The mean of the runs as a line and one standard deviation as a band (on a log axis, of the logarithms)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(runs) if log else runs
        middle, spread = values.mean(0), values.std(0)
        low, high = middle - spread, middle + spread
        if log:
            middle, low, high = np.exp(middle), np.exp(low), np.exp(high)
        (drawn,) = axis.plot(x, middle, **line)
        if len(runs) > 1:
            axis.fill_between(x, low, high, color=drawn.get_color(), alpha=0.18, linewidth=0)


def series(
    axis: "Axes",
    results: "Results",
    name: str,
    by: str,
    *,
    split: str = "train",
    log: bool = True,
    labels: Mapping[Any, str] | None = None,
) -> None:
    """One metric over epochs or iterations: a line for each value of the label ``by``, mean and band over the rest."""
    keys = results.labels(by)
    for key in keys:
        steps, runs = results.where(**{by: key}).curves(name, split)
        text = (labels or {}).get(key) or (loss_name(str(key)) if by == "loss" else str(key))
        mark = {"marker": marker(key, keys), "markevery": max(1, len(steps) // 6)}
        band(axis, steps, runs, log=log, color=colour(key, keys), label=text, **mark)
    if log:
        axis.set_yscale("log")
    axis.set_title(metric_name(name))


def legend_below(picture: Figure, axis: "Axes", columns: int | None = None) -> None:
    """One legend for all panels, under them, with the entries of ``axis``."""
    lines, texts = axis.get_legend_handles_labels()
    fitting = max(1, min(5, int(picture.get_figwidth() / 1.5)))
    # Rows of equal length: four entries where three fit are two and two.
    rows = math.ceil(len(lines) / fitting)
    picture.legend(lines, texts, loc="outside lower center", ncols=columns or math.ceil(len(lines) / max(rows, 1)))


def heat_map(
    axis: "Axes",
    values: np.ndarray,
    rows: Sequence[object],
    columns: Sequence[object],
    *,
    title: str,
    shown: str = "{:.3g}",
    log: bool = False,
    limits: tuple[float, float] | None = None,
    bright: Literal["high", "low"] = "high",
) -> None:
    """A matrix with its numbers written in; ``limits`` are those of the colours, by default those of the values.

    ``bright`` says which values are bright: side by side, the better ones should be.
    """
    from matplotlib.colors import LogNorm, Normalize

    positive = values[np.isfinite(values) & (values > 0)]
    low, high = limits or ((positive.min(), positive.max()) if log and positive.size else (0.0, 0.0))
    norm = (LogNorm if log else Normalize)(low, high) if low < high else None
    drawn = axis.imshow(values, aspect="auto", norm=norm, cmap="viridis" if bright == "high" else "viridis_r")
    axis.grid(False)
    axis.set_xticks(range(len(columns)), [str(c) for c in columns])
    axis.set_yticks(range(len(rows)), [str(r) for r in rows])
    for (row, column), value in np.ndenumerate(values):
        level = np.asarray(drawn.norm(value)).item()
        ink = INK_ON_BRIGHT if (level if bright == "high" else 1 - level) > 0.6 else "white"
        axis.text(column, row, shown.format(value), ha="center", va="center", color=ink, fontsize=6.5)
    axis.set_title(title)


def empty_picture(text: str) -> Figure:
    """A picture that only says something."""
    picture, axes = figure()
    axes[0, 0].set_axis_off()
    axes[0, 0].text(0.5, 0.5, text, ha="center", va="center", wrap=True)
    return picture


def save_picture(picture: Figure, stem: Path, *, smoke: bool = False) -> None:
    """Write ``stem`` with .svg, .pdf and .png; equal pictures give equal files.

    ``smoke`` marks a picture that shows that the path works and decides nothing, so that it is not taken for a result.
    """
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}, "png": {"Software": None}}
    with styled():
        plain_decimals(picture)
        whole_epochs(picture)
        if smoke:
            size = min(60.0, 9.0 * picture.get_figwidth())
            place = {"ha": "center", "va": "center", "rotation": 20}
            picture.text(0.5, 0.5, "smoke", fontsize=size, color=GREY, alpha=0.22, **place)
        for kind, facts in metadata.items():
            content = io.BytesIO()
            picture.savefig(content, format=kind, metadata=facts, dpi=200)
            write_bytes(stem.with_suffix(f".{kind}"), content.getvalue())
