"""The result of a measurement: metrics by name, and the reason for each that has no value."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from rich.table import Table
from torch import Tensor

from ..._support.files import JSONObject, sealed, unsealed, write_text
from ..._support.machine import in_float64
from ..accumulators.statistics import ClassStatistics
from ..definitions._geometry import Geometry, NotApplicableError, SampleResults, geometry_of
from ..definitions._registry import METRICS, Metric, select
from ..inputs import as_classifier
from ..selection import Selection
from .attributes import MetricAttributes
from .comparison import ReportComparison
from .per_class import PerClass, class_groups, pairs_of_classes, per_class_of
from .render import metric_table, page_of, rendered, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CollapseReport", "build_report", "evaluate", "select_classes"]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
FORMAT = "neuralcollapse.CollapseReport/1"


@dataclass(frozen=True, eq=False, repr=False)
class CollapseReport(MetricAttributes):
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
        layer: the name of the layer whose input was measured, where a model was.
        accuracy: share of the samples that the classifier gets right; ``None`` where it was not looked at.
        nearest_mean_accuracy: share of the samples whose own class mean is the nearest.
        intervals: confidence intervals ``(low, high)`` by metric, where they were asked for.
        per_class: counts, variances, norms, nearest class, accuracy and names, class by class.
        groups: large against small classes, where the counts differ; see :func:`class_groups`.
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
    accuracy: float | None = None
    nearest_mean_accuracy: float | None = None
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    per_class: PerClass | None = None
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> float | None:
            # Only reached for names that are not fields; fields are missing while a copy is being built.
            values = self.__dict__.get("values", {})
            if name in values:
                return values[name]
            if name in METRICS:
                raise AttributeError(f"{name} was not measured: it was not among the chosen metrics")
            raise AttributeError(f"a report has no attribute {name!r}")

    def __getstate__(self) -> dict[str, object]:
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in self.__dict__.items()}

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, MappingProxyType(value) if isinstance(value, dict) else value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.values})

    def __getitem__(self, name: str) -> float | None:
        return self.values[name]

    def __repr__(self) -> str:
        shown = ("nc1", "nc2", "nc3", "nc4_mismatch")
        values = ", ".join(f"{name} {short(self.values[name])}" for name in shown if name in self.values)
        values = values or ", ".join(f"{name} {short(value)}" for name, value in list(self.values.items())[:4])
        return f"CollapseReport({self.sizes}: {values})"

    # as plain values ----------------------------------------------------------------------------------------

    def to_dict(self) -> JSONObject:
        """Plain values for JSON: metrics by name at the top level, ``None`` where one does not apply."""
        result: JSONObject = dict(self.values)
        result |= {"num_classes": self.num_classes, "dim": self.dim, "num_samples": self.num_samples}
        result |= {"rank": self.rank, "layer": self.layer}
        result |= {"accuracy": self.accuracy, "nearest_mean_accuracy": self.nearest_mean_accuracy}
        if self.intervals:
            result["intervals"] = {name: list(bounds) for name, bounds in self.intervals.items()}
        if self.groups:
            result["groups"] = {name: dict(group) for name, group in self.groups.items()}
        if self.cosine_margin_quantiles:
            result["cosine_margin_quantiles"] = dict(self.cosine_margin_quantiles)
        return result | {"reasons": dict(self.reasons), "notes": list(self.notes)}

    def to_json(self, indent: int | None = 2) -> str:
        """:meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole report, classes and sorted margins included, to a JSON file, atomically, with a checksum."""
        write_text(path, json.dumps(sealed(self.to_content()), allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "CollapseReport":
        """Read a report written by :meth:`save`."""
        with _reading(path):
            return cls._from_content(unsealed(json.loads(Path(path).read_text(encoding="utf-8"))))

    def to_content(self) -> JSONObject:
        """The whole report as plain values, classes and sorted margins included: what files and checkpoints keep."""
        return {
            "format": FORMAT,
            "metrics": list(self.values),
            "report": self.to_dict(),
            "per_class": None if self.per_class is None else self.per_class.to_dict(),
            "cosine_margins": None if self.cosine_margins is None else self.cosine_margins.tolist(),
        }

    @classmethod
    def from_content(cls, content: JSONObject) -> "CollapseReport":
        """The report that gave these values in :meth:`to_content`."""
        with _reading("content"):
            return cls._from_content(content)

    @classmethod
    def _from_content(cls, content: JSONObject) -> "CollapseReport":
        if content.get("format") != FORMAT:
            raise ValueError(f"expected format {FORMAT!r}")
        report = content["report"]
        values = {str(name): _number_or_none(report[name]) for name in content["metrics"]}
        margins, classes = content["cosine_margins"], content["per_class"]
        intervals = {str(name): (float(low), float(high)) for name, (low, high) in report.get("intervals", {}).items()}
        groups = {
            str(name): {str(column): float(value) for column, value in group.items()}
            for name, group in report.get("groups", {}).items()
        }
        quantiles = {str(level): float(value) for level, value in report.get("cosine_margin_quantiles", {}).items()}
        return cls(
            MappingProxyType(values),
            MappingProxyType({str(name): str(reason) for name, reason in report["reasons"].items()}),
            int(report["num_classes"]),
            int(report["dim"]),
            int(report["num_samples"]),
            tuple(str(note) for note in report["notes"]),
            MappingProxyType(quantiles),
            None if margins is None else torch.tensor(margins, dtype=torch.float64),
            rank=None if report["rank"] is None else int(report["rank"]),
            layer=None if report["layer"] is None else str(report["layer"]),
            accuracy=_number_or_none(report["accuracy"]),
            nearest_mean_accuracy=_number_or_none(report["nearest_mean_accuracy"]),
            intervals=MappingProxyType(intervals),
            per_class=None if classes is None else PerClass.from_dict(classes),
            groups=MappingProxyType(groups),
        )

    @property
    def scalars(self) -> dict[str, float]:
        """The metrics that have a value: what a logger takes."""
        return {name: value for name, value in self.values.items() if value is not None}

    # to look at ---------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> str:
        """How many samples, classes and dimensions."""
        return f"{self.num_samples} samples, {self.num_classes} classes, {self.dim} dimensions"

    @property
    def title(self) -> str:
        """One line: how many samples, classes and dimensions."""
        return f"Neural collapse: {self.sizes}"

    def __rich__(self) -> Table:
        return metric_table(self)

    def __str__(self) -> str:
        return rendered(self.__rich__())

    def _repr_html_(self) -> str:
        return page_of(self)

    def plot(self) -> "Figure":
        """A matplotlib figure: the four properties between random and collapsed, margins, and the classes."""
        from .plots import plot_report

        return plot_report(self)

    def compare(self, *others: "CollapseReport", names: Sequence[str] | None = None) -> ReportComparison:
        """Compare this report and others side by side, metric by metric; ``names`` heads the columns."""
        return ReportComparison.of((self, *others), names)


@contextmanager
def _reading(name: str | os.PathLike[str]) -> Iterator[None]:
    """One line for whatever is wrong with the content of ``name``."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
        text = " ".join(str(error).split())[:150]
        raise ValueError(f"{os.fspath(name)} does not hold a saved report: {text}") from error


