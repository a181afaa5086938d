"""Features of one layer over several processes: each streams its own, the sums meet, and all have one report."""

from typing import Any

import torch
from torch import Tensor

from .accumulators.second_pass import SecondPass
from .accumulators.statistics import ClassStatistics
from .definitions._registry import select
from .processes import Team
from .recorder import Settings
from .report.report import CollapseReport

__all__ = ["SharedRecorder"]


class SharedRecorder:
    """The :class:`Recorder` of several processes, in float64; every process makes the same calls in the end."""

    def __init__(
        self,
        settings: Settings,
        num_classes: int | None,
        weight: Tensor | None,
        bias: Tensor | None,
        *,
        dim: int,
        team: Team,
        repeatable: bool,
    ):
        classes = num_classes if weight is None else weight.shape[0]
        if classes is None:
            raise ValueError("num_classes must be given to measure a layer without a weight over several processes")
        if num_classes is not None and classes != num_classes:
            raise ValueError(
                f"num_classes = {num_classes}, but the classifier has {classes} outputs; name another with layer="
            )
        self._settings, self._team, self._repeatable = settings, team, repeatable
        self._weight, self._bias = weight, bias
        needs = frozenset(need for metric in select(settings.metrics) for need in metric.needs)
        passes = settings.passes or (1 if "scatter" in needs or not repeatable else 2)
        self._statistics = ClassStatistics(classes, dim, passes=passes, ignore_label=settings.ignore_label)
        self._kept: list[tuple[Tensor, Tensor]] | None = []
        self._bytes = 0
        self._second: SecondPass | None = None

    def add(self, features: Tensor, labels: Any, precision: torch.dtype | None = None) -> None:
        """Take a batch in the first run; ``precision`` as in :meth:`ClassStatistics.update`."""
        self._statistics.update(features, labels, precision=precision)
        if self._kept is not None:
            self._kept.append((features.detach().to("cpu", copy=True), labels.to("cpu", copy=True)))
            self._bytes += self._kept[-1][0].nbytes
            if self._bytes > self._settings.memory_limit:
                self._kept = None

    def finish_first_pass(self) -> bool:
        """Bring the statistics together; whether this process is to run over its data again."""
        settings = self._settings
        self._statistics.all_reduce(self._team.group)
        if self._statistics.total == 0:
            raise ValueError("loader holds no samples to measure")
        if not all(self._team.gather(self._kept is not None or self._repeatable)):
            return False
        self._second = self._statistics.second_pass(
            self._weight,
            self._bias,
            metrics=settings.metrics,
            global_mean=settings.global_mean,
            memory_limit=settings.memory_limit,
            present_only=settings.selection.present_only,
            min_samples=settings.selection.min_samples,
        )
        for features, labels in self._kept or ():
            self._second.update(features, labels)
        return self._kept is None

    def add_again(self, features: Tensor, labels: Any) -> None:
        """Take the same samples in the second run."""
        assert self._second is not None
        self._second.update(features, labels)

    @torch.no_grad()
    def report(self) -> CollapseReport:
        """The report on all processes' samples."""
        settings = self._settings
        if self._second is None:
            return self._statistics.report(
                self._weight,
                self._bias,
                metrics=settings.metrics,
                global_mean=settings.global_mean,
                present_only=settings.selection.present_only,
                min_samples=settings.selection.min_samples,
            )
        self._second.all_reduce(self._team.group)
        return self._second.report()
