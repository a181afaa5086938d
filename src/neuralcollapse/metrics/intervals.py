"""Confidence intervals of metrics: the delete-a-group jackknife on mergeable statistics.

Samples fall at random into G groups, class by class, so that the groups have the same number of each class up to
one. A metric is computed G times without one group; with x = log(metric) (or the metric itself where it may be
negative), the interval at level L is

    x +- t_{G-1}((1+L)/2) sqrt( (G-1)/G sum_g (x_(g) - mean)^2 ).

G statistics are kept instead of one, in one pass.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import torch
from jaxtyping import Int
from scipy.special import stdtrit  # Student's quantile, without the half second that scipy.stats takes
from torch import Tensor

from .._support.checks import describe, integer, real
from .._support.machine import sum_in_float64
from .accumulators.passes import second_pass
from .accumulators.second_pass import SecondPass, Task
from .accumulators.statistics import ClassStatistics
from .definitions._geometry import Geometry, SampleResults
from .definitions._registry import METRICS, Metric
from .inputs import IGNORED, FeatureRows, as_classifier, as_labels, as_rows, check_labels
from .processes import Group
from .report.report import CollapseReport, build_report
from .selection import SampleGroups, Selection, group_turn, rank_turn, turned
from .settings import MOST_GROUPS, Settings, check_level

__all__ = [
    "GroupedSecondPass",
    "GroupedStatistics",
    "first_statistics",
    "intervals_from",
    "second_pass_of",
    "with_intervals",
]

FROM_STATISTICS = frozenset({"within", "projection", "scatter", "weight", "out_of_distribution"})


def jackknife_interval(metric: Metric, value: float, without: Sequence[float], level: float) -> tuple[float, float]:
    """The interval about ``value`` from the values without one group each."""
    count = len(without)
    scaled = metric.lowest >= 0 and value > 0 and min(without) > 0
    points = [math.log(x) if scaled else x for x in without]
    mean = math.fsum(points) / count
    error = math.sqrt((count - 1) / count * math.fsum((x - mean) ** 2 for x in points))
    width = float(stdtrit(count - 1, (1 + level) / 2)) * error
    low, high = (value * math.exp(-width), value * math.exp(width)) if scaled else (value - width, value + width)
    return max(low, metric.lowest), min(high, metric.highest)


class GroupedStatistics:
    """Class statistics in G groups, for intervals: ``update``, ``merge``, then ``total`` and ``intervals``.

    >>> grouped = GroupedStatistics(num_classes=2, dim=1, groups=2)
    >>> grouped.update(torch.tensor([[0.0], [1.0], [4.0], [6.0]]), torch.tensor([0, 0, 1, 1]))
    >>> grouped.total.counts.tolist(), [part.total for part in grouped.parts]
    ([2, 2], [2, 2])
    """

    def __init__(
        self, num_classes: int, dim: int, *, groups: int = 20, passes: int = 1, ignore_label: int | None = IGNORED
    ):
        count = integer("groups", groups, minimum=2, maximum=MOST_GROUPS)
        self.parts = tuple(
            ClassStatistics(num_classes, dim, passes=passes, ignore_label=ignore_label) for _ in range(count)
        )
        self._ignore_label = ignore_label
        self._groups = SampleGroups(count, torch.zeros(num_classes, dtype=torch.int64))

    @torch.no_grad()
    def update(self, features: object, labels: object, *, precision: torch.dtype | None = None) -> None:
        """Add a batch, as :meth:`ClassStatistics.update` takes it."""
        source = as_rows("features", features)
        targets = as_labels(labels, source.rows)
        kept = check_labels(targets, self.parts[0].num_classes, self._ignore_label)
        if kept is not None:
            source, targets = source.where(kept), targets[kept]
        self.take(source, targets, precision)

    def take(
        self, source: FeatureRows, labels: Int[Tensor, " n"], precision: torch.dtype | None = None
    ) -> Int[Tensor, " n"]:
        """Add checked samples; the group of each."""
        groups = self._groups.assign(labels)
        for number, part in enumerate(self.parts):
            rows = (groups == number).nonzero().squeeze(1)
            if rows.shape[0]:
                part.update(source.where(rows), labels[rows], precision=precision)
        return groups

    def all_reduce(self, group: Group = None) -> None:
        """Merge the statistics of all ranks of torch.distributed, group by group."""
        self.parts = turned(self.parts, rank_turn(len(self.parts), group))
        for part in self.parts:
            part.all_reduce(group)

    def merge(self, other: "GroupedStatistics") -> None:
        """Add the samples of another collection of the same sizes, group by group.

        Its groups are turned so that every class stays spread evenly: any split of the samples over groups that does
        not look at the features will do.
        """
        if not isinstance(other, GroupedStatistics):
            raise TypeError(f"other must be GroupedStatistics, got {describe(other)}")
        self.merge_parts(other.parts)

    def merge_parts(self, parts: Sequence[ClassStatistics]) -> None:
        """Add the groups of another collection."""
        if len(parts) != len(self.parts):
            raise ValueError(f"groups must agree, got {len(self.parts)} and {len(parts)}")
        mine, theirs = (torch.stack([part.counts.to("cpu") for part in found]) for found in (self.parts, parts))
        for one, other in zip(self.parts, turned(parts, group_turn(mine, theirs)), strict=True):
            one.merge(other)

    @property
    def total(self) -> ClassStatistics:
        """The statistics of all groups together."""
        return _merged_statistics(None, self.parts)

    def report(
        self,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        level: float = 0.95,
        metrics: str | Sequence[str] = "core",
        global_mean: str = "samples",
        present_only: bool = False,
        min_samples: int = 1,
    ) -> CollapseReport:
        """What :meth:`ClassStatistics.report` gives for all groups together, with intervals at this level."""
        check_level(level, len(self.parts))
        selection = Selection(present_only, min_samples)
        report = build_report(self.total, weight, bias, metrics=metrics, global_mean=global_mean, selection=selection)
        found = self.intervals(report.values, level, weight, bias, global_mean=global_mean, selection=selection)
        return replace(report, intervals=MappingProxyType(found))

    def values_without(
        self,
        names: Sequence[str],
        weight: Tensor | None,
        bias: Tensor | None,
        *,
        global_mean: str = "samples",
        selection: Selection | None = None,
        out_of_distribution_mean: Tensor | None = None,
    ) -> dict[str, list[float | None]]:
        """The metrics without one group each, in the order of the groups.

        ``selection`` is made once, by the counts of all groups together: otherwise a class just above ``min_samples``
        would be measured with some groups and not with others.
        """
        whole = self.total
        weight, bias = as_classifier(weight, bias, whole.num_classes, whole.dim)
        kept = None if selection is None else selection.kept(whole.counts)
        if kept is not None:
            weight, bias = (None if one is None else one[kept] for one in (weight, bias))
        result: dict[str, list[float | None]] = {name: [] for name in names}
        for statistics in _leave_one_out(None, self.parts):
            report = build_report(
                statistics if kept is None else statistics.select(kept),
                weight,
                bias,
                metrics=list(names),
                global_mean=global_mean,
                out_of_distribution_mean=out_of_distribution_mean,
            )
            for name in names:
                result[name].append(report.values[name])
        return result

    def intervals(
        self,
        values: Mapping[str, float | None],
        level: float,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        global_mean: str = "samples",
        selection: Selection | None = None,
        out_of_distribution_mean: Tensor | None = None,
    ) -> dict[str, tuple[float, float]]:
        """Intervals of those ``values`` (metrics by name) that statistics give and that depend on the samples."""
        names = [name for name, value in values.items() if value is not None and METRICS[name].needs <= FROM_STATISTICS]
        if not names:
            return {}
        found = self.values_without(
            names,
            weight,
            bias,
            global_mean=global_mean,
            selection=selection,
            out_of_distribution_mean=out_of_distribution_mean,
        )
        return intervals_of(values, found, level)


class GroupedSecondPass:
    """A second pass and, apart, its decisions and margins in G groups, for their intervals.

    Made from a second pass that has seen nothing; ``parts`` are the whole and the groups, each with sums of its own
    (``groups=None``: the whole alone).
    The class means stay those of all samples, so the groups need not be those of the first look.
    """

    def __init__(self, whole: SecondPass, groups: int | None):
        self._task = task = whole.task
        asked = replace(task, metrics=(), needs=task.needs & {"decisions", "margins"})
        count = groups if groups is not None and asked.needs else 0
        self.parts = (whole, *(SecondPass(asked) for _ in range(count)))
        self._groups = SampleGroups(max(count, 1), torch.zeros(task.num_classes, dtype=torch.int64))

    @torch.no_grad()
    def update(self, features: object, labels: object) -> None:
        """Add a batch, as :meth:`SecondPass.update` takes it."""
        source = as_rows("features", features)
        targets = as_labels(labels, source.rows)
        whole, *groups = self.parts
        whole.update(source, targets)
        if not groups:
            return
        kept = check_labels(targets, self._task.num_classes, self._task.ignore_label)
        if kept is not None:
            source, targets = source.where(kept), targets[kept]
        assigned = self._groups.assign(targets)
        for number, part in enumerate(groups):
            rows = (assigned == number).nonzero().squeeze(1)
            if rows.shape[0]:
                part.update(source.where(rows), targets[rows])

    def merge(self, parts: Sequence[SecondPass]) -> None:
        """Add the parts of a pass of the same kind over other samples; groups are turned to stay even."""
        if len(parts) != len(self.parts):
            raise ValueError(f"groups must agree, got {len(self.parts) - 1} and {len(parts) - 1}")
        whole, *others = parts
        if others:
            mine, theirs = (self._counts(found) for found in (self.parts[1:], others))
            others = turned(others, group_turn(mine, theirs))
        for one, other in zip(self.parts, (whole, *others), strict=True):
            one.merge(other)

    def _counts(self, parts: Sequence[SecondPass]) -> Int[Tensor, "G K"]:
        """Samples of each class that is measured, by group; a part from a file that saw none has no counts."""
        none = torch.zeros(self._task.geometry.num_classes, dtype=torch.int64)
        return torch.stack([seen if len(seen) else none for seen in (part.seen for part in parts)])

    def all_reduce(self, group: Group = None) -> None:
        """Merge over all ranks of torch.distributed, part by part."""
        whole, *groups = self.parts
        self.parts = (whole, *(turned(groups, rank_turn(len(groups), group)) if groups else ()))
        for part in self.parts:
            part.all_reduce(group)

    def intervals(self, values: Mapping[str, float | None], level: float) -> dict[str, tuple[float, float]]:
        """Intervals of nc4_mismatch and cosine_margin."""
        return intervals_of(values, _decisions_without([part.results() for part in self.parts[1:]]), level)


def first_statistics(
    settings: Settings, num_classes: int, dim: int, passes: int
) -> "tuple[ClassStatistics | GroupedStatistics, tuple[str, ...]]":
    """Empty statistics for a first look, in groups where intervals are asked for, and notes on what those leave out.

    Intervals of nc1 take the d x d scatter of every group: where these fit, the look is of one pass.
    """
    if settings.intervals is None:
        return ClassStatistics(num_classes, dim, passes=passes, ignore_label=settings.ignore_label), ()
    notes: tuple[str, ...] = ()
    if settings.needs & {"projection", "scatter"} and settings.passes is None:
        size = 8 * dim**2 * (settings.groups + 5)
        passes = 1 if size <= settings.memory_limit else 2
        notes = () if passes == 1 else (_no_room_note(settings, size),)
    grouped = GroupedStatistics(
        num_classes, dim, groups=settings.groups, passes=passes, ignore_label=settings.ignore_label
    )
    return grouped, notes


def second_pass_of(
    total: ClassStatistics, weight: Tensor | None, bias: Tensor | None, settings: Settings
) -> SecondPass:
    """The second look that the settings ask for, after a first one that gave these statistics."""
    return total.second_pass(
        weight,
        bias,
        metrics=settings.metrics,
        global_mean=settings.global_mean,
        memory_limit=settings.memory_limit,
        present_only=settings.selection.present_only,
        min_samples=settings.selection.min_samples,
        decision_rows=settings.decision_rows,
    )


def intervals_from(
    report: CollapseReport,
    statistics: "ClassStatistics | GroupedStatistics | None",
    second: GroupedSecondPass | None,
    weight: Tensor | None,
    bias: Tensor | None,
    settings: Settings,
    out_of_distribution_mean: Tensor | None = None,
) -> CollapseReport:
    """The report with the intervals that a stream in groups gives."""
    if settings.intervals is None or not isinstance(statistics, GroupedStatistics):
        return report
    found = statistics.intervals(
        report.values,
        settings.intervals,
        weight,
        bias,
        global_mean=settings.global_mean,
        selection=settings.selection,
        out_of_distribution_mean=out_of_distribution_mean,
    )
    if second is not None:
        found |= second.intervals(report.values, settings.intervals)
    return replace(report, intervals=MappingProxyType({name: found[name] for name in report.values if name in found}))


def _no_room_note(settings: Settings, size: int) -> str:
    return (
        f"no intervals of nc1: the scatter matrices of {settings.groups} groups take {size / 1e9:.2g} GB, more than "
        f"memory_limit = {settings.memory_limit / 1e9:.2g} GB"
    )


def intervals_of(
    values: Mapping[str, float | None], without: Mapping[str, Sequence[float | None]], level: float
) -> dict[str, tuple[float, float]]:
    """Intervals by metric; none for a metric that some group takes the value of, or that no group changes."""
    share = real("intervals", level, above=0.0, below=1.0)
    result = {}
    for name, found in without.items():
        value, known = values.get(name), [x for x in found if x is not None]
        if value is None or len(known) < len(found) or all(x == value for x in known):
            continue
        result[name] = jackknife_interval(METRICS[name], value, known, share)
    return result


def with_intervals(
    report: CollapseReport,
    source: FeatureRows,
    labels: Int[Tensor, " N"],
    geometry: Geometry,
    settings: Settings,
) -> CollapseReport:
    """The report with intervals, from another look at its samples."""
    level, groups, memory_limit = settings.intervals, settings.groups, settings.memory_limit
    assert level is not None
    scatter = any(
        METRICS[name].needs & {"projection", "scatter"} for name, value in report.values.items() if value is not None
    )
    size = 8 * source.dim**2 * (groups + 5)
    notes = report.notes
    if scatter and size > memory_limit:
        scatter = False
        notes += (_no_room_note(settings, size),)
    grouped = GroupedStatistics(
        geometry.num_classes, source.dim, groups=groups, passes=1 if scatter else 2, ignore_label=None
    )
    labels = labels.to("cpu")
    assigned = grouped.take(source, labels, geometry.precision)
    found = grouped.intervals(
        report.values,
        level,
        geometry.weight,
        geometry.bias,
        global_mean=settings.global_mean,
        out_of_distribution_mean=geometry.out_of_distribution_mean,
    )
    asked = {
        need
        for name in ("nc4_mismatch", "cosine_margin")
        if report.values.get(name) is not None
        for need in METRICS[name].needs
    }
    if asked:
        task = Task(geometry, (), frozenset(asked), geometry.num_classes, decision_rows=settings.decision_rows)
        parts = [
            second_pass(source.where(rows), labels[rows].to(source.device), task).results()
            for rows in ((assigned == group).nonzero().squeeze(1) for group in range(groups))
            if rows.shape[0]
        ]
        found |= intervals_of(report.values, _decisions_without(parts), level)
    found = {name: found[name] for name in report.values if name in found}
    return replace(report, intervals=MappingProxyType(found), notes=notes)


def _decisions_without(parts: Sequence[SampleResults]) -> dict[str, list[float | None]]:
    """Mismatches and margins without one group each, by sums over what was decided: the class means stay as they are.

    Where only some samples are decided, of each group as large a share is.
    """
    wrong = [
        (float(part.mismatches), int(part.decided.sum()))
        for part in parts
        if part.mismatches is not None and part.decided is not None
    ]
    margins = [(float(sum_in_float64(part.margins)), len(part.margins)) for part in parts if part.margins is not None]
    result: dict[str, list[float | None]] = {}
    for name, found in (("nc4_mismatch", wrong), ("cosine_margin", margins)):
        found = [(one, size) for one, size in found if size]
        if len(found) > 1:
            total, count = math.fsum(one for one, _ in found), sum(size for _, size in found)
            result[name] = [(total - one) / (count - size) for one, size in found]
    return result


def _merged_statistics(start: ClassStatistics | None, parts: Sequence[ClassStatistics]) -> ClassStatistics:
    result = None if start is None else copy.deepcopy(start)
    for part in parts:
        if result is None:
            result = copy.deepcopy(part)
        else:
            result.merge(part)
    assert result is not None
    return result


def _leave_one_out(rest: ClassStatistics | None, parts: Sequence[ClassStatistics]) -> Iterator[ClassStatistics]:
    """For each part all others merged with ``rest``, by halves: G log G merges and log G copies at a time."""
    if len(parts) == 1:
        assert rest is not None
        yield rest
        return
    middle = len(parts) // 2
    yield from _leave_one_out(_merged_statistics(rest, parts[middle:]), parts[:middle])
    yield from _leave_one_out(_merged_statistics(rest, parts[:middle]), parts[middle:])
