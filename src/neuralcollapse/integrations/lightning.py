"""A Lightning callback: neural collapse of the validation and test data as they pass by, or of any loader."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from .._support.checks import integer
from ..metrics import CollapseReport
from ..metrics.hooks.batches import Batches, BatchReader, Forward, LabelsOf
from ..metrics.hooks.run import RandomStates, eager
from ..metrics.hooks.targets import Ignored
from ..metrics.inputs import IGNORED, NonFiniteError
from ..metrics.measurement import Measurement, Options
from ..metrics.model import look_at
from ..metrics.processes import MeasuringTeam, Shares
from ..metrics.settings import MEMORY_LIMIT, Metrics
from .loggers import Logger, write_all
from .skips import Skips

__all__ = ["LightningCollapse"]


class LightningCollapse(Callback):
    """Measures neural collapse during ``Trainer.fit``, ``validate`` and ``test``, and logs it.

    Without a ``loader`` the callback watches the validation and test loops: the classifier's inputs are taken as the
    batches pass, so the model runs no extra time. They are kept while they fit into ``memory_limit`` and stream
    into class statistics beyond it, which leaves out metrics that need the samples again. Several loaders stay
    several, under Lightning's own names (``nc/nc1/dataloader_idx_1``); several processes make one report. With a
    ``loader`` (of the training data, say) the model is measured on it after every n-th epoch, in the trainer's
    precision. A diverged model is not measured: nothing is logged, and the reason is said once.

    Args:
        loader: what to measure after an epoch; ``None`` for the validation and test batches.
        layer: the classifier's name; by default the layer whose output is the model's output.
        metrics: ``"core"``, ``"all"``, a name or names of metrics; ``None`` for the core.
        every: measure every so many epochs.
        prefix: what the logged names start with.
        labels: where the labels of a batch are: a key, a position, or a function of the batch.
        forward: for unusual batches of ``loader``, a function ``(module, batch)`` that runs the model and returns
            the labels.
        loggers: further places to write to.
        num_classes: K; by default the number of the classifier's outputs.
        class_names: the names of the classes, for labels that are strings.
        present_only: measure the classes that have samples, as if there were no others.
        min_samples: measure the classes with at least so many samples, as if there were no others.
        ignore_label: the label of samples to leave out, or several.
        max_batches: look at no more than so many batches of ``loader``.
        memory_limit: bytes of features to keep.
        intervals: the level of confidence intervals, such as 0.95, for the reports' ``intervals``.
        groups: groups of samples that they come from.
        precision: the dtype whose rounding the features carry, where that is coarser than what the layers pass on.

    Attributes:
        history: pairs of epoch and report, kept in checkpoints but for the margin of every sample.

    """

    def __init__(
        self,
        loader: Batches | None = None,
        *,
        layer: str | None = None,
        metrics: Metrics = None,
        every: int = 1,
        prefix: str = "nc/",
        labels: LabelsOf | None = None,
        forward: Forward | None = None,
        loggers: Sequence[Logger] = (),
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        present_only: bool = False,
        min_samples: int = 1,
        ignore_label: Ignored = IGNORED,
        max_batches: int | None = None,
        memory_limit: int = MEMORY_LIMIT,
        intervals: float | None = None,
        groups: int = 20,
        precision: torch.dtype | None = None,
    ):
        super().__init__()
        self._loader, self._prefix = loader, prefix
        self._options = Options(
            layer=layer,
            num_classes=num_classes,
            class_names=class_names,
            metrics=metrics,
            ignore_label=ignore_label,
            present_only=present_only,
            min_samples=min_samples,
            memory_limit=memory_limit,
            intervals=intervals,
            groups=groups,
            precision=precision,
        )
        self._every = integer("every", every, minimum=1)
        self._max_batches = None if max_batches is None else integer("max_batches", max_batches, minimum=1)
        self._forward, self._labels = forward, labels
        BatchReader(forward, labels)
        self._loggers = tuple(loggers)
        self._watched: _Watched | None = None
        self._skips = Skips()
        self.history: list[tuple[int, CollapseReport]] = []

    # checkpoints --------------------------------------------------------------------------------------------

    @property
    def state_key(self) -> str:
        """One key a callback, so that two of them keep two histories."""
        return self._generate_state_key(prefix=self._prefix, loader=self._loader is not None)

    def state_dict(self) -> dict[str, Any]:
        """The history, as plain values: checkpoints are loaded without pickled classes.

        The margins of all samples are left out: over a long training they would outgrow the net.
        """
        without_margins = ((epoch, replace(report, cosine_margins=None)) for epoch, report in self.history)
        return {"history": [(epoch, report.to_content()) for epoch, report in without_margins]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a history from a checkpoint."""
        self.history = [(epoch, CollapseReport.from_content(state)) for epoch, state in state_dict["history"]]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse two callbacks that would log under the same names."""
        for other in getattr(trainer, "callbacks", ()):
            if isinstance(other, LightningCollapse) and other is not self and other._prefix == self._prefix:
                raise ValueError(
                    f"two LightningCollapse callbacks log under {self._prefix!r}: give one another prefix="
                )

    # the validation and test loops --------------------------------------------------------------------------

    def _due(self, trainer: Trainer) -> bool:
        if trainer.sanity_checking:
            return False
        return trainer.state.fn != "fit" or (trainer.current_epoch + 1) % self._every == 0

    def _open(self, trainer: Trainer, pl_module: LightningModule, loaders: object) -> None:
        if self._loader is None and self._due(trainer):
            reader = _StepReader(trainer, pl_module, self._forward, self._labels)
            self._watched = _Watched(pl_module, self._options, reader, loaders, trainer.world_size > 1)

    def _close(self, trainer: Trainer, pl_module: LightningModule, split: str) -> None:
        watched, self._watched = self._watched, None
        if watched is None:
            return
        reports = self._skips(trainer.current_epoch, watched.reports)
        for index, report in (reports or {}).items():
            several = len(watched.loaders) > 1
            self._log(
                trainer,
                pl_module,
                report,
                f"{split}/{index}" if several else split,
                f"/dataloader_idx_{index}" if several else "",
            )

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start to watch the classifier."""
        self._open(trainer, pl_module, trainer.val_dataloaders)

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start to watch the classifier."""
        self._open(trainer, pl_module, trainer.test_dataloaders)

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Forget the previous batch."""
        if self._watched is not None:
            self._watched.start(dataloader_idx)

    on_test_batch_start = on_validation_batch_start

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take the features of the batch."""
        if self._watched is not None:
            self._watched.take(batch)

    on_test_batch_end = on_validation_batch_end

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report on what was seen."""
        self._close(trainer, pl_module, "validation")

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report on what was seen."""
        self._close(trainer, pl_module, "test")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave no hook behind."""
        if self._watched is not None:
            self._watched.remove()
            self._watched = None

    # a loader of its own ------------------------------------------------------------------------------------

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the loader, if there is one."""
        loader = self._loader
        if loader is None or not self._due(trainer):
            return
        reader = _StepReader(trainer, pl_module, self._forward, self._labels)
        report = self._skips(
            trainer.current_epoch,
            lambda: look_at(pl_module, loader, reader, self._options, max_batches=self._max_batches),
        )
        if report is not None:
            self._log(trainer, pl_module, report, "train", "")

    def _log(
        self, trainer: Trainer, pl_module: LightningModule, report: CollapseReport, split: str, suffix: str
    ) -> None:
        self.history.append((trainer.current_epoch, report))
        values = {f"{self._prefix}{name}{suffix}": torch.tensor(value) for name, value in report.scalars.items()}
        pl_module.log_dict(values, on_step=False, on_epoch=True, batch_size=1, add_dataloader_idx=False)
        if trainer.is_global_zero:
            write_all(self._loggers, trainer.current_epoch, report, split)


class _Watched:
    """One run of the validation or test loop: a measurement for each of its loaders."""

    def __init__(
        self, module: LightningModule, options: Options, reader: "_StepReader", loaders: object, together: bool
    ):
        self.loaders = list(loaders) if isinstance(loaders, list | tuple) else [loaders]
        self._module, self._options, self._reader = module, options, reader
        self._team = MeasuringTeam(None, together)
        self._measurements: dict[int, Measurement] = {}
        self._index: int | None = None
        self._failed: NonFiniteError | None = None
        self._stack = ExitStack()
        self._stack.enter_context(eager())

    def _new(self, index: int) -> Measurement:
        loader = self.loaders[index] if index < len(self.loaders) else None
        return Measurement(self._module, self._options, team=self._team, shares=Shares(loader))

    def start(self, index: int) -> None:
        """A batch of a loader begins."""
        if index != self._index:
            if self._index is not None:
                self._measurements[self._index].remove()
            self._measurements[index] = self._new(index)
            self._index = index
        self._measurements[index].start()

    def take(self, batch: Any) -> None:
        """The batch has passed."""
        if self._failed is not None or self._index is None:
            return
        again = self._reader.again(self._module, batch)
        try:
            self._measurements[self._index].take(self._reader.labels(self._module, batch), again)
        except NonFiniteError as error:
            self._failed = error

    def reports(self) -> dict[int, CollapseReport]:
        """The reports by loader; every process comes here, with or without data."""
        self.remove()
        with self._team.failing_together():
            if self._failed is not None:
                raise self._failed
        indices = sorted(set().union(*self._team.gather(set(self._measurements))))
        reports = {}
        for index in indices:
            measurement = self._measurements.get(index) or self._new(index)
            measurement.remove()
            measurement.finish()
            reports[index] = measurement.report()
        return reports

    def remove(self) -> None:
        """Take all hooks away."""
        for measurement in self._measurements.values():
            measurement.remove()
        self._stack.close()


class _StepReader(BatchReader):
    """Runs batches as the trainer does: on its device, in its precision, by a step where there is no ``forward``."""

    def __init__(self, trainer: Trainer, module: LightningModule, forward: Forward | None, labels: LabelsOf | None):
        super().__init__(forward, labels)
        self._trainer = trainer
        self._has_forward = type(module).forward is not LightningModule.forward

    @contextmanager
    def _prepared(self, batch: Any) -> Iterator[Any]:
        precision = self._trainer.precision_plugin
        batch = precision.convert_input(self._trainer.strategy.batch_to_device(batch))
        with precision.forward_context():
            yield batch

    def run(self, model: nn.Module, batch: Any) -> Any:
        """Run ``model`` on a batch; the labels."""
        with self._prepared(batch) as ready:
            return super().run(model, ready)

    def call(self, model: nn.Module, batch: Any, **extra: Any) -> Any:
        """Run the model on the inputs of a batch; what it returns."""
        with self._prepared(batch) as ready:
            if self._has_forward or not isinstance(model, LightningModule):
                return super().call(model, ready, **extra)
            return self._step(model, ready)

    def _step(self, module: LightningModule, batch: Any) -> Any:
        """A step of the module's own, which may log and count nothing."""
        names = ("predict_step", "validation_step", "test_step")
        name = next((n for n in names if getattr(type(module), n) is not getattr(LightningModule, n)), None)
        if name is None:
            raise TypeError("the module has neither a forward nor a validation_step; say how to run it with forward=")
        states = {part: dict(part.__dict__) for part in module.modules() if hasattr(part, "_update_count")}
        silent = {"log": lambda *_, **__: None, "log_dict": lambda *_, **__: None}
        try:
            module.__dict__.update(silent)
            return getattr(module, name)(batch, 0)
        finally:
            for key in silent:
                del module.__dict__[key]
            for part, state in states.items():
                part.__dict__.update(state)

    def again(self, model: LightningModule, batch: Any) -> Callable[..., Any] | None:
        """Runs a batch once more; ``None`` where that cannot be done without a step."""
        if not self._has_forward:
            return None

        def run(**extra: Any) -> Any:
            # The batches that follow draw what they would have drawn without this.
            states = RandomStates(None)
            try:
                with torch.no_grad():
                    return self.call(model, batch, **extra)
            finally:
                states.restore()

        return run
