"""Features of one layer while a model runs: kept where they are while they fit, else streamed into statistics."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .._support.checks import integer
from .accumulators.second_pass import SecondPass
from .accumulators.statistics import ClassStatistics
from .definitions._registry import select
from .inputs import as_labels, as_source, check_labels
from .measure import choose_passes, measure
from .needs import needs_again, needs_of
from .precision import as_precision, digits_of
from .report.report import CollapseReport, build_report
from .selection import Selection

__all__ = ["Recorder", "Settings"]


@dataclass(frozen=True)
class Settings:
    """What to measure, as in :func:`measure`."""

    metrics: Any
    passes: Any
    global_mean: Any
    ignore_label: Any
    memory_limit: int
    selection: Selection = field(default_factory=Selection)

    def __post_init__(self) -> None:
        select(self.metrics)
        if self.passes is not None:
            integer("passes", self.passes, minimum=1, maximum=2)
        if self.ignore_label is not None:
            integer("ignore_label", self.ignore_label)
        if self.global_mean not in ("samples", "classes"):
            raise ValueError(f"global_mean must be 'samples' or 'classes', got {self.global_mean!r}")


class Recorder:
    """One layer's features, from the first batch to the report."""

    def __init__(self, settings: Settings, num_classes: int | None, weight: Tensor | None, bias: Tensor | None):
        if num_classes is not None and weight is not None and weight.shape[0] != num_classes:
            raise ValueError(
                f"num_classes = {num_classes}, but the classifier has {weight.shape[0]} outputs; "
                "name another with layer="
            )
        self._settings = settings
        self._classes = num_classes if weight is None else weight.shape[0]
        self._weight = None if weight is None else weight.to("cpu", copy=True)
        self._bias = None if bias is None else bias.to("cpu", copy=True)
        self._features: list[Tensor] = []
        self._labels: list[Tensor] = []
        self._bytes = 0
        self._precision = torch.float64
        self._statistics: ClassStatistics | None = None
        self._missing: dict[str, str] = {}
        self._second: SecondPass | None = None
        self._seen_again = False

    def add(self, features: Tensor, labels: Any, precision: torch.dtype | None = None) -> None:
        """Take a batch in the first run; ``precision`` as in :meth:`ClassStatistics.update`."""
        source = as_source("features", features)
        targets = as_labels(labels, source.rows)
        if self._classes is not None:
            check_labels(targets, self._classes, self._settings.ignore_label)
        if self._statistics is not None:
            self._statistics.update(features, targets, precision=precision)
            return
        self._precision = min(as_precision(precision, source.dtype), self._precision, key=digits_of)
        if self._settings.ignore_label is not None:
            kept = targets != self._settings.ignore_label
            if not bool(kept.all()):
                features, targets = features[kept.to(features.device)], targets[kept]
        if self._features and self._features[0].shape[1] != features.shape[1]:
            raise ValueError(f"features must have {self._features[0].shape[1]} columns, got {features.shape[1]}")
        # Where they are: a copy, because a hook's tensor may be written to by what follows.
        self._features.append(features.detach().clone())
        self._labels.append(targets.clone())
        self._bytes += self._features[-1].nbytes
        if self._bytes > _room(features.device, self._settings.memory_limit):
            self._stream()

    def _stream(self) -> None:
        """From now on, statistics instead of features."""
        settings, dim = self._settings, self._features[0].shape[1]
        if self._classes is None:
            raise ValueError("num_classes must be given for features beyond memory_limit without a classifier")
        needs = needs_of(select(settings.metrics))
        # One pass wherever its matrix fits: running the model again costs more than the larger products.
        wanted = needs | {"scatter"} if "projection" in needs else needs
        number, self._missing = choose_passes(settings.passes, wanted, self._classes, dim, settings.memory_limit, True)
        if not needs & {"projection", "scatter"}:
            number = 2
        self._statistics = ClassStatistics(self._classes, dim, passes=number, ignore_label=settings.ignore_label)
        for features, labels in zip(self._features, self._labels, strict=True):
            self._statistics.update(features, labels, precision=self._precision)
        self._features, self._labels = [], []

    def finish_first_pass(self) -> bool:
        """Whether a second run over the data is needed for the chosen metrics."""
        if self._statistics is None or self._statistics.total == 0:
            return False
        kept = self._settings.selection.kept(self._statistics.counts)
        whole = kept is None or int(self._statistics.counts[kept].sum()) == self._statistics.total
        again = needs_again(
            needs_of(select(self._settings.metrics)),
            classifier=self._weight is not None,
            scatter=self._statistics.passes == 1 and whole,
        )
        if not again:
            return False
        self._second = self._statistics.second_pass(
            self._weight,
            self._bias,
            metrics=self._settings.metrics,
            global_mean=self._settings.global_mean,
            memory_limit=self._settings.memory_limit,
            present_only=self._settings.selection.present_only,
            min_samples=self._settings.selection.min_samples,
        )
        return True

    def add_again(self, features: Tensor, labels: Any) -> None:
        """Take the same samples in the second run."""
        assert self._second is not None
        self._second.update(features, labels)
        self._seen_again = True

    @torch.no_grad()
    def report(self) -> CollapseReport:
        """The report, from whatever was collected."""
        settings = self._settings
        if self._second is not None and self._seen_again:
            return self._second.report(missing=self._missing)
        if self._statistics is not None:
            return build_report(
                self._statistics,
                self._weight,
                self._bias,
                metrics=settings.metrics,
                global_mean=settings.global_mean,
                selection=settings.selection,
                missing=self._missing,
            )
        return measure(
            torch.cat(self._features),
            torch.cat(self._labels),
            self._weight,
            self._bias,
            num_classes=self._classes,
            metrics=settings.metrics,
            passes=settings.passes,
            global_mean=settings.global_mean,
            ignore_label=settings.ignore_label,
            present_only=settings.selection.present_only,
            min_samples=settings.selection.min_samples,
            # What the features took, their Gram matrices may take again.
            memory_limit=max(settings.memory_limit, 1 << 28),
            precision=self._precision,
        )


def _room(device: torch.device, limit: int) -> int:
    """Bytes of features to keep: at most an eighth of what an accelerator has left, since they are joined later."""
    if device.type != "cuda":
        return limit
    return min(limit, torch.cuda.mem_get_info(device)[0] // 8)
