"""Reports as text: a table for terminals, HTML for notebooks and pages, and twelve lines that say it all."""

import html
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..._support.theme import number
from ..definitions._registry import METRICS
from .gauges import Gauge, gauges, headline

if TYPE_CHECKING:
    from .report import CollapseReport

__all__ = ["html_table", "metric_table", "page_of", "rendered", "short", "summary"]

HEADER = ("property", "metric", "value", "collapsed", "definition, or why there is no value")


def short(value: float | None) -> str:
    """Four digits, or a dash."""
    return number(value)


def html_table(header: list[str], rows: list[list[str]]) -> str:
    """A table of escaped cells."""

    def cells(tag: str, row: list[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f"<table><thead>{cells('th', header)}</thead><tbody>{body}</tbody></table>"


def rendered(what: RenderableType, width: int = 118) -> str:
    """What rich would print, as text without colours."""
    console = Console(width=width, file=None, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def _value_cell(report: "CollapseReport", name: str) -> str:
    text = short(report.values[name])
    if name in report.intervals:
        low, high = report.intervals[name]
        text += f" ({short(low)} to {short(high)})"
    return text


def _table_rows(report: "CollapseReport") -> list[list[str]]:
    rows = []
    for name in report.values:
        metric = METRICS[name]
        ideal = short(metric.at_collapse(report.num_classes))
        words = report.reasons.get(name, metric.definition)
        rows.append([metric.property, name, _value_cell(report, name), ideal, words])
    return rows


def metric_table(report: "CollapseReport", width: int = 118) -> Table:
    """Every metric with its value, its value at collapse and, in 90 columns or more, its definition."""
    table = Table(title=report.title, caption="; ".join(report.notes) or None)
    if width < 90:
        for name in HEADER[1:4]:
            table.add_column(name, justify="left" if name == "metric" else "right", overflow="fold")
        for row in _table_rows(report):
            table.add_row(*(Text(cell) for cell in row[1:4]))
        return table
    table.add_column("property", style="dim")
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("collapsed", justify="right", style="dim", no_wrap=True)
    table.add_column(HEADER[-1], style="dim")
    last = ""
    for row in _table_rows(report):
        table.add_row(row[0] if row[0] != last else "", *(Text(cell) for cell in row[1:]))
        last = row[0]
    return table


def page_of(report: "CollapseReport") -> str:
    """The headline, the table and the notes as HTML."""
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in report.notes)
    verdict = html.escape(headline(gauges(report)))
    title = html.escape(report.title)
    return f"<h3>{title}</h3><p><b>{verdict}</b></p>{html_table(list(HEADER), _table_rows(report))}{notes}"


def summary(report: "CollapseReport", width: int) -> Text:
    """The verdict, a gauge from random to collapsed for each property, accuracy and notes: about twelve lines."""
    found = gauges(report)
    lines = [Text(f"Neural collapse: {headline(found)}", style="bold")]
    lines.append(Text(report.sizes if report.layer is None else f"{report.sizes}; layer {report.layer}", style="dim"))
    known = [short(gauge.value) for gauge in found if gauge.value is not None]
    digits = max((len(text) for text in known), default=1)
    for gauge in found:
        lines += _gauge_lines(gauge, report, digits, width)
    parts = []
    if report.accuracy is not None:
        parts.append(f"accuracy {100 * report.accuracy:.4g} %")
    if report.nearest_mean_accuracy is not None:
        parts.append(f"by the nearest mean {100 * report.nearest_mean_accuracy:.4g} %")
    if parts:
        lines.append(Text("; ".join(parts)))
    lines += [Text(f"note: {note}", style="dim") for note in report.notes]
    return Text("\n").join(lines)


def _gauge_lines(gauge: Gauge, report: "CollapseReport", digits: int, width: int) -> list[Text]:
    head = f"{gauge.property}  {short(gauge.value):>{digits}}  "
    if gauge.position is None:
        return [Text(head + gauge.title), Text(f"     {gauge.words}", style="dim", overflow="fold")]
    ends = ("random ", " collapsed") if width >= 60 else ("", "")
    room = max(10, min(40, width - len(head) - len(ends[0]) - len(ends[1])))
    place = round(gauge.position * (room - 1))
    line = Text(head)
    line.append(ends[0], style="dim")
    line.append("━" * place, style="green")
    line.append("●", style="bold green")
    line.append("─" * (room - 1 - place), style="dim")
    line.append(ends[1], style="dim")
    bounds = ""
    if gauge.metric in report.intervals:
        low, high = report.intervals[gauge.metric]
        bounds = f" ({short(low)} to {short(high)})"
    choices = [f"{gauge.title}: {gauge.words}{bounds}", f"{gauge.words}{bounds}", bounds.strip() or gauge.words]
    words = next((text for text in choices if len(text) + 5 <= width), choices[-1])
    return [line, Text(f"     {words}", style="dim", overflow="fold")]
