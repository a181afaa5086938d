"""What a metric is: its definition, where it comes from, how to read its value, and how to compute it.

Adding a metric is adding a file to ``definitions/`` with a function under :func:`define`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ..._support.checks import describe
from ..._support.registry import Registry, unknown_name
from ._geometry import Geometry, Need
from ._pairs import PairSum

__all__ = ["METRICS", "Metric", "Property", "define", "select"]


Property = Literal["NC1 variability", "NC2 geometry", "NC3 self-duality", "NC4 decisions", "NC5 out of distribution"]
"""What a metric is about: tables are in this order."""


@dataclass(frozen=True)
class Metric:
    """One measure of neural collapse.

    ``at_collapse`` gives the value at exact collapse for K classes; ``at_random`` says what features without
    structure give, and ``random_value(K, n, d)`` is that as a number where one is known (independent standard
    normal features and classifier, n samples a class). ``core`` metrics cost at most products with the class
    means; they are what a report has unless it is asked for more. ``pairs`` is what it reads of pairs of classes: one
    pass over these serves all metrics of a report.
    """

    name: str
    property: Property
    definition: str
    paper: str
    better: str
    lowest: float
    highest: float
    at_collapse: Callable[[int], float]
    at_random: str
    compute: Callable[[Geometry], float]
    needs: frozenset[Need] = frozenset()
    random_value: Callable[[int, int, int], float] | None = field(default=None, compare=False)
    core: bool = True
    pairs: tuple[type[PairSum], ...] = field(default=(), compare=False)


METRICS: Registry[Metric] = Registry("metric")


def define(
    name: str,
    *,
    property: Property,
    definition: str,
    paper: str,
    at_random: str,
    better: str = "lower",
    lowest: float = 0.0,
    highest: float = math.inf,
    at_collapse: float | Callable[[int], float] = 0.0,
    needs: tuple[Need, ...] = (),
    random_value: Callable[[int, int, int], float] | None = None,
    core: bool = True,
    pairs: tuple[type[PairSum], ...] = (),
) -> Callable[[Callable[[Geometry], float]], Callable[[Geometry], float]]:
    """Register the decorated function of a :class:`Geometry` as the metric ``name``."""
    value = at_collapse if callable(at_collapse) else lambda num_classes: float(at_collapse)

    def register(compute: Callable[[Geometry], float]) -> Callable[[Geometry], float]:
        METRICS.add(name)(
            Metric(
                name,
                property,
                definition,
                paper,
                better,
                lowest,
                highest,
                value,
                at_random,
                compute,
                frozenset(needs),
                random_value,
                core,
                pairs,
            )
        )
        return compute

    return register


GROUPS = ("core", "all")
LEADING = ("nc1", "nc2", "nc3", "nc4_mismatch")
"""What stands first among the metrics of its property."""


def select(metrics: object) -> tuple[Metric, ...]:
    """The metrics named by ``"core"`` (or ``None``), ``"all"``, one name, or several; ordered by their property."""
    names = ["core"] if metrics is None else [metrics] if isinstance(metrics, str) else metrics
    if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(n, str) for n in names):
        raise TypeError(f"metrics must be 'core', 'all' or names of metrics, got {describe(metrics)}")
    if not names:
        raise ValueError(f"metrics must name at least one of: {', '.join([*GROUPS, *METRICS])}")
    chosen: dict[str, Metric] = {}
    for name in names:
        if name in GROUPS:
            chosen |= {metric.name: metric for metric in METRICS.values() if metric.core or name == "all"}
        elif name in METRICS:
            chosen[METRICS[name].name] = METRICS[name]
        else:
            raise unknown_name("metric", name, [*GROUPS, *METRICS])
    return tuple(sorted(chosen.values(), key=lambda metric: (metric.property, metric.name not in LEADING, metric.name)))
