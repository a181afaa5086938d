"""``measure_model``: neural collapse of a network as it is, from a loader.

The classifier's input is caught by a hook while the model runs in evaluation mode. Features stay in memory
while they fit, so that the model sees the data once; beyond that they stream into class statistics, and a
second run is made only for metrics that need one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

import torch
from torch import nn

from .._support.checks import describe, integer
from .hooks.batches import Batches, BatchReader, Forward, LabelsOf
from .hooks.heads import module_of, unwrapped
from .hooks.run import ModelRun, check_model
from .hooks.targets import Ignored
from .inputs import IGNORED
from .measurement import LayersMeasurement, Measurement, Options
from .processes import MeasuringTeam, Reduce, Shares, team_of
from .report.report import CollapseReport
from .settings import MEMORY_LIMIT, GlobalMean, Metrics

__all__ = ["look_at", "measure_layers", "measure_model", "run_passes"]


class LayerOptions(TypedDict, total=False):
    """What :func:`measure_layers` takes besides, as :func:`measure_model` does."""

    class_names: Sequence[str] | None
    metrics: Metrics
    passes: int | None
    global_mean: GlobalMean
    present_only: bool
    min_samples: int
    ignore_label: Ignored
    precision: torch.dtype | None
    intervals: float | None
    groups: int


def measure_model(
    model: nn.Module,
    loader: Batches,
    layer: str | None = None,
    num_classes: int | None = None,
    *,
    forward: Forward | None = None,
    labels: LabelsOf | None = None,
    class_names: Sequence[str] | None = None,
    metrics: Metrics = None,
    passes: int | None = None,
    global_mean: GlobalMean = "samples",
    present_only: bool = False,
    min_samples: int = 1,
    ignore_label: Ignored = IGNORED,
    max_batches: int | None = None,
    reduce: Reduce = None,
    memory_limit: int = MEMORY_LIMIT,
    precision: torch.dtype | None = None,
    intervals: float | None = None,
    groups: int = 20,
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
        precision: the dtype whose rounding the features carry, where that is coarser than every dtype that the model's
            layers pass on (see :func:`measure`); those, and autocast, are seen.
        intervals: the level of confidence intervals, such as 0.95, see :func:`measure`.
        groups: groups of their jackknife.
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
            precision=precision,
            intervals=intervals,
            groups=groups,
        ),
        max_batches=max_batches,
        reduce=reduce,
        progress=progress,
    )


def look_at(
    model: nn.Module,
    loader: Batches,
    reader: BatchReader,
    options: Options,
    *,
    max_batches: int | None = None,
    reduce: Reduce = None,
    progress: bool = False,
) -> CollapseReport:
    """:func:`measure_model` with a reader of batches; adapters bring their own."""
    check_model(model)
    run = ModelRun(model, loader, reader, max_batches=max_batches, progress=progress)
    team, shares = team_of(reduce, run.loader), Shares(run.loader)
    measurement = Measurement(model, options, team=team, shares=shares, custom=reader.custom, repeatable=run.repeatable)
    run_passes(run, team, measurement)
    report = measurement.report()
    return replace(report, notes=(*report.notes, *reader.notes, *run.notes))


def measure_layers(
    model: nn.Module,
    loader: Batches,
    layers: Sequence[str] | None = None,
    num_classes: int | None = None,
    *,
    pool: str = "flatten",
    forward: Forward | None = None,
    labels: LabelsOf | None = None,
    max_batches: int | None = None,
    reduce: Reduce = None,
    memory_limit: int = MEMORY_LIMIT,
    progress: bool = False,
    **options: Unpack[LayerOptions],
) -> dict[str, CollapseReport]:
    """Measure the outputs of several layers in the same run: reports by layer name.

    The arguments that are not listed are those of :func:`measure_model` (all but ``layer``).

    Args:
        model: as in :func:`measure_model`.
        loader: as in :func:`measure_model`.
        layers: names of modules as in ``model.named_modules()``, by default the model's children.
        num_classes: K; by default the highest label and one. Over several processes (``reduce``) it must be given.
        pool: what becomes of an output with positions (of a convolution, or the tokens of a sequence): ``"flatten"``
            keeps every entry, ``"average"`` averages over the positions, never over channels; outputs whose labels have
            one entry a position are not pooled.
        forward: as in :func:`measure_model`.
        labels: as in :func:`measure_model`.
        max_batches: as in :func:`measure_model`.
        reduce: as in :func:`measure_model`.
        memory_limit: bytes of features to keep, shared by the layers.
        progress: show a progress bar.
        **options: further arguments of :func:`measure_model`.

    """
    check_model(model)
    unknown = set(options) - LayerOptions.__optional_keys__
    if unknown:
        raise TypeError(f"measure_layers() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    if pool not in ("flatten", "average"):
        raise ValueError(f"pool must be 'flatten' or 'average', got {describe(pool)}")
    inner = unwrapped(model)
    if layers is None:
        layers = [name for name, _ in inner.named_children()]
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise ValueError(f"layers must be a list of names of the model's layers, got {describe(layers)}")
    modules = {name: module_of(inner, name) for name in layers}
    share = integer("memory_limit", memory_limit, minimum=0) // len(modules)
    chosen = Options(num_classes=num_classes, memory_limit=share, **options)
    run = ModelRun(model, loader, BatchReader(forward, labels), max_batches=max_batches, progress=progress)
    team, shares = team_of(reduce, run.loader), Shares(run.loader)
    measurement = LayersMeasurement(inner, modules, pool, chosen, team, shares, run)
    run_passes(run, team, measurement)
    notes = (*run.reader.notes, *run.notes)
    reports = measurement.reports()
    return {name: replace(report, notes=(*report.notes, *notes)) for name, report in reports.items()}


def run_passes(run: ModelRun, team: MeasuringTeam, measurement: Measurement | LayersMeasurement) -> None:
    """Take every batch, and once more where something is left to see and the loader can be run again."""
    with run.looking(measurement.remove):
        with team.failing_together():
            for found, again in run.batches(measurement.start):
                measurement.take(found, again)
        again_here = measurement.finish() and run.repeatable
        with team.failing_together():
            for found, _ in run.batches(measurement.start) if again_here else ():
                measurement.take_again(found)
