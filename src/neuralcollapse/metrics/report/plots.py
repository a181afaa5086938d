"""Pictures of one's own measurements: a report, and the course of a training run."""

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..._support.checks import describe
from ..._support.theme import (
    BLUE,
    GREEN,
    GREY,
    GRID,
    class_colour,
    number,
    plain_axes,
    plain_decimals,
    series_colour,
    series_mark,
)
from ..definitions._registry import METRICS
from .gauges import CHOICES, Gauge, gauges, headline
from .report import CollapseReport

HistoryEntry = Mapping[str, object]
"""A row of a history: a step, perhaps a split, and metrics by name."""

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    History = (
        str | os.PathLike[str] | DataFrame | Iterable[HistoryEntry | CollapseReport | tuple[float, CollapseReport]]
    )

__all__ = ["plot_history", "plot_report", "read_history"]

STEPS = ("epoch", "step", "iteration")
LINE = 9.0
"""Points between the names of two lines."""
LISTED_CLASSES = 30
"""Classes up to which each has its name below its bar."""


def _empty_figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plot_report(report: CollapseReport) -> "Figure":
    """Where NC1 to NC4 stand, the sorted cosine margins, and the spread of each class (what the report has of it)."""
    rows = report.per_class
    spread = rows is not None and rows.variances is not None and float(rows.variances.max()) > 0
    parts = 1 + (report.cosine_margins is not None) + spread
    figure = _empty_figure(4.4 * parts, 3.2)
    axes = figure.subplots(1, parts, squeeze=False)[0]
    _draw_gauges(axes[0], report)
    place = 1
    if report.cosine_margins is not None:
        _draw_margins(axes[place], report)
        place += 1
    if spread:
        _draw_classes(axes[place], report)
    figure.suptitle(report.sizes, fontsize=9, color=GREY)
    return figure


def _draw_gauges(axes: "Axes", report: CollapseReport) -> None:
    found: list[Gauge] = gauges(report)
    for row, gauge in enumerate(found):
        height = len(found) - 1 - row
        axes.plot([0, 1], [height, height], color=GRID, linewidth=5, solid_capstyle="round", zorder=1)
        axes.text(-0.04, height, gauge.property, ha="right", va="center", fontsize=10, fontweight="bold")
        if gauge.position is None:
            axes.text(0.5, height + 0.16, _shortened(gauge.words or "no value"), ha="center", fontsize=7.5, color=GREY)
            continue
        axes.plot([0, gauge.position], [height, height], color=GREEN, linewidth=5, solid_capstyle="round", zorder=2)
        axes.plot(gauge.position, height, "o", color=GREEN, markersize=9, zorder=3)
        axes.text(0.0, height + 0.2, f"{gauge.metric} = {number(gauge.value)}", fontsize=8.5)
        axes.text(0.0, height - 0.34, _shortened(gauge.words), fontsize=7.5, color=GREY)
    axes.set_xlim(-0.16, 1.04)
    axes.set_ylim(-0.7, len(found) - 0.4)
    axes.set_xticks([0, 1], ["random", "collapsed"], fontsize=8)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_title(headline(found).capitalize(), fontsize=11)


