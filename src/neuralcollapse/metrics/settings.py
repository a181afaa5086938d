"""What to measure, checked once: the metrics and what they need, which classes, and what may be kept in memory."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch

from .._support.checks import describe, integer, real
from .definitions._registry import Metric, select
from .inputs import IGNORED, GlobalMean, Metrics
from .precision import as_precision
from .selection import Selection

__all__ = ["MEMORY_LIMIT", "GlobalMean", "Metrics", "Settings", "check_level", "needs_again", "needs_of"]

MEMORY_LIMIT = 1 << 30


def needs_of(chosen: Iterable[Metric]) -> frozenset[str]:
    """The needs of all chosen metrics."""
    return frozenset(need for metric in chosen for need in metric.needs)


def needs_again(needs: frozenset[str], *, classifier: bool, scatter: bool) -> frozenset[str]:
    """The needs that are left for a second look, once means and variances are there.

    ``classifier`` says whether there is one to decide; ``scatter`` whether the d x d scatter is there, too.
    """
    left = needs & {"ranks"}
    if classifier:
        left |= needs & {"decisions", "margins"}
    if not scatter:
        left |= needs & {"projection"}
    return left


MOST_GROUPS = 10_000
"""Groups of a jackknife: each has statistics of its own, and an interval from 20 is as good as one from thousands."""


def check_level(level: object, groups: object) -> None:
    """Raise unless ``level`` is ``None`` or lies between 0 and 1, and ``groups`` between 2 and :data:`MOST_GROUPS`."""
    if level is not None:
        real("intervals", level, above=0.0, below=1.0)
    integer("groups", groups, minimum=2, maximum=MOST_GROUPS)


@dataclass(frozen=True)
class Settings:
    """The arguments of :func:`measure` that are no data; every way to a report takes these.

    >>> sorted(Settings(["nc1", "nc2"]).needs)
    ['projection', 'weight', 'within']
    """

    metrics: Metrics = None
    passes: int | None = None
    global_mean: GlobalMean = "samples"
    ignore_label: int | None = IGNORED
    memory_limit: int = MEMORY_LIMIT
    selection: Selection = field(default_factory=Selection)
    intervals: float | None = None
    groups: int = 20
    precision: torch.dtype | None = None
    decision_rows: int | None = None

    def __post_init__(self) -> None:
        select(self.metrics)
        if self.passes is not None:
            integer("passes", self.passes, minimum=1, maximum=2)
        if self.ignore_label is not None:
            integer("ignore_label", self.ignore_label)
        if self.global_mean not in ("samples", "classes"):
            raise ValueError(f"global_mean must be 'samples' or 'classes', got {describe(self.global_mean)}")
        integer("memory_limit", self.memory_limit, minimum=0)
        check_level(self.intervals, self.groups)
        as_precision(self.precision, torch.float64)
        if self.decision_rows is not None:
            integer("decision_rows", self.decision_rows, minimum=1)

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: metrics are found again by their names, and their functions cannot be pickled."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    @cached_property
    def chosen(self) -> tuple[Metric, ...]:
        """The metrics."""
        return select(self.metrics)

    @cached_property
    def needs(self) -> frozenset[str]:
        """What they need."""
        return needs_of(self.chosen)

    @property
    def interval_groups(self) -> int | None:
        """Groups of the jackknife; ``None`` where no intervals are asked for."""
        return None if self.intervals is None else self.groups

    def again(self, *, classifier: bool, scatter: bool) -> frozenset[str]:
        """What is left for a second look at the samples, see :func:`needs_again`."""
        return needs_again(self.needs, classifier=classifier, scatter=scatter)

    def first_look(
        self, num_classes: int, dim: int, again: Literal["free", "cheap", "dear"], workers: int = 1
    ) -> tuple[int, dict[str, str]]:
        """How the first look at the samples goes, 1 or 2 passes, and the reasons for what it leaves out.

        One pass keeps the d x d scatter, which costs N d^2 / 2 products in float64; two passes take N d min(K-1, d)
        of them on the span of the means. ``again`` says what a second look costs: nothing, because the samples are
        read again anyway; another read; or a run of the model, if it can be had at all.
        """
        missing: dict[str, str] = {}
        size = 8 * dim * dim * (workers + 1)
        if self.passes is not None:
            return self.passes, missing
        if size > self.memory_limit:
            missing["scatter"] = (
                f"the {dim} x {dim} scatter matrix takes {size / 1e9:.2g} GB, more than memory_limit = "
                f"{self.memory_limit / 1e9:.2g} GB"
            )
            return 2, missing
        if "scatter" in self.needs:
            return 1, missing
        pays = again == "dear" or (again == "cheap" and 2 * min(num_classes - 1, dim) >= dim)
        return 1 if pays and "projection" in self.needs else 2, missing
