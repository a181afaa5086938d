"""A Hugging Face ``TrainerCallback``: neural collapse every so many epochs or steps, and at every evaluation."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, Sampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .._support.checks import flag, integer
from ..metrics import CollapseReport
from ..metrics.hooks.batches import Batches, BatchReader, Forward, LabelsOf
from ..metrics.hooks.targets import Ignored
from ..metrics.inputs import IGNORED
from ..metrics.measurement import Options
from ..metrics.model import look_at
from ..metrics.processes import MeasuringTeam, Reduce
from ..metrics.settings import MEMORY_LIMIT, Metrics
from .loggers import Logger, write_all
from .skips import Skips

__all__ = ["TransformersCollapse"]


class TransformersCollapse(TrainerCallback):
    """Measures neural collapse during ``Trainer.train`` and ``evaluate``, and logs it as the trainer logs its loss.

    The values go through ``Trainer.log``: into the log history and to TensorBoard, Weights & Biases or whatever the
    trainer reports to, as ``nc/nc1`` for the training data and ``eval_nc/nc1`` for the evaluation data. Labels of
    causal language models are shifted as in their own loss. The data are read anew in their own order, so the
    trainer's batches and random numbers stay as they are. A diverged model is not measured: nothing is logged, and
    the reason is said once.

    Args:
        loader: what to measure; by default the trainer's own training data.
        layer: the classifier's name; by default the layer whose output is the model's output.
        metrics: ``"core"``, ``"all"``, a name or names of metrics; ``None`` for the core.
        every: measure every so many epochs.
        every_steps: measure every so many steps instead.
        evaluations: whether to measure the evaluation data whenever the trainer evaluates.
        max_batches: look at no more than so many batches; of the trainer's training data always the same ones, drawn
            once.
        prefix: what the logged names start with.
        forward: for unusual batches, a function ``(model, batch)`` that runs the model and returns the
            labels.
        labels: where the labels of a batch are: a key, a position, or a function of the batch.
        loggers: further places to write to.
        num_classes: K; by default the number of the classifier's outputs.
        present_only: measure the classes that have samples, as if there were no others.
        min_samples: measure the classes with at least so many samples, as if there were no others.
        ignore_label: the label of samples or tokens to leave out, or several.
        reduce: whether to measure the samples of all processes; by default where each has a share of its own.
        memory_limit: bytes of features to keep.
        intervals: the level of confidence intervals, such as 0.95, for the reports' ``intervals``.
        groups: groups of samples that they come from.
        precision: the dtype whose rounding the features carry, where that is coarser than what the layers pass on.

    Attributes:
        history: pairs of epoch and report on the training data (or ``loader``).
        evaluation_history: pairs of epoch and report on the evaluation data.

    """

    def __init__(
        self,
        loader: Batches | None = None,
        *,
        layer: str | None = None,
        metrics: Metrics = None,
        every: int = 1,
        every_steps: int | None = None,
        evaluations: bool = True,
        max_batches: int | None = None,
        prefix: str = "nc/",
        forward: Forward | None = None,
        labels: LabelsOf | None = None,
        loggers: Sequence[Logger] = (),
        num_classes: int | None = None,
        present_only: bool = False,
        min_samples: int = 1,
        ignore_label: Ignored = IGNORED,
        reduce: Reduce = None,
        memory_limit: int = MEMORY_LIMIT,
        intervals: float | None = None,
        groups: int = 20,
        precision: torch.dtype | None = None,
    ):
        self._loader, self._prefix = loader, prefix
        self._options = Options(
            layer=layer,
            num_classes=num_classes,
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
        self._every_steps = None if every_steps is None else integer("every_steps", every_steps, minimum=1)
        self._evaluations = flag("evaluations", evaluations)
        self._max_batches = None if max_batches is None else integer("max_batches", max_batches, minimum=1)
        self._forward, self._labels, self._reduce = forward, labels, reduce
        BatchReader(forward, labels)
        self._loggers = tuple(loggers)
        self._epochs = 0
        self._skips = Skips()
        self.history: list[tuple[float, CollapseReport]] = []
        self.evaluation_history: list[tuple[float, CollapseReport]] = []

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        train_dataloader: Batches | None = None,
        **kwargs: Any,
    ) -> None:
        """Measure every so many epochs."""
        self._epochs += 1
        epoch = _epoch(state)
        # A stream without an end counts its epochs in fractions.
        count = epoch if isinstance(epoch, int) else self._epochs
        if self._every_steps is None and count % self._every == 0:
            self._measure_training(state, model, train_dataloader)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        train_dataloader: Batches | None = None,
        **kwargs: Any,
    ) -> None:
        """Measure every so many steps."""
        if self._every_steps is not None and state.global_step % self._every_steps == 0:
            self._measure_training(state, model, train_dataloader)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        model: nn.Module | None = None,
        eval_dataloader: Batches | None = None,
        **kwargs: Any,
    ) -> None:
        """Measure the evaluation data."""
        if not self._evaluations or model is None or eval_dataloader is None:
            return
        report = self._report(state, model, eval_dataloader)
        if report is None:
            return
        self.evaluation_history.append((_epoch(state), report))
        values = {f"eval_{self._prefix}{name}": value for name, value in report.scalars.items()}
        if metrics is not None:
            metrics.update(values)
        self._log(state, report, values, "eval")

    def _measure_training(self, state: TrainerState, model: nn.Module | None, train_dataloader: Batches | None) -> None:
        loader = self._loader
        if loader is None and train_dataloader is not None:
            loader = _same_data(train_dataloader, self._max_batches is not None)
        if model is None or loader is None:
            return
        report = self._report(state, model, loader)
        if report is not None:
            self.history.append((_epoch(state), report))
            self._log(state, report, {self._prefix + name: value for name, value in report.scalars.items()}, "train")

    def _report(self, state: TrainerState, model: nn.Module, loader: Batches) -> CollapseReport | None:
        reader = BatchReader(self._forward, self._labels)
        return self._skips(
            state.global_step,
            lambda: look_at(model, loader, reader, self._options, max_batches=self._max_batches, reduce=self._reduce),
        )

    def _log(self, state: TrainerState, report: CollapseReport, values: dict[str, float], split: str) -> None:
        trainer = _trainer_above()
        if trainer is not None:
            trainer.log(dict(values))
        else:
            state.log_history.append({"epoch": state.epoch, "step": state.global_step, **values})
        if state.is_world_process_zero:
            write_all(self._loggers, _epoch(state), report, split)


def _epoch(state: TrainerState) -> float:
    """The epoch, a whole number at its end."""
    epoch = state.epoch or 0.0
    return round(epoch) if abs(epoch - round(epoch)) < 1e-6 else epoch


def _trainer_above() -> Trainer | None:
    """The trainer that is calling: the library hands it to no callback, and only its ``log`` reaches its reporters."""
    frame = inspect.currentframe()
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, Trainer):
            return found
        frame = frame.f_back
    return None


def _same_data(loader: Any, drawn: bool) -> Iterable[Any]:
    """The data of a trainer's loader in a loader of their own, each process with its share.

    The trainer's own loader is in the middle of an epoch, and counts and draws when it is read.
    """
    dataset, team = getattr(loader, "dataset", None), MeasuringTeam()
    if dataset is None or isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return loader
    sampler: Sampler[int] | None = None
    if team.size > 1:
        sampler = DistributedSampler(dataset, shuffle=drawn, seed=0)
    elif drawn:
        sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(0))
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return DataLoader(dataset, batch_size=size or 8, sampler=sampler, collate_fn=loader.collate_fn)
