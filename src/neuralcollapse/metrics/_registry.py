"""What a metric is: its definition, where it comes from, how to read its value, and how to compute it.

Adding a metric is adding a file to ``definitions/`` with a function under :func:`define`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from .._support.registry import Registry, unknown_name
from ._geometry import Geometry, Need

__all__ = ["METRICS", "Metric", "define", "select"]


@dataclass(frozen=True)
class Metric:
    """One measure of neural collapse.

    ``at_collapse`` gives the value at exact collapse for K classes; ``at_random`` says what features without
    structure give, and ``random_value(K, n, d)`` is that as a number where one is known (independent standard
    normal features and classifier, n samples a class).
    """

    name: str
    property: str
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


METRICS: Registry[Metric] = Registry("metric")


def define(
    name: str,
    *,
    property: str,
    definition: str,
    paper: str,
    at_random: str,
    better: str = "lower",
    lowest: float = 0.0,
    highest: float = math.inf,
    at_collapse: float | Callable[[int], float] = 0.0,
    needs: tuple[Need, ...] = (),
    random_value: Callable[[int, int, int], float] | None = None,
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
            )
        )
        return compute

    return register


def select(metrics: object) -> tuple[Metric, ...]:
    """The metrics named by ``None`` (all), one name, or several; ordered by the property they measure."""
    if metrics is None:
        chosen = list(METRICS.values())
    else:
        names = [metrics] if isinstance(metrics, str) else metrics
        if not isinstance(names, list | tuple | set | frozenset) or not all(isinstance(n, str) for n in names):
            raise TypeError(f"metrics must be None or names of metrics, got {metrics!r}")
        if not names:
            raise ValueError(f"metrics must name at least one of: {', '.join(METRICS)}")
        for name in names:
            if name not in METRICS:
                raise unknown_name("metric", name, list(METRICS))
        chosen = [METRICS[name] for name in dict.fromkeys(names)]
    return tuple(sorted(chosen, key=lambda metric: (metric.property, metric.name)))
