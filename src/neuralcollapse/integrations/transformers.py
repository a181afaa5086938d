"""A Hugging Face ``TrainerCallback``: neural collapse after every epoch or evaluation."""

from collections.abc import Iterable, Sequence
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .._support.checks import integer
from ..metrics import CollapseReport, measure_model
from ..metrics._batches import Forward
from ..metrics._inputs import IGNORED
from ..metrics._registry import select
from .loggers import Logger, write_all

__all__ = ["TransformersCollapse"]


class TransformersCollapse(TrainerCallback):
    """Measures neural collapse at the end of every n-th epoch and puts it into the trainer's log history.

    Args:
        loader: what to measure; by default the trainer's own training batches.
        layer: the classifier's name; by default the last ``nn.Linear`` reached.
        metrics: a name or names of metrics; ``None`` for all.
        every: measure every so many epochs.
        prefix: what the logged names start with.
        forward: for unusual batches, a function ``(model, batch)`` that runs the model and returns the
            labels.
        loggers: further places to write to.
        ignore_label: the label of samples or tokens to leave out.

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
        forward: Forward | None = None,
        loggers: Sequence[Logger] = (),
        ignore_label: int | None = IGNORED,
    ):
        self._loader, self._layer, self._prefix, self._forward = loader, layer, prefix, forward
        self._metrics = [metric.name for metric in select(metrics)]
        self._every = integer("every", every, minimum=1)
        self._loggers = tuple(loggers)
        self._ignore_label = ignore_label
        self.history: list[tuple[int, CollapseReport]] = []

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        train_dataloader: Iterable[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Measure and log."""
        epoch = round(state.epoch or 0)
        loader = self._loader if self._loader is not None else train_dataloader
        if epoch % self._every or model is None or loader is None:
            return
        report = measure_model(
            model,
            loader,
            self._layer,
            forward=self._forward,
            metrics=self._metrics,
            ignore_label=self._ignore_label,
        )
        self.history.append((epoch, report))
        values = {self._prefix + name: value for name, value in report.scalars.items()}
        state.log_history.append({"epoch": state.epoch, "step": state.global_step, **values})
        if state.is_world_process_zero:
            write_all(self._loggers, epoch, report, "train")
