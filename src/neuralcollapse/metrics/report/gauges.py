"""The four properties at a glance: where a report stands between features without structure and collapse."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..._support.theme import number
from ..definitions._registry import METRICS

if TYPE_CHECKING:
    from .report import CollapseReport

__all__ = ["Gauge", "gauges", "headline"]

CHOICES = (
    ("NC1", ("nc1", "nc1_quotient"), 4.0),
    ("NC2", ("nc2", "nc2_projected", "nc2_means", "nc2_means_projected"), 2.0),
    ("NC3", ("nc3", "nc3_projected", "nc3_cosine"), 2.0),
    ("NC4", ("nc4_mismatch",), 0.0),
)
"""For each property, the metrics in order of preference, and the decades from random to collapsed (0: linear)."""

TITLES = {
    "NC1": "samples gather at their class mean",
    "NC2": "classes form a simplex",
    "NC3": "classifier and class means align",
    "NC4": "the nearest class mean decides",
}


@dataclass(frozen=True)
class Gauge:
    """One property: ``position`` is 0 for features without structure and 1 at collapse.

    ``interval`` holds the metric's confidence interval where the report has one, ``span`` the positions of its ends.
    """

    property: str
    metric: str
    title: str
    value: float | None
    random: float | None
    position: float | None
    words: str
    interval: tuple[float, float] | None = None
    span: tuple[float, float] | None = None


def _random_value(name: str, report: "CollapseReport") -> float | None:
    classes, dim = report.num_classes, report.dim
    per_class = max(2, round(report.num_samples / max(classes, 1)))
    if name == "nc1":
        value = METRICS["nc1"].random_value
        found = math.inf if value is None else value(classes, per_class, dim)
        return found if math.isfinite(found) else float((per_class - 1) * classes)
    value = METRICS[name].random_value
    return None if value is None else value(classes, per_class, dim)


def gauges(report: "CollapseReport") -> list[Gauge]:
    """NC1 to NC4 by the first metric of each that the report has a value for."""
    result = []
    for name, metrics, decades in CHOICES:
        known = [metric for metric in metrics if report.values.get(metric) is not None]
        if not known:
            asked = [metric for metric in metrics if metric in report.values]
            words = report.reasons.get(asked[0], "") if asked else "not measured"
            result.append(Gauge(name, metrics[0], TITLES[name], None, None, None, words))
            continue
        metric = known[0]
        value, random = report.values[metric], _random_value(metric, report)
        assert value is not None
        position = span = None
        interval = report.intervals.get(metric)
        if random is not None and random > 0:
            position = _gauge_position(value, random, decades)
            if interval is not None:
                span = _gauge_position(interval[1], random, decades), _gauge_position(interval[0], random, decades)
        words = _gauge_words(metric, value, random)
        result.append(Gauge(name, metric, TITLES[name], value, random, position, words, interval, span))
    return result


def _gauge_position(value: float, random: float, decades: float) -> float:
    """Where a value stands from ``random`` (0) to collapse (1), on a scale of decades, or a linear one for none."""
    if decades:
        place = 1.0 if value <= 0 else math.log10(random / value) / decades
    else:
        place = 1 - value / random
    return min(max(place, 0.0), 1.0)


def _gauge_words(metric: str, value: float, random: float | None) -> str:
    if metric == "nc4_mismatch":
        return "no sample disagrees" if value == 0 else f"{100 * value:.3g} % of the samples disagree"
    if value == 0:
        return "exactly collapsed"
    if random is None:
        return ""
    ratio = random / value
    if ratio < 1.1:
        return "as in random features"
    digits = 1 if ratio >= 1e4 else 4
    return f"{number(round(ratio, 0 if ratio >= 10 else 1), digits)} times less than random"


def headline(found: list[Gauge]) -> str:
    """One verdict over the properties that have a place on the scale."""
    places = [gauge.position for gauge in found if gauge.position is not None]
    if not places:
        return "not measurable"
    least = min(places)
    if least >= 0.9:
        return "collapsed"
    mean = sum(places) / len(places)
    return "close to collapse" if mean >= 0.75 else "on the way to collapse" if mean >= 0.35 else "far from collapse"
