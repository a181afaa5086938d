"""The result of a measurement: metrics by name with reasons and notes, classes one by one, text, pages and pictures."""

from .comparison import ReportComparison
from .per_class import PerClass
from .plots import plot_history
from .render import metric_table, summary
from .report import CollapseReport

__all__ = ["CollapseReport", "PerClass", "ReportComparison", "metric_table", "plot_history", "summary"]
