"""Class statistics as a ``torchmetrics.Metric``."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torchmetrics import Metric

from .._support.machine import has_float64
from .accumulators.statistics import ClassStatistics
from .inputs import IGNORED, Array, Labels, as_classifier
from .report.plots import plot_history
from .report.report import CollapseReport
from .selection import Selection
from .settings import GlobalMean, Metrics, Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["NeuralCollapse"]

PREFIX = "collapse_"


class NeuralCollapse(Metric):
    """Neural collapse of features as a torchmetrics metric: ``update(features, labels)``, ``compute()``.

    ``compute`` gives the metrics that have a value, by name; :meth:`report` gives the whole report with
    reasons. Metrics that need the samples again (margins, decisions, numerical rank) are not among them.

    torchmetrics gathers one state at a time, which cannot merge centred statistics: over several processes
    this metric reduces itself, by the two sums of :meth:`ClassStatistics.all_reduce`.

    ``precision`` is the dtype whose rounding the features carry where that is coarser than their own (float32
    features of a run under autocast in bfloat16, say), as in :func:`measure`.
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    def __init__(
        self,
        num_classes: int,
        dim: int,
        metrics: Metrics = None,
        *,
        ignore_label: int | None = IGNORED,
        global_mean: GlobalMean = "samples",
        present_only: bool = False,
        min_samples: int = 1,
        precision: torch.dtype | None = None,
        **options: Any,
    ):
        super().__init__(**options)
        self.num_classes, self.dim, self.ignore_label = num_classes, dim, ignore_label
        self.global_mean: GlobalMean = global_mean
        self.precision = precision
        self.selection = Selection(present_only, min_samples)
        settings = Settings(metrics, None, global_mean, ignore_label, sys.maxsize, self.selection, precision=precision)
        self.metrics = tuple(metric.name for metric in settings.chosen)
        self.passes, _ = settings.first_look(num_classes, dim, "dear")
        self._weight: Tensor | None = None
        self._bias: Tensor | None = None
        empty = ClassStatistics(num_classes, dim, passes=self.passes, ignore_label=ignore_label)
        self._names = tuple(empty.state())
        for name, tensor in empty.state().items():
            self.add_state(PREFIX + name, tensor, dist_reduce_fx=None)

    def use_classifier(self, weight: Array | None, bias: Array | None = None) -> None:
        """Measure against this classifier, (K, d) and (K,), from now on; ``None`` for none."""
        self._weight, self._bias = as_classifier(weight, bias, self.num_classes, self.dim)

    def update(self, features: Array, labels: Labels) -> None:
        """Add a batch: features (B, d) and labels (B,)."""
        self._view().update(features, labels, precision=self.precision)

    def compute(self) -> dict[str, Tensor]:
        """The metrics that have a value, as float64 scalars."""
        return {
            name: torch.tensor(value, dtype=torch.float64).to(self._counts_device())
            for name, value in self._report().scalars.items()
        }

    def report(self) -> CollapseReport:
        """The report on all processes' samples."""
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        ):
            return self._report()

    def plot(
        self, val: "Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]] | None" = None, ax: "Axes | None" = None
    ) -> "tuple[Figure, list[Axes]]":
        """A figure and its axes, as torchmetrics has it: the report, or the course of several computed values.

        Args:
            val: ``None`` for :meth:`report`, or what several calls of ``compute`` or ``forward`` gave.
            ax: torchmetrics offers axes to draw on; a report has panels of its own, so it must be ``None``.

        """
        if ax is not None:
            raise ValueError("ax must be None: the picture of a report has several panels")
        if val is None:
            figure = self.report().plot()
        else:
            figure = plot_history([val] if isinstance(val, Mapping) else val)
        return figure, figure.axes

    def statistics(self) -> ClassStatistics:
        """The statistics behind the state, as an object of their own."""
        result = ClassStatistics(
            self.num_classes, self.dim, passes=self.passes, ignore_label=self.ignore_label, device=self._counts_device()
        )
        result.set_state(self._state())
        return result

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> torch.nn.Module:
        """Move the sums where ``fn`` does, and keep their type: a module in half precision holds its metrics, too.

        They stay where they are if that device has no float64.
        """

        def moved(tensor: Tensor) -> Tensor:
            place = fn(torch.empty(0, device=tensor.device)).device
            if not has_float64(place):
                return tensor
            found = fn(tensor)
            return found if found.dtype == tensor.dtype else tensor.to(found.device)

        return super()._apply(moved, exclude_state)

    def _state(self) -> dict[str, Tensor]:
        return {name: getattr(self, PREFIX + name) for name in self._names}

    def _view(self) -> ClassStatistics:
        """Statistics that work on the state itself, without a copy."""
        return ClassStatistics.on_state(self._state(), self.ignore_label)

    def _report(self) -> CollapseReport:
        return self._view().report(
            self._weight,
            self._bias,
            metrics=list(self.metrics),
            global_mean=self.global_mean,
            present_only=self.selection.present_only,
            min_samples=self.selection.min_samples,
        )

    def _counts_device(self) -> torch.device:
        return getattr(self, PREFIX + "counts").device

    def _take(self, statistics: ClassStatistics) -> None:
        for name, tensor in statistics.state().items():
            setattr(self, PREFIX + name, tensor)

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        other = ClassStatistics(
            self.num_classes,
            self.dim,
            passes=self.passes,
            ignore_label=self.ignore_label,
            device=self._counts_device(),
        )
        other.set_state({name: incoming_state[PREFIX + name] for name in other.state()})
        other.merge(self.statistics())
        self._take(other)

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] | None = None, process_group: Any = None) -> None:
        statistics = self._view()
        statistics.all_reduce(group=process_group or self.process_group)
        self._take(statistics)
