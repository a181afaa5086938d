"""Curves of runs and solves: one interactive chart a panel, and all panels in one static drawing."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ..._support.files import JSONObject
from ..._support.theme import GREY, MARKS, Mark, number
from ...studies.pictures import figure, legend_below, plain_decimals, styled, whole_epochs
from ._parts import Chart, Key, Picture
from ._svg import inline_svg

__all__ = ["LEVEL", "ChartLine", "Panel", "chart", "picture"]

LEVEL = GREY
"""Colour of a level that stands for no loss."""
HEIGHT, COLUMNS = 260, 3
"""CSS pixels of a chart, and panels beside one another in a drawing."""
TICKS = 12
"""Size of the numbers at an axis, as of all letters of a chart."""
DASHES = {"solid": "-", "dash": (0, (4, 2)), "dot": (0, (1, 1.5))}


@dataclass(frozen=True)
class ChartLine:
    """One line; values may be None where there is none."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: str
    dash: str = "solid"
    mark: Mark = MARKS[0]


@dataclass(frozen=True)
class Panel:
    """Curves of one quantity, with levels that the theory gives drawn across."""

    title: str
    curves: Sequence[ChartLine]
    levels: Sequence[tuple[str, float, str]] = ()
    """(what, value, colour)."""
    x_title: str = "epoch"
    log_x: bool = True
    log_y: bool = True
    percent: bool = False


def chart(panel: Panel) -> Chart:
    """The panel as a plotly figure, which takes its colours of paper and ink from the page."""
    lines = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": curve.name,
            "x": list(curve.x),
            "y": list(curve.y),
            "line": {"color": curve.colour, "dash": curve.dash, "width": 2},
            "marker": {"symbol": curve.mark.plotly, "size": 5},
            "hovertemplate": "%{y:.2%}" if panel.percent else "%{y:.4g}",
        }
        for curve in panel.curves
    ]
    ends = [x for curve in panel.curves for x in curve.x]
    heights = [y for curve in panel.curves for y in curve.y] + [value for _, value, _ in panel.levels]
    for name, value, colour in panel.levels:
        if ends:
            line = {"color": colour, "dash": "dash", "width": 1.5}
            style = {"type": "scatter", "mode": "lines", "name": name, "line": line, "hovertemplate": "%{y:.4g}"}
            lines.append({**style, "x": [min(ends), max(ends)], "y": [value, value]})
    layout = {
        "height": HEIGHT,
        "title": {"text": panel.title, "x": 0.01, "xanchor": "left", "font": {"size": 14}},
        "margin": {"l": 52, "r": 12, "t": 36, "b": 44},
        "xaxis": {"title": {"text": panel.x_title, "standoff": 4}, **_axis(panel.log_x, ends)},
        "yaxis": _axis(panel.log_y, heights) | ({"tickformat": ".0%"} if panel.percent else {}),
        "showlegend": False,
        "hovermode": "x unified",
    }
    return Chart({"data": lines, "layout": layout}, f"{panel.title} by {panel.x_title}: {_ends_in_words(panel)}")


def _axis(log: bool, values: Sequence[float | None]) -> JSONObject:
    """Ticks at powers of ten where there are several; plotly's own choice, between them too, where there are not."""
    if not log:
        return {"rangemode": "tozero"}
    positive = [value for value in values if value is not None and value > 0]
    decades = math.log10(max(positive) / min(positive)) if positive else 0.0
    if decades < 1.5:
        return {"type": "log", "exponentformat": "none", "nticks": 5}
    # Plotly sets powers a quarter larger than other ticks.
    size = {"tickfont": {"size": TICKS / 1.25}}
    return {"type": "log", "exponentformat": "power", "dtick": max(1, round(decades / 5)), **size}


def _ends_in_words(panel: Panel) -> str:
    """Where each line begins and ends, for the description of the chart."""
    parts = []
    for curve in panel.curves:
        seen = [value for value in curve.y if value is not None]
        if seen:
            parts.append(f"{curve.name} from {number(seen[0], 3)} to {number(seen[-1], 3)}")
    return "; ".join([*parts, *(f"{name} {number(value, 3)}" for name, value, _ in panel.levels)])


def picture(panels: Sequence[Panel], prefix: str, caption: str) -> Picture:
    """The panels, one at least, as charts and as one static drawing."""
    charts = [chart(panel) for panel in panels]
    label = " ".join(f"{chart.label}." for chart in charts)
    return Picture(_drawing(panels, prefix, label), charts, caption, _legend(panels))


def _legend(panels: Sequence[Panel]) -> list[Key]:
    """One key for each name; grey where it stands for lines of several colours."""
    keys: dict[str, Key] = {}
    named = [(curve.name, curve.colour, curve.dash) for panel in panels for curve in panel.curves]
    named += [(name, colour, "dash") for panel in panels for name, _, colour in panel.levels]
    for name, colour, dash in named:
        same = name not in keys or keys[name].colour == colour
        keys[name] = Key(name, colour if same else GREY, dash)
    return list(keys.values())


def _drawing(panels: Sequence[Panel], prefix: str, label: str) -> Markup:
    rows = -(-len(panels) // COLUMNS)
    with styled():
        alone = len(panels) == 1
        drawn, axes = figure(rows, min(COLUMNS, len(panels)), size=(3.6, 2.5) if alone else (2.35, 1.9))
        flat = list(axes.flat)
        for axis, panel in zip(flat, panels, strict=False):
            for curve in panel.curves:
                values = [float("nan") if value is None else value for value in curve.y]
                mark = {"marker": curve.mark.matplotlib, "markevery": max(1, len(values) // 6)}
                line: Mapping[str, Any] = {"color": curve.colour, "linestyle": DASHES[curve.dash], **mark}
                axis.plot(curve.x, values, label=curve.name, **line)
            for place, (name, value, colour) in enumerate(panel.levels):
                shown = name if place == 0 else None
                axis.axhline(value, color=colour, linestyle=DASHES["dash"], linewidth=1.0, label=shown)
            if panel.log_x:
                axis.set_xscale("log")
            if panel.log_y and any(value and value > 0 for curve in panel.curves for value in curve.y):
                axis.set_yscale("log")
            axis.set_title(panel.title)
            axis.set_xlabel(panel.x_title)
        for axis in flat[len(panels) :]:
            axis.set_axis_off()
        fullest = max(flat, key=lambda axis: len(axis.get_legend_handles_labels()[0]))
        legend_below(drawn, fullest, columns=3 if alone else None)
        plain_decimals(drawn)
        whole_epochs(drawn)
        content = io.BytesIO()
        drawn.savefig(content, format="svg", metadata={"Date": None})
    return inline_svg(content.getvalue().decode(), prefix, label)
