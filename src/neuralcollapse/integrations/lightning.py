"""A Lightning callback: neural collapse of the validation data as they pass by, or of any loader."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, distributed

from .._support.checks import integer
from ..metrics import ClassStatistics, CollapseReport, measure_model
from ..metrics._batches import flat_samples, labels_of
from ..metrics._inputs import IGNORED
from ..metrics._registry import METRICS, select
from ..metrics._watch import ClassifierWatch
from .loggers import Logger, write_all

__all__ = ["LightningCollapse"]


class LightningCollapse(Callback):
    """Measures neural collapse during ``Trainer.fit`` and ``Trainer.validate``, and logs it.

    Without a ``loader`` the callback watches the validation loop: the classifier's inputs stream into class
    statistics as the batches pass, so the model runs no extra time; over several processes the statistics are
    reduced. Metrics that need the samples again are left out. With a ``loader`` (of the training data, say)
    the model is measured on it after every n-th epoch, with all metrics.

    Args:
        loader: what to measure after an epoch; ``None`` for the validation batches.
        layer: the classifier's name; by default the last ``nn.Linear`` reached.
        metrics: a name or names of metrics; ``None`` for all.
        every: measure every so many epochs.
        prefix: what the logged names start with.
        labels: a function that takes the labels from a batch, for batches of an unusual form.
        loggers: further places to write to.
        ignore_label: the label of samples to leave out.

    Attributes:
        history: pairs of epoch and report.

    """

    def __init__(
        self,
        loader: Iterable[Any] | None = None,
        *,
        layer: str | None = None,
        metrics: object = None,
        every: int = 1,
        prefix: str = "nc/",
        labels: Callable[[Any], Tensor] | None = None,
        loggers: Sequence[Logger] = (),
        ignore_label: int | None = IGNORED,
    ):
        super().__init__()
        self._loader, self._layer, self._prefix = loader, layer, prefix
        self._metrics = [metric.name for metric in select(metrics)]
        self._every = integer("every", every, minimum=1)
        self._labels = labels or labels_of
        self._loggers = tuple(loggers)
        self._ignore_label = ignore_label
        self._watch: ClassifierWatch | None = None
        self._statistics: ClassStatistics | None = None
        self.history: list[tuple[int, CollapseReport]] = []

    def _due(self, trainer: Trainer) -> bool:
        return not trainer.sanity_checking and (trainer.current_epoch + 1) % self._every == 0

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start to watch the classifier."""
        if self._loader is None and self._due(trainer):
            self._watch = ClassifierWatch(pl_module, self._layer)
            self._statistics = None

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Forget the previous batch."""
        if self._watch is not None:
            self._watch.start()

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take the features of the batch into the statistics."""
        if self._watch is None:
            return
        features, labels = flat_samples(self._watch.features(), self._labels(batch), self._watch.name)
        if self._statistics is None:
            weight = self._watch.classifier.weight
            if weight is None:
                raise ValueError(
                    f"layer {self._watch.name!r} has no weight matrix, so the number of classes is unknown"
                )
            needs = {need for name in self._metrics for need in METRICS[name].needs}
            passes = 1 if needs & {"projection", "scatter"} else 2
            self._statistics = ClassStatistics(
                weight.shape[0], features.shape[1], passes=passes, ignore_label=self._ignore_label
            )
        self._statistics.update(features, labels)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report on what was seen."""
        watch, statistics, self._watch, self._statistics = self._watch, self._statistics, None, None
        if watch is None:
            return
        watch.remove()
        if statistics is None:
            return
        if distributed.is_available() and distributed.is_initialized():
            statistics.device = pl_module.device
            statistics.set_state(statistics.state())
            statistics.all_reduce()
        classifier = watch.classifier
        report = statistics.report(classifier.weight, classifier.bias, metrics=self._metrics)
        self._log(trainer, pl_module, report, "validation")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the loader, if there is one."""
        if self._loader is not None and self._due(trainer):
            report = measure_model(
                pl_module, self._loader, self._layer, metrics=self._metrics, ignore_label=self._ignore_label
            )
            self._log(trainer, pl_module, report, "train")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave no hook behind."""
        if self._watch is not None:
            self._watch.remove()
            self._watch = None

    def _log(self, trainer: Trainer, pl_module: LightningModule, report: CollapseReport, split: str) -> None:
        self.history.append((trainer.current_epoch, report))
        values = {self._prefix + name: torch.tensor(value) for name, value in report.scalars.items()}
        pl_module.log_dict(values, on_step=False, on_epoch=True, batch_size=1)
        if trainer.is_global_zero:
            write_all(self._loggers, trainer.current_epoch, report, split)
