"""The result of a measurement: metrics by name, and the reason for each that has no value."""

import html
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from .._support.checks import describe
from ._geometry import Geometry, NotApplicableError, SampleResults, geometry_of
from ._inputs import as_classifier
from ._registry import METRICS, Metric, select
from ._selection import Selection
from ._statistics import ClassStatistics

__all__ = ["CollapseReport", "ReportComparison", "build_report", "evaluate"]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}"


def _html_table(header: list[str], rows: list[list[str]]) -> str:
    def cells(tag: str, row: list[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f"<table><thead>{cells('th', header)}</thead><tbody>{body}</tbody></table>"


def _rendered(table: Table) -> str:
    console = Console(width=118, file=None, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


@dataclass(frozen=True, eq=False)
class CollapseReport:
    """Every measure of neural collapse that was asked for.

    A metric is an attribute (``report.nc1``) and is ``None`` where it does not apply; ``reasons`` then says
    why.

    Attributes:
        values: metrics by name.
        reasons: for each metric without a value, the reason.
        notes: what a reader of the values should know (a missing bias taken as zero, samples left out).
        num_classes: K.
        dim: d.
        num_samples: N.
        rank: directions that the centred class means span, as far as the features' precision can tell; ``None``
            where no measure asked for it.
        layer: the name of the layer whose input was measured, in a model; ``None`` for features.
        cosine_margin_quantiles: quantiles of the cosine margins by level, empty if they were not measured.
        cosine_margins: all cosine margins in ascending order, or ``None``.

    """

    values: Mapping[str, float | None]
    reasons: Mapping[str, str]
    num_classes: int
    dim: int
    num_samples: int
    notes: tuple[str, ...] = ()
    cosine_margin_quantiles: Mapping[str, float] = field(default_factory=dict)
    cosine_margins: Tensor | None = None
    rank: int | None = None
    layer: str | None = None

    def __getattr__(self, name: str) -> float | None:
        # Only reached for names that are not fields; fields are missing while a copy is being built.
        values = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        if name in METRICS:
            raise AttributeError(f"{name} was not measured: it was not among the chosen metrics")
        raise AttributeError(f"a report has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in self.__dict__.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, MappingProxyType(value) if isinstance(value, dict) else value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.values})

    def __getitem__(self, name: str) -> float | None:
        return self.values[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: metrics by name at the top level, ``None`` where one does not apply."""
        result: dict[str, Any] = dict(self.values)
        result |= {"num_classes": self.num_classes, "dim": self.dim, "num_samples": self.num_samples}
        result["rank"] = self.rank
        if self.layer is not None:
            result["layer"] = self.layer
        if self.cosine_margin_quantiles:
            result["cosine_margin_quantiles"] = dict(self.cosine_margin_quantiles)
        return result | {"reasons": dict(self.reasons), "notes": list(self.notes)}

    def to_json(self, indent: int | None = 2) -> str:
        """:meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @property
    def scalars(self) -> dict[str, float]:
        """The metrics that have a value: what a logger takes."""
        return {name: value for name, value in self.values.items() if value is not None}

    def _rows(self) -> list[list[str]]:
        rows = []
        for name, value in self.values.items():
            metric = METRICS[name]
            ideal = _number(metric.at_collapse(self.num_classes))
            rows.append([metric.property, name, _number(value), ideal, self.reasons.get(name, metric.definition)])
        return rows

    @property
    def title(self) -> str:
        """One line: how many samples, classes and dimensions."""
        return f"Neural collapse: {self.num_samples} samples, {self.num_classes} classes, {self.dim} dimensions"

    def __rich__(self) -> Table:
        table = Table(title=self.title, caption="; ".join(self.notes) or None)
        table.add_column("property", style="dim")
        table.add_column("metric", no_wrap=True)
        table.add_column("value", justify="right", no_wrap=True)
        table.add_column("collapsed", justify="right", style="dim", no_wrap=True)
        table.add_column("definition, or why there is no value", style="dim")
        last = ""
        for row in self._rows():
            table.add_row(row[0] if row[0] != last else "", *row[1:])
            last = row[0]
        return table

    def __str__(self) -> str:
        return _rendered(self.__rich__())

    def _repr_html_(self) -> str:
        header = ["property", "metric", "value", "collapsed", "definition, or why there is no value"]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<h3>{html.escape(self.title)}</h3>{_html_table(header, self._rows())}{notes}"

    def compare(self, other: Any) -> "ReportComparison":
        """The two reports side by side, metric by metric."""
        if not isinstance(other, CollapseReport):
            raise TypeError(f"other must be a CollapseReport, got {describe(other)}")
        return ReportComparison(self, other)


@dataclass(frozen=True, eq=False)
class ReportComparison:
    """Two reports side by side; ``changes`` is the second minus the first where both have a value."""

    first: CollapseReport
    second: CollapseReport

    @property
    def names(self) -> tuple[str, ...]:
        """Metrics that either report holds, in the order of the first."""
        return tuple(dict.fromkeys([*self.first.values, *self.second.values]))

    @property
    def changes(self) -> dict[str, float]:
        """Second minus first."""
        first, second = self.first.scalars, self.second.scalars
        return {name: second[name] - first[name] for name in self.names if name in first and name in second}

    @property
    def more_collapsed(self) -> dict[str, bool | None]:
        """Whether the second is nearer to collapse; ``None`` where the two are equal."""
        result: dict[str, bool | None] = {}
        for name, change in self.changes.items():
            sign = 1 if METRICS[name].better == "higher" else -1
            result[name] = None if change == 0 else change * sign > 0
        return result

    def to_dict(self) -> dict[str, Any]:
        """For each metric: ``first``, ``second``, ``change`` and ``more_collapsed``."""
        changes, better = self.changes, self.more_collapsed
        return {
            name: {
                "first": self.first.values.get(name),
                "second": self.second.values.get(name),
                "change": changes.get(name),
                "more_collapsed": better.get(name),
            }
            for name in self.names
        }

    def _rows(self) -> list[list[str]]:
        words = {True: "second", False: "first", None: ""}
        return [
            [
                name,
                _number(row["first"]),
                _number(row["second"]),
                _number(row["change"]),
                words[row["more_collapsed"]],
            ]
            for name, row in self.to_dict().items()
        ]

    def __rich__(self) -> Table:
        table = Table(title="Neural collapse, two reports")
        table.add_column("metric", no_wrap=True)
        for name in ("first", "second", "change"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("more collapsed")
        for row in self._rows():
            table.add_row(*row)
        return table

    def __str__(self) -> str:
        return _rendered(self.__rich__())

    def _repr_html_(self) -> str:
        return _html_table(["metric", "first", "second", "change", "more collapsed"], self._rows())


def evaluate(geometry: Geometry, chosen: tuple[Metric, ...]) -> CollapseReport:
    """Compute the chosen metrics."""
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for metric in chosen:
        try:
            value = metric.compute(geometry)
        except NotApplicableError as error:
            values[metric.name], reasons[metric.name] = None, str(error)
            continue
        if math.isfinite(value):
            values[metric.name] = value
        else:
            values[metric.name], reasons[metric.name] = None, "the value is beyond the range of float64"
    notes = list(geometry.notes)
    names = set(values) - set(reasons)
    if geometry.weight is not None and geometry.bias is None and names & {"nc4_bias", "nc4_mismatch"}:
        notes.append("no bias was given: it is taken as zero")
    single = int((geometry.counts == 1).sum())
    if single and int(geometry.counts.max()) > 1:
        notes.append(f"{single} of {geometry.num_classes} classes have a single sample, hence no variance")
    if geometry.samples.at_global_mean:
        notes.append(f"{geometry.samples.at_global_mean} samples at the global mean are left out of the cosine margins")
    # Only where a measure has asked for it: it takes the singular values of the class means.
    rank = geometry.rank if "spectrum" in vars(geometry) else None
    possible = min(geometry.num_classes - 1, geometry.dim)
    if rank is not None and 0 < rank < possible:
        notes.append(
            f"the class means span {rank} of {possible} directions: in {possible - rank} they differ by no more than "
            f"the rounding of {str(geometry.precision).removeprefix('torch.')} features, and those do not count"
        )
    curve, quantiles = None, {}
    if "cosine_margin" in names and geometry.samples.margins is not None:
        curve = geometry.samples.margins.to(torch.float64).sort().values
        quantiles = {f"{level:g}": _quantile(curve, level) for level in QUANTILES}
    return CollapseReport(
        MappingProxyType(values),
        MappingProxyType(reasons),
        geometry.num_classes,
        geometry.dim,
        geometry.total,
        tuple(notes),
        MappingProxyType(quantiles),
        curve,
        rank,
    )


def _quantile(curve: Tensor, level: float) -> float:
    """Linear interpolation on a sorted curve of any length (``torch.quantile`` stops at 16 million)."""
    place = level * (curve.shape[0] - 1)
    low = math.floor(place)
    high = min(low + 1, curve.shape[0] - 1)
    return float(curve[low] + (place - low) * (curve[high] - curve[low]))


def build_report(
    statistics: ClassStatistics,
    weight: object,
    bias: object,
    *,
    metrics: object = None,
    global_mean: str = "samples",
    selection: Selection | None = None,
    samples: SampleResults | None = None,
    out_of_distribution_mean: Tensor | None = None,
    missing: dict[str, str] | None = None,
) -> CollapseReport:
    """The report on statistics, with what a second look at the samples gave."""
    matrix, vector = as_classifier(weight, bias, statistics.num_classes, statistics.dim)
    chosen = select(metrics)
    part = select_classes(statistics, matrix, vector, selection or Selection())
    geometry = geometry_of(
        part.statistics,
        part.weight,
        part.bias,
        samples or SampleResults(),
        global_mean=global_mean,
        out_of_distribution_mean=out_of_distribution_mean,
        missing=part.missing | (missing or {}),
        classes=part.classes,
        notes=part.notes,
    )
    return evaluate(geometry, chosen)


@dataclass(frozen=True, eq=False)
class SelectedClasses:
    """Statistics and classifier of the classes to measure."""

    statistics: ClassStatistics
    weight: Tensor | None
    bias: Tensor | None
    classes: Tensor | None = None
    """Their numbers among all classes; ``None`` for all."""
    missing: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def select_classes(
    statistics: ClassStatistics, weight: Tensor | None, bias: Tensor | None, selection: Selection
) -> SelectedClasses:
    """The part of statistics and classifier that a selection of classes leaves."""
    kept = selection.kept(statistics.counts)
    if kept is None:
        return SelectedClasses(statistics, weight, bias)
    part = statistics.select(kept)
    missing = {}
    if part.passes != statistics.passes:
        why = "the pooled scatter holds samples of the classes that min_samples leaves out"
        missing = {"projection": f"{why}: needs the samples again (second_pass)", "scatter": why}
    note = selection.note(statistics.counts)
    return SelectedClasses(
        part,
        None if weight is None else weight[kept],
        None if bias is None else bias[kept],
        kept,
        missing,
        () if note is None else (note,),
    )
