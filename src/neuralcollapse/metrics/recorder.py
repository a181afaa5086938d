"""Features as they come, of one process or several: kept where they are while they fit, else streamed into statistics.

Everything that measures while something runs (a model, a training run, a callback) feeds a :class:`Recorder`.
"""

from dataclasses import replace

import torch
from torch import Tensor

from .accumulators.statistics import ClassStatistics
from .inputs import FeatureRows, Labels, all_finite, as_labels, as_rows, nonfinite_error
from .intervals import GroupedSecondPass, GroupedStatistics, first_statistics, intervals_from, second_pass_of
from .measure import report_on
from .precision import as_precision, coarser
from .processes import MeasuringTeam
from .report.report import CollapseReport, build_report
from .settings import Settings

__all__ = ["Recorder", "left_in"]


def left_in(features: Tensor, labels: Tensor, ignore_label: int | None) -> tuple[Tensor, Tensor]:
    """The samples that are not ignored."""
    rows = None if ignore_label is None else labels != ignore_label
    if rows is None or bool(rows.all()):
        return features, labels
    return features[rows.to(features.device)], labels[rows]


class Recorder:
    """The features of one layer, from the first batch to the report.

    Of several processes (``team``) each streams its own, the sums meet, and all have one report; every process makes
    the same calls in the end. ``dim`` is then given, since a process may have no samples. ``repeatable`` says whether
    the data can be run over again.
    """

    def __init__(
        self,
        settings: Settings,
        num_classes: int | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        dim: int | None = None,
        team: MeasuringTeam | None = None,
        repeatable: bool = False,
    ):
        if num_classes is not None and weight is not None and weight.shape[0] != num_classes:
            raise ValueError(
                f"num_classes = {num_classes}, but the classifier has {weight.shape[0]} outputs; "
                "name another with layer="
            )
        self._settings, self._team, self._repeatable = settings, team or MeasuringTeam(), repeatable
        self._classes = num_classes if weight is None else weight.shape[0]
        self._weight = None if weight is None else weight.detach().to("cpu", copy=True)
        self._bias = None if bias is None else bias.detach().to("cpu", copy=True)
        self._kept: list[tuple[Tensor, Tensor]] | None = []
        self._bytes = 0
        self._precision = as_precision(settings.precision, torch.float64)
        self._statistics: ClassStatistics | GroupedStatistics | None = None
        self._missing: dict[str, str] = {}
        self._notes: tuple[str, ...] = ()
        self._total: ClassStatistics | None = None
        self._second: GroupedSecondPass | None = None
        self._seen_again = False
        self._runs = (RunSum(), RunSum())
        self._dim = dim
        if self._team.together:
            assert dim is not None
            self._start_statistics(dim)

    @property
    def dim(self) -> int | None:
        """The number of dimensions, where it was given."""
        return self._dim

    # the first run ------------------------------------------------------------------------------------------

    def add(self, features: Tensor, labels: Labels, precision: torch.dtype | None = None) -> None:
        """Take a batch in the first run; ``precision`` as in :meth:`ClassStatistics.update`."""
        source = as_rows("features", features)
        targets = as_labels(labels, source.rows)
        self._precision = coarser(self._precision, precision, source.dtype)
        if self._statistics is not None:
            self._statistics.update(source, targets, precision=self._precision)
        if self._kept is None:
            self._runs[0].add(left_in(features, targets, self._settings.ignore_label)[0])
            return
        if self._kept and self._kept[0][0].shape[1] != source.dim:
            raise ValueError(f"features must have {self._kept[0][0].shape[1]} columns, got {source.dim}")
        features, targets = left_in(features, targets, self._settings.ignore_label)
        # An accelerator is not waited for: what it holds is looked at in the end.
        if features.device.type == "cpu" and not all_finite(features):
            raise nonfinite_error(as_rows("features", features))
        # Where they are: a copy, because a hook's tensor may be written to by what follows.
        self._kept.append((features.detach().clone(), targets.clone()))
        self._bytes += self._kept[-1][0].nbytes
        if self._bytes > _feature_bytes(features.device, self._settings.memory_limit):
            self._stream()

    def _stream(self) -> None:
        """From now on, statistics instead of features."""
        kept, self._kept = self._kept or [], None
        for features, _ in kept:
            self._runs[0].add(features)
        if self._statistics is not None:
            return
        self._start_statistics(kept[0][0].shape[1])
        assert self._statistics is not None
        for features, labels in kept:
            self._statistics.update(features, labels, precision=self._precision)

    def _start_statistics(self, dim: int) -> None:
        if self._classes is None:
            why = "over several processes" if self._team.together else "beyond memory_limit"
            raise ValueError(f"num_classes must be given to measure features without a classifier {why}")
        # One pass wherever its matrix fits, unless all processes can look again.
        again = "free" if self._team.together and self._repeatable else "dear"
        passes, self._missing = self._settings.first_look(self._classes, dim, again)
        self._statistics, self._notes = first_statistics(self._settings, self._classes, dim, passes)

    # the second run -----------------------------------------------------------------------------------------

    def finish_first_pass(self) -> bool:
        """End the first run, with the other processes; whether this one is to run over the same data again."""
        if self._statistics is None:
            return False
        if self._team.together:
            self._statistics.all_reduce(self._team.group)
        total = self._statistics
        self._total = total = total.total if isinstance(total, GroupedStatistics) else total
        if total.total == 0:
            if self._team.together:
                raise ValueError("loader holds no samples to measure")
            return False
        if self._team.together and not all(self._team.gather(self._kept is not None or self._repeatable)):
            return False
        settings, counts = self._settings, total.counts
        kept = settings.selection.kept(counts)
        whole = kept is None or int(counts[kept].sum()) == total.total
        if not settings.again(classifier=self._weight is not None, scatter=total.passes == 1 and whole):
            return False
        second = second_pass_of(total, self._weight, self._bias, settings)
        self._second = GroupedSecondPass(second, settings.interval_groups)
        if self._kept is None:
            return True
        for features, labels in self._kept:
            self._second.update(features, labels)
        self._seen_again = True
        return False

    def add_again(self, features: Tensor, labels: Labels) -> None:
        """Take the same samples in the second run."""
        assert self._second is not None
        self._second.update(features, labels)
        self._runs[1].add(left_in(features, as_labels(labels), self._settings.ignore_label)[0])
        self._seen_again = True

    def _check_runs(self) -> None:
        """Raise, in all processes, where the second run of one saw other features than its first."""
        first, second = self._runs
        moved = self._kept is None and second.rows == first.rows > 0 and first.differs(second, self._precision)
        if any(self._team.gather(moved)):
            raise ValueError(
                "the second run over the loader saw other features than the first: it or the model draws random "
                "numbers of its own; a memory_limit= that holds the features, or passes=1 and metrics= that need one "
                "run, makes one enough"
            )

    # the result ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def report(self) -> CollapseReport:
        """The report, from whatever was collected, on all processes' samples."""
        settings = self._settings
        if self._total is None:
            assert self._kept is not None
            # What the features took, their Gram matrices may take again.
            room = max(settings.memory_limit, 1 << 28)
            source = FeatureRows(torch.cat([features for features, _ in self._kept]))
            labels = torch.cat([labels for _, labels in self._kept])
            settings = replace(settings, memory_limit=room, precision=self._precision)
            return report_on(source, labels, self._weight, self._bias, settings, self._classes)
        second = self._second if self._seen_again or self._team.together else None
        if second is not None:
            self._check_runs()
            if self._team.together:
                second.all_reduce(self._team.group)
            report = second.parts[0].report(missing=self._missing)
        else:
            report = build_report(
                self._total,
                self._weight,
                self._bias,
                metrics=settings.metrics,
                global_mean=settings.global_mean,
                selection=settings.selection,
                missing=self._missing,
            )
        report = intervals_from(report, self._statistics, second, self._weight, self._bias, settings)
        return replace(report, notes=(*report.notes, *self._notes))


class RunSum:
    """Sums of the features of one run over a loader, by which two runs over the same samples are told from others."""

    def __init__(self) -> None:
        self.rows = 0
        self._total: Tensor | None = None
        self._sizes: Tensor | None = None

    def add(self, features: Tensor) -> None:
        """Add a batch."""
        dtype = torch.float32 if features.device.type == "mps" else torch.float64
        total, sizes = features.sum(0, dtype=dtype), features.abs().sum(0, dtype=dtype)
        self.rows += features.shape[0]
        self._total = total if self._total is None else self._total + total
        self._sizes = sizes if self._sizes is None else self._sizes + sizes

    def differs(self, other: "RunSum", precision: torch.dtype) -> bool:
        """Whether the other's sum is farther away than the rounding of features in ``precision`` takes it."""
        if self._total is None or self._sizes is None or other._total is None:
            return False
        slack = 64 * torch.finfo(precision).eps * self._sizes
        return bool(((self._total - other._total).abs() > slack).any())


def _feature_bytes(device: torch.device, limit: int) -> int:
    """Bytes of features to keep: at most an eighth of what an accelerator has left, since they are joined later."""
    if device.type != "cuda":
        return limit
    return min(limit, torch.cuda.mem_get_info(device)[0] // 8)