def _shortened(text: str, most: int = 62) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _draw_margins(axes: "Axes", report: CollapseReport) -> None:
    curve = report.cosine_margins
    assert curve is not None
    count = curve.shape[0]
    step = max(1, count // 2000)
    shown = curve[::step].tolist()
    axes.plot([100 * index * step / max(count - 1, 1) for index in range(len(shown))], shown, color=BLUE)
    axes.axhline(METRICS["cosine_margin"].at_collapse(report.num_classes), color=GREEN, linestyle="--", linewidth=1)
    axes.axhline(0, color=GRID, linewidth=1, zorder=0)
    axes.set_xlabel("% of the samples, sorted")
    axes.set_title("Cosine margin (dashed: at collapse)", fontsize=10)
    plain_axes(axes)


def _draw_classes(axes: "Axes", report: CollapseReport) -> None:
    rows = report.per_class
    assert rows is not None
    assert rows.variances is not None
    values = rows.variances.sqrt().tolist()
    colours = [class_colour(label) for label in range(len(values))]
    axes.bar(range(len(values)), values, color=colours, width=0.8 if len(values) <= LISTED_CLASSES else 1.0)
    if len(values) <= LISTED_CLASSES:
        long = max(len(name) for name in rows.names) > 3
        axes.set_xticks(range(len(values)), list(rows.names), fontsize=7, rotation=90 if long else 0)
    axes.set_xlabel("class")
    axes.set_title("Spread within each class, $\\sqrt{\\mathrm{tr}\\,\\Sigma_k}$", fontsize=10)
    plain_axes(axes)


def plot_history(
    rows_or_path: "History",
    metrics: "Sequence[str] | None" = None,
    *,
    split: str | None = None,
) -> "Figure":
    """Metrics over training, one panel a metric and one line a split.

    Args:
        rows_or_path: a run directory, a ``metrics.jsonl`` or CSV file as the loggers write them, a list of rows
            (dicts with ``epoch`` or ``step``, and metrics by name), a history of ``(step, report)`` pairs as the
            callbacks keep, a list of reports, or a pandas DataFrame.
        metrics: what to draw; by default accuracy and NC1 to NC4, as far as the rows have them.
        split: only the rows of that split (``"train"``, ``"validation"``, ``"test"``).

    """
    rows = read_history(rows_or_path)
    if split is not None:
        known = sorted({str(row.get("split", "")) for row in rows})
        rows = [row for row in rows if row.get("split") == split]
        if not rows:
            raise ValueError(f"no row is of split {describe(split)} (there are: {', '.join(known)})")
    names = _metrics_to_draw(rows, metrics)
    if not names:
        where = f"{rows_or_path}: " if isinstance(rows_or_path, str | os.PathLike) else ""
        raise ValueError(f"{where}the history holds no metrics to draw")
    axis = next((name for name in STEPS if any(name in row for row in rows)), None)
    # Four panels are a square, not three and one.
    columns = 2 if len(names) == 4 else min(len(names), 3)
    lines = -(-len(names) // columns)
    figure = _empty_figure(3.4 * columns, 2.7 * lines)
    # A title stands apart from the axis above it.
    panels = figure.subplots(lines, columns, squeeze=False, gridspec_kw={"hspace": 0.08}).flatten()
    splits = list(dict.fromkeys(str(row.get("split", "")) for row in rows))
    ends: list[tuple[str, tuple[float, float], str]] = []
    for panel, name in zip(panels, names, strict=False):
        for part in splits:
            points = [
                (_finite_number(row.get(axis)) if axis else float(index), _finite_number(row.get(name)))
                for index, row in enumerate(row for row in rows if str(row.get("split", "")) == part)
            ]
            points = [(x, y) for x, y in points if x is not None and y is not None]
            if points:
                look = {"color": series_colour(part, splits), "marker": series_mark(part, splits).matplotlib}
                look |= {"markevery": max(1, len(points) // 8), "markersize": 3.5}
                panel.plot(*zip(*points, strict=True), **look)
                if part and len(splits) > 1 and panel is panels[0]:
                    ends.append((part, points[-1], series_colour(part, splits)))
        _scale_axes(panel)
        panel.set_title(name, fontsize=10)
        panel.set_xlabel(axis or "row", fontsize=8)
        plain_axes(panel)
    _name_ends(panels[0], ends)
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    plain_decimals(figure)
    return figure


def _name_ends(panel: "Axes", ends: "Sequence[tuple[str, tuple[float, float], str]]") -> None:
    """Names at the ends of lines, in their colours, so that no legend has to be searched; one above the other."""
    height = panel.get_window_extent().height * 72 / panel.figure.dpi
    lowest = -math.inf
    for name, end, colour in sorted(ends, key=lambda entry: entry[1][1]):
        place = float(panel.transLimits.transform(panel.transScale.transform(end))[1]) * height
        lowest = max(place, lowest + LINE)
        offset = {"textcoords": "offset points", "xytext": (4, lowest - place), "va": "center", "fontsize": 8}
        panel.annotate(name, end, color=colour, annotation_clip=False, **offset)


def _scale_axes(panel: "Axes") -> None:
    """Decades where values span more than one, and whole numbers on the axis of epochs."""
    from matplotlib.ticker import MaxNLocator

    values = [float(y) for line in panel.get_lines() for y in line.get_ydata()]  # pyright: ignore[reportGeneralTypeIssues]
    if values and min(values) > 0 and max(values) > 10 * min(values):
        panel.set_yscale("log")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def _metrics_to_draw(rows: list[HistoryEntry], metrics: "Sequence[str] | None") -> list[str]:
    known = dict.fromkeys(name for row in rows for name, value in row.items() if _finite_number(value) is not None)
    drawable = [name for name in known if name not in STEPS]
    if metrics is None:
        picked = [name for name in ("loss", "accuracy") if name in drawable]
        for _, choices, _ in CHOICES:
            picked += [name for name in choices if name in drawable][:1]
        names = picked or [name for name in drawable if name in METRICS][:6]
    else:
        names = [metrics] if isinstance(metrics, str) else list(metrics)
        for name in names:
            if name not in drawable:
                raise ValueError(f"metrics: no row has a value of {name!r} (there are: {', '.join(drawable)})")
    return names


def _finite_number(value: object) -> float | None:
    """A finite number, also from the text of a CSV cell."""
    if isinstance(value, bool) or value is None or value == "":
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def read_history(source: "History") -> list[HistoryEntry]:
    """Rows with steps, splits and metrics by name, from whatever :func:`plot_history` takes."""
    if isinstance(source, str | os.PathLike):
        rows: Sequence[object] = _read_file(Path(source))
    elif hasattr(source, "to_dict") and hasattr(source, "columns"):
        rows = source.to_dict("records")  # pyright: ignore[reportAttributeAccessIssue]
    elif isinstance(source, Iterable) and not isinstance(source, Mapping):
        rows = list(source)
    else:
        raise TypeError(f"rows_or_path must be a path or a list of rows, got {describe(source)}")
    result: list[HistoryEntry] = []
    for place, row in enumerate(rows):
        if isinstance(row, Sequence) and len(row) == 2 and isinstance(row[1], CollapseReport):
            result.append({"step": row[0], **_report_row(row[1])})
        elif isinstance(row, CollapseReport):
            result.append(_report_row(row))
        elif isinstance(row, Mapping):
            result.append({str(name): value for name, value in row.items()})
        else:
            raise TypeError(f"rows_or_path: row {place} must be a dict or a report, got {describe(row)}")
    if not result:
        where = f"{source}: " if isinstance(source, str | os.PathLike) else ""
        raise ValueError(f"{where}the history holds no rows")
    return result


def _report_row(report: CollapseReport) -> HistoryEntry:
    return report.scalars | ({} if report.accuracy is None else {"accuracy": report.accuracy})


def _read_file(path: Path) -> list[HistoryEntry]:
    if path.is_dir():
        inside = [path / "metrics.jsonl", *sorted(path.glob("*.jsonl")), *sorted(path.glob("*.csv"))]
        found = next((file for file in inside if file.is_file()), None)
        if found is None:
            raise ValueError(f"{path}: no metrics.jsonl, .jsonl or .csv file in that folder")
        path = found
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".csv":
            return [dict(row) for row in csv.DictReader(text.splitlines())]
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError, csv.Error) as error:
        raise ValueError(f"{path}: not a readable history: {' '.join(str(error).split())[:150]}") from error
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: not a readable history: every line must be an object")
    return rows
