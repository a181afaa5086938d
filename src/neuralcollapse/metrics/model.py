"""``measure_model``: neural collapse of a network as it is, from a loader.

The classifier's input is caught by a hook while the model runs in evaluation mode. Features stay in memory
while they fit, so that the model sees the data once; beyond that they stream into class statistics, and a
second run is made only for metrics that need one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from .._support.checks import integer
from .hooks.align import SHIFTED, shifts_labels
from .hooks.batches import BatchReader, Forward, LabelsOf
from .hooks.heads import module_of, unwrapped
from .hooks.layers import LayersWatch
from .hooks.run import Run, check_model
from .hooks.targets import Ignored, Targets
from .inputs import IGNORED
from .measure import MEMORY_LIMIT
from .measurement import Measurement, Options
from .processes import Shares, team_of
from .recorder import Recorder
from .report.report import CollapseReport

__all__ = ["look_at", "measure_layers", "measure_model"]


def measure_model(
    model: nn.Module,
    loader: Iterable[Any] | torch.utils.data.Dataset[Any],
    layer: str | None = None,
    num_classes: int | None = None,
    *,
    forward: Forward | None = None,
    labels: LabelsOf | None = None,
    class_names: Sequence[str] | None = None,
    metrics: str | Sequence[str] | None = None,
    passes: int | None = None,
    global_mean: str = "samples",
    present_only: bool = False,
    min_samples: int = 1,
    ignore_label: Ignored = IGNORED,
    max_batches: int | None = None,
    reduce: bool | ProcessGroup | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: bool = False,
) -> CollapseReport:
    """Measure neural collapse of ``model`` on the batches of ``loader``.

    ``report.layer`` names the layer that was measured, ``report.notes`` say what was done to labels and features:
    labels of causal language models are shifted as in the model's own loss, of decoders that classify sequences
    the position is taken that the model itself picks, one-hot and soft labels become classes.

    Args:
        model: any module, compiled or wrapped or not; it runs in evaluation mode without gradients and is left as
            it was.
        loader: batches ``(inputs, labels)``, ``(input, ..., labels)``, ``(inputs, labels, extras)`` or dicts with
            labels; or a ``Dataset``. Labels of token models have the shape of the tokens, of dense models that of
            the positions.
        layer: the classifier's name; by default the layer whose output is the model's output. Its input is what is
            measured, its weight and bias are the classifier.
        num_classes: K; by default the number of the classifier's outputs.
        forward: for other batches, a function ``(model, batch)`` that runs the model and returns the labels.
        labels: where the labels of a batch are: a key, a position, or a function of the batch.
        class_names: the names of the classes in the order of the classifier's outputs, for labels that are strings.
        metrics: ``"core"``, ``"all"``, a name or names of metrics; ``None`` for the core.
        passes: 1 or 2, see :func:`measure`.
        global_mean: ``"samples"`` or ``"classes"``, see :func:`measure`.
        present_only: measure the classes that have samples, as if there were no others.
        min_samples: measure the classes with at least so many samples, as if there were no others.
        ignore_label: the label of samples, tokens or positions to leave out, or several; ``None`` for none.
        max_batches: look at no more than so many batches.
        reduce: whether to measure the samples of all processes of ``torch.distributed`` (``True``, or a group); by
            default where the loader's sampler gives each process a share of its own.
        memory_limit: bytes of features to keep. Within it the model runs over the loader once; beyond it twice, if
            ``metrics`` need that.
        progress: show a progress bar.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    >>> x, y = torch.randn(20, 2), torch.arange(20) % 2
    >>> report = measure_model(model, [(x, y)])
    >>> report.layer, report.num_classes, report.dim, report.num_samples
    ('1', 2, 3, 20)

    """
    reader = BatchReader(forward, labels)
    return look_at(
        model,
        loader,
        reader,
        Options(
            layer=layer,
            num_classes=num_classes,
            class_names=class_names,
            metrics=metrics,
            passes=passes,
            global_mean=global_mean,
            ignore_label=ignore_label,
            present_only=present_only,
            min_samples=min_samples,
            memory_limit=memory_limit,
        ),
        max_batches=max_batches,
        reduce=reduce,
        progress=progress,
    )


def look_at(
    model: nn.Module,
    loader: Iterable[Any] | torch.utils.data.Dataset[Any],
    reader: BatchReader,
    options: Options,
    *,
    max_batches: int | None = None,
    reduce: bool | ProcessGroup | None = None,
    progress: bool = False,
) -> CollapseReport:
    """:func:`measure_model` with a reader of batches; adapters bring their own."""
    check_model(model)
    run = Run(model, loader, reader, max_batches=max_batches, progress=progress)
    team, shares = team_of(reduce, run.loader), Shares(run.loader)
    measurement = Measurement(model, options, team=team, shares=shares, custom=reader.custom, repeatable=run.repeatable)
    with run.looking(measurement.remove):
        with team.failing_together():
            for found, again in run.batches(measurement.start):
                measurement.take(found, again)
        again_here = measurement.finish() and run.repeatable
        with team.failing_together():
            for found, _ in run.batches(measurement.start) if again_here else ():
                measurement.take_again(found)
    report = measurement.report()
    return replace(report, notes=(*report.notes, *reader.notes, *run.notes))


def measure_layers(
    model: nn.Module,
    loader: Iterable[Any] | torch.utils.data.Dataset[Any],
    layers: Sequence[str] | None = None,
    num_classes: int | None = None,
    *,
    pool: str = "flatten",
    forward: Forward | None = None,
    labels: LabelsOf | None = None,
    class_names: Sequence[str] | None = None,
    metrics: str | Sequence[str] | None = None,
    passes: int | None = None,
    global_mean: str = "samples",
    present_only: bool = False,
    min_samples: int = 1,
    ignore_label: Ignored = IGNORED,
    max_batches: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: bool = False,
) -> dict[str, CollapseReport]:
    """Measure the outputs of several layers in the same run: reports by layer name.

    ``layers`` are names of modules as in ``model.named_modules()``, by default the model's children. ``pool``
    says what becomes of an output with positions (of a convolution, or the tokens of a sequence): ``"flatten"``
    keeps every entry, ``"average"`` averages over the positions, never over channels; outputs whose labels have
    one entry a position are not pooled. The other arguments are those of :func:`measure_model`; ``memory_limit``
    is shared by the layers.
    """
    check_model(model)
    if pool not in ("flatten", "average"):
        raise ValueError(f"pool must be 'flatten' or 'average', got {pool!r}")
    inner = unwrapped(model)
    if layers is None:
        layers = [name for name, _ in inner.named_children()]
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise ValueError(f"layers must be a list of names of the model's layers, got {layers!r}")
    modules = {name: module_of(inner, name) for name in layers}
    share = integer("memory_limit", memory_limit, minimum=0) // len(modules)
    options = Options(
        num_classes=num_classes,
        class_names=class_names,
        metrics=metrics,
        passes=passes,
        global_mean=global_mean,
        ignore_label=ignore_label,
        present_only=present_only,
        min_samples=min_samples,
        memory_limit=share,
    )
    settings, targets = options.settings(), options.targets()
    run = Run(model, loader, BatchReader(forward, labels), max_batches=max_batches, progress=progress)
    watch = LayersWatch(inner, modules)
    recorders = {name: Recorder(settings, num_classes, None, None) for name in modules}
    rows = _Rows(targets, pool, num_classes)
    with run.looking(watch.remove):
        seen = False
        for found, again in run.batches(watch.start):
            caught = {name: watch.features(name) for name in modules}
            if not seen and not run.reader.custom:
                rows.look(inner, found, again, caught)
            seen = True
            for name, recorder in recorders.items():
                recorder.add(*rows.of(caught[name], found, name), watch.precision(name))
        if not seen:
            raise ValueError("loader holds no batches")
        repeated = [name for name, recorder in recorders.items() if recorder.finish_first_pass()]
        if repeated and run.repeatable:
            for found, _ in run.batches(watch.start):
                for name in repeated:
                    recorders[name].add_again(*rows.of(watch.features(name), found, name))
    notes = (*targets.notes, *rows.notes, *run.reader.notes, *run.notes)
    team = team_of(False, None)
    reports = {name: options.named(recorder.report()) for name, recorder in recorders.items()}
    extra = notes if team.note is None else (*notes, team.note)
    return {name: replace(report, layer=name, notes=(*report.notes, *extra)) for name, report in reports.items()}


class _Rows:
    """Features (n, d) and labels (n,) of a layer's output with channels last."""

    def __init__(self, targets: Targets, pool: str, num_classes: int | None):
        self._targets, self._pool, self._num_classes = targets, pool, num_classes
        self._shift = False
        self.notes: list[str] = []

    def look(self, model: nn.Module, labels: Any, again: Any, caught: dict[str, Tensor]) -> None:
        """In the first batch: whether the model's loss shifts the labels."""
        raw = self._targets.tensor(labels)
        tokens = raw.ndim == 2 and raw.shape[1] > 1 and any(x.shape[:-1] == raw.shape for x in caught.values())
        if tokens and not raw.is_floating_point() and shifts_labels(model, again, raw, self._targets.ignored):
            self._shift = True
            self.notes.append(SHIFTED)

    def of(self, features: Tensor, labels: Any, name: str) -> tuple[Tensor, Tensor]:
        """The rows of one batch."""
        raw = self._targets.tensor(labels)
        if raw.ndim == 2 and raw.shape[1] == 1:
            raw = raw.squeeze(1)
        soft = raw.is_floating_point() and raw.ndim == 2 and raw.shape[0] == features.shape[0]
        raw = self._targets.integers(raw, raw.shape[:1] if soft else raw.shape, raw.shape[-1] if soft else None)
        if features.ndim > 2 and raw.ndim == 1:
            positions = features.flatten(1, -2)
            features = positions.mean(1) if self._pool == "average" else features.flatten(1)
        if features.shape[:-1] != raw.shape:
            raise ValueError(
                f"the output of layer {name!r} has shape {tuple(features.shape)} with its channels last, "
                f"the labels {tuple(raw.shape)}: they must agree in all but the last dimension; "
                "forward= may return labels to suit"
            )
        if self._shift:
            features, raw = features[:, :-1], raw[:, 1:]
        flat = self._targets.checked(raw.reshape(-1), self._num_classes)
        return features.reshape(-1, features.shape[-1]), flat