def _number_or_none(value: str | float | None) -> float | None:
    return None if value is None else float(value)


def evaluate(
    geometry: Geometry,
    chosen: tuple[Metric, ...],
    *,
    class_names: Sequence[str] | None = None,
) -> CollapseReport:
    """Compute the chosen metrics; ``class_names`` are those of all classes, measured or not."""
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    geometry.announce(kind for metric in chosen for kind in metric.pairs)
    geometry.announce(pairs_of_classes(geometry))
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
    names = set(values) - set(reasons)
    # Only where a measure has asked for it: it takes the singular values of the class means.
    rank = geometry.rank if "spectrum" in vars(geometry) else None
    curve, quantiles = None, {}
    if "cosine_margin" in names and geometry.samples.margins is not None:
        curve = in_float64(geometry.samples.margins).sort().values
        quantiles = {f"{level:g}": _quantile(curve, level) for level in QUANTILES}
    samples = geometry.samples
    decided = geometry.total if samples.decided is None else max(int(samples.decided.sum()), 1)
    right = None if samples.right is None else int(samples.right.sum()) / decided
    nearest = None if samples.nearest_right is None else int(samples.nearest_right.sum()) / decided
    variances = any({"within", "scatter"} & metric.needs for metric in chosen)
    rows = per_class_of(geometry, _class_names(geometry, class_names), variances)
    return CollapseReport(
        MappingProxyType(values),
        MappingProxyType(reasons),
        geometry.num_classes,
        geometry.dim,
        geometry.total,
        (*geometry.notes, *_report_notes(geometry, names, rank)),
        MappingProxyType(quantiles),
        curve,
        rank,
        accuracy=right,
        nearest_mean_accuracy=nearest,
        per_class=rows,
        groups=MappingProxyType(class_groups(geometry, rows)),
    )


def _class_names(geometry: Geometry, names: Sequence[str] | None) -> list[str]:
    """What the measured classes are called: their names among all classes, else their numbers."""
    numbers = range(geometry.num_classes) if geometry.classes is None else geometry.classes.tolist()
    return [str(number) if names is None else names[number] for number in numbers]


def _report_notes(geometry: Geometry, names: set[str], rank: int | None) -> list[str]:
    """What a reader of the values should know."""
    notes = []
    if geometry.weight is not None and geometry.bias is None and names & {"nc4_bias", "nc4_mismatch"}:
        notes.append("no bias was given: it is taken as zero")
    single = int((geometry.counts == 1).sum())
    if single and int(geometry.counts.max()) > 1:
        notes.append(f"{single} of {geometry.num_classes} classes have a single sample, hence no variance")
    if geometry.samples.at_global_mean:
        notes.append(f"{geometry.samples.at_global_mean} samples at the global mean are left out of the cosine margins")
    decided = geometry.total if geometry.samples.decided is None else int(geometry.samples.decided.sum())
    if decided < geometry.total:
        notes.append(
            f"{decided} of {geometry.total} samples, spread evenly, were decided: nc4_mismatch and "
            "the cosine margins are theirs"
        )
    possible = min(geometry.num_classes - 1, geometry.dim)
    if rank is not None and 0 < rank < possible:
        notes.append(
            f"the class means span {rank} of {possible} directions: in {possible - rank} they differ by no more than "
            f"the rounding of {str(geometry.precision).removeprefix('torch.')} features, and those do not count"
        )
    return notes


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
    class_names: Sequence[str] | None = None,
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
    return evaluate(geometry, chosen, class_names=class_names)


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
