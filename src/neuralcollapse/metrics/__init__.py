"""Streaming class statistics and every measure of neural collapse, by name.

:func:`measure` takes features, :func:`measure_model` a network and a loader, :class:`ClassStatistics` a
stream. ``METRICS`` lists every metric with its definition, paper, range and value at collapse.
"""

import importlib
from typing import TYPE_CHECKING

from .._support.public import explain, explain_calls
from .._support.renamed import warn_renamed
from . import definitions as _definitions  # noqa: F401  (fills METRICS)
from .accumulators.second_pass import SecondPass
from .accumulators.statistics import ClassStatistics
from .definitions._geometry import Geometry, NotApplicableError, SampleResults, geometry_of
from .definitions._registry import METRICS, Metric
from .files.arrays import open_arrays
from .files.extract import extract
from .files.measure import measure_files
from .hooks.heads import LastLayer, classifier_of
from .intervals import GroupedStatistics
from .measure import class_means, measure, nc5_ood
from .model import measure_layers, measure_model
from .report.comparison import ReportComparison
from .report.per_class import PerClass
from .report.plots import plot_history
from .report.render import metric_table, summary
from .report.report import CollapseReport
from .squared_error import SquaredErrorParts, squared_error_parts

if TYPE_CHECKING:
    from .torchmetrics import NeuralCollapse

__all__ = [
    "METRICS",
    "ClassStatistics",
    "CollapseReport",
    "Geometry",
    "GroupedStatistics",
    "LastLayer",
    "Metric",
    "NeuralCollapse",
    "NotApplicableError",
    "PerClass",
    "ReportComparison",
    "SampleResults",
    "SecondPass",
    "SquaredErrorParts",
    "class_means",
    "classifier_of",
    "extract",
    "geometry_of",
    "measure",
    "measure_files",
    "measure_layers",
    "measure_model",
    "metric_table",
    "nc5_ood",
    "open_arrays",
    "plot_history",
    "squared_error_parts",
    "summary",
]


def __getattr__(name: str):
    if name == "NeuralCollapse":
        return explain(importlib.import_module(f"{__name__}.torchmetrics").NeuralCollapse)
    if name == "Classifier":
        warn_renamed("nc.metrics.Classifier", "nc.metrics.LastLayer")
        return LastLayer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


explain_calls(__name__)
