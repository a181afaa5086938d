"""Streaming class statistics and every measure of neural collapse, by name.

:func:`measure` takes features, :func:`measure_model` a network and a loader, :class:`ClassStatistics` a
stream. ``METRICS`` lists every metric with its definition, paper, range and value at collapse.
"""

import importlib
from typing import TYPE_CHECKING

from . import definitions as _definitions  # noqa: F401  (fills METRICS)
from ._comparison import ReportComparison
from ._decomposition import SquaredErrorParts, squared_error_parts
from ._extract import extract
from ._files import open_arrays
from ._geometry import Geometry, NotApplicableError, SampleResults
from ._heads import Classifier, classifier_of
from ._helpers import class_means, nc5_ood
from ._intervals import GroupedStatistics
from ._measure import measure
from ._measure_files import measure_files
from ._model import measure_layers, measure_model
from ._per_class import PerClass
from ._plots import plot_history
from ._registry import METRICS, Metric
from ._render import metric_table, summary
from ._report import CollapseReport
from ._second_pass import SecondPass
from ._statistics import ClassStatistics

if TYPE_CHECKING:
    from ._torchmetrics import NeuralCollapse

__all__ = [
    "METRICS",
    "ClassStatistics",
    "Classifier",
    "CollapseReport",
    "Geometry",
    "GroupedStatistics",
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
        return importlib.import_module(f"{__name__}._torchmetrics").NeuralCollapse
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
