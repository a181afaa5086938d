"""Where the network on the page comes from: files of features, a run directory, a model and a loader, or a sample."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..._support.files import JSONObject
from ...data import load
from ...metrics import CollapseReport, measure_files, measure_layers, open_arrays
from ...metrics.files.arrays import Array
from ...metrics.files.measure import measure_shard
from ...metrics.files.shards import ROLES, Shard, all_label_names, collect, encode, find_files, layers_in
from ...metrics.hooks.batches import Batches, BatchReader, Forward, LabelsOf
from ...metrics.hooks.heads import unwrapped
from ...metrics.hooks.run import ModelRun, check_model
from ...metrics.measurement import Measurement, Options
from ...metrics.model import run_passes
from ...metrics.processes import MeasuringTeam
from ...metrics.recorder import left_in
from ...metrics.settings import Settings
from ...models import create
from ...training import Run
from ...training.run import net_of
from .picture import describe_network

__all__ = ["Network", "digits_sample", "network_of_files", "network_of_model", "network_of_run"]

LEVEL = 0.95
"""Of the intervals on the gauges."""
MEMORY = 1 << 28
"""Bytes for the scatter matrices of files, and of features of a model that are looked at."""
PICTURE_ROWS = 20_000
"""Samples that pictures of files are made from."""
LAYER_METRICS = ("nc1", "nc1_quotient")

NetworkFrame = JSONObject


@dataclass(frozen=True)
class Network:
    """A network over time: states with their pictures, and rows of a history (epoch, split, metrics) if any."""

    title: str
    frames: tuple[NetworkFrame, ...]
    history: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> JSONObject:
        """Plain values for JSON."""
        return {"title": self.title, "frames": list(self.frames), "history": [dict(row) for row in self.history]}


def frame(name: str, step: float | None, network: JSONObject) -> NetworkFrame:
    """One state: what it is called, where it stands in time, and what :func:`describe_network` says."""
    return {"name": name, "step": step, "network": network}


# files ---------------------------------------------------------------------------------------------------------------


def network_of_files(paths: Sequence[str | Path], title: str | None = None) -> Network:
    """Features and labels in files of any kind that :func:`neuralcollapse.measure_files` takes, measured together."""
    files = find_files(list(paths))
    name = title or (files[0].name if len(files) == 1 else f"{len(files)} files")
    layers = layers_in(files[0]) if len(files) == 1 else {}
    if layers:
        return Network(name, (frame("", None, _network_of_layers(files[0], layers)),))
    found = collect(files)
    report = measure_files(list(files), intervals=None if found.statistics else LEVEL, memory_limit=MEMORY, workers=1)
    features, labels, notes = _rows_for_pictures(found.shards, report) if found.shards else (None, None, [])
    weight = found.array("weight")
    notes = [*_unread(files), *notes]
    network = describe_network(report, features, labels, None if weight is None else _as_tensor(weight), notes=notes)
    return Network(name, (frame("", None, network),))


def _unread(files: Sequence[Path]) -> Iterable[str]:
    known = {name for names in ROLES.values() for name in names} | {"array"}
    for file in files:
        extra = sorted(set(open_arrays(file).keys()) - known)
        if extra and file.suffix.lower() in (".npz", ".safetensors", ".pt", ".pth"):
            yield f"not read: {', '.join(extra)}"


def _rows_for_pictures(shards: Sequence[Shard], report: CollapseReport) -> tuple[Tensor, Tensor, list[str]]:
    """Rows of all shards for pictures, spread evenly, with labels as the report counts its classes; what to note."""
    names = all_label_names(shards)
    parts: list[tuple[Tensor, Tensor]] = []
    each = max(1, PICTURE_ROWS // len(shards))
    cut = False
    for shard in shards:
        features, labels = shard.read()
        codes = encode(labels, names)
        step = -(-codes.shape[0] // each)
        cut |= step > 1
        rows = torch.arange(0, codes.shape[0], max(1, step))
        picked = features[rows] if isinstance(features, Tensor) else features[rows.numpy()]
        parts.append((_as_tensor(picked), codes[rows]))
    features = torch.cat([rows.double() for rows, _ in parts])
    labels = torch.cat([codes for _, codes in parts])
    kept = (labels >= 0) & (labels < report.num_classes)
    notes = [f"pictures show {features.shape[0]} of the samples, spread evenly"] if cut else []
    return features[kept], labels[kept], notes


def _as_tensor(values: Array) -> Tensor:
    # A copy in this machine's order of bytes: arrays that are mapped from a file cannot be written to.
    return values if isinstance(values, Tensor) else torch.from_numpy(values.astype(values.dtype.newbyteorder("=")))


def _network_of_layers(file: Path, shards: Mapping[str, Shard]) -> JSONObject:
    """A file of ``features.NAME`` arrays, one a layer: the last one in full, all of them layer by layer."""
    layers = {name: measure_shard(shard, None, None, Settings(LAYER_METRICS)) for name, shard in shards.items()}
    arrays, (last, shard) = open_arrays(file), list(shards.items())[-1]
    weight, bias = arrays.get("weight"), arrays.get("bias")
    settings = Settings("core", intervals=LEVEL, memory_limit=MEMORY)
    report = measure_shard(shard, weight, bias, settings)
    rows, codes, notes = _rows_for_pictures([shard], report)
    report = replace(report, layer=last)
    classifier = None if weight is None else _as_tensor(weight)
    return describe_network(report, rows, codes, classifier, layers=layers, notes=notes)


# models --------------------------------------------------------------------------------------------------------------


def network_of_model(
    model: nn.Module,
    loader: Batches,
    *,
    layer: str | None = None,
    num_classes: int | None = None,
    forward: Forward | None = None,
    labels: LabelsOf | None = None,
    class_names: Sequence[str] | None = None,
    max_batches: int | None = None,
    layers: bool | Sequence[str] = True,
) -> tuple[CollapseReport, JSONObject]:
    """The report of a model on a loader, with intervals, and what the page shows of it.

    The report is that of :func:`neuralcollapse.measure_model`; the run over the loader ends with the batch whose
    features fill :data:`MEMORY`. The model and every random state are left as they were found. ``layers``: the layers
    to look at besides the classifier's input, by default the model's children, for the picture from layer to layer.
    """
    check_model(model)
    reader = BatchReader(forward, labels)
    options = Options(layer=layer, num_classes=num_classes, class_names=class_names, intervals=LEVEL)
    run = ModelRun(model, loader, reader, max_batches=max_batches)
    parts: list[tuple[Tensor, Tensor]] = []

    def keep(features: Tensor, targets: Tensor) -> None:
        rows, codes = left_in(features, targets, options.settings.ignore_label)
        # A copy, because what a hook caught may be written to by what follows.
        parts.append((rows.detach().to("cpu", copy=True), codes.to("cpu")))
        if sum(part.nbytes for part, _ in parts) > MEMORY:
            run.end(f"their features take {MEMORY >> 20} MB")

    measurement = Measurement(model, options, custom=reader.custom, repeatable=run.repeatable, shown=keep)
    run_passes(run, MeasuringTeam(), measurement)
    report = measurement.report()
    report = replace(report, notes=(*report.notes, *reader.notes, *run.notes))
    reports: Mapping[str, CollapseReport] = {}
    if layers is not False:
        names = None if layers is True else list(layers)
        reports, reason = _by_layer(model, loader, names, num_classes, forward, labels, class_names, run.limit)
        if reason:
            report = replace(report, notes=(*report.notes, reason))
    features, targets = torch.cat([rows for rows, _ in parts]), torch.cat([codes for _, codes in parts])
    return report, describe_network(report, features, targets, measurement.weight, layers=reports)


def _by_layer(
    model: nn.Module,
    loader: Batches,
    names: Sequence[str] | None,
    num_classes: int | None,
    forward: Forward | None,
    labels: LabelsOf | None,
    class_names: Sequence[str] | None,
    max_batches: int | None,
) -> tuple[Mapping[str, CollapseReport], str]:
    """Reports by layer; an empty answer and the reason where layers that nobody named cannot be measured."""
    chosen = names if names is not None else _usual_layers(unwrapped(model))
    if not chosen:
        return {}, ""
    try:
        return measure_layers(
            model, loader, chosen, num_classes, pool="average", forward=forward, labels=labels,
            class_names=class_names, metrics=LAYER_METRICS, max_batches=max_batches,
        ), ""  # fmt: skip
    except ValueError as error:
        if names is not None:
            raise
        return {}, f"no picture from layer to layer: {error}"


def _usual_layers(model: nn.Module) -> list[str]:
    """The model's children with weights; where these are two at most, the children of the first of them.

    An encoder and a head, as most models are, would make a picture of two points.
    """
    children = [name for name, child in model.named_children() if any(True for _ in child.parameters())]
    if len(children) > 2 or not children:
        return children
    inner = dict(model.named_children())[children[0]]
    nested = [f"{children[0]}.{name}" for name in _usual_layers(inner)]
    return [*(nested or children[:1]), *children[1:]]


# runs ----------------------------------------------------------------------------------------------------------------


def network_of_run(folder: str | Path, root: str | Path | None = None) -> Network:
    """A run directory of ``neuralcollapse train``: the net as it began, as it ended, and what was measured between."""
    run = Run.open(folder)
    plan, history = run.plan, tuple(run.history)
    data = load(
        plan.data, root, per_class=plan.per_class, test_per_class=plan.test_per_class, validation=plan.validation,
        imbalance=plan.imbalance, random_labels=plan.random_labels, seed=plan.seed,
    )  # fmt: skip
    nets: list[tuple[str, float, nn.Module]] = [
        ("before training", 0, net_of(plan, data.image_shape, data.num_classes).eval())
    ]
    if (run.folder / "model.safetensors").is_file():
        last = max((row["epoch"] for row in history), default=plan.epochs)
        nets.append((f"after epoch {last}", last, run.model()))
    frames = tuple(
        frame(name, step, network_of_model(net, data.train.loader(), class_names=data.classes)[1])
        for name, step, net in nets
    )
    return Network(Path(folder).name or str(folder), frames, history)


SAMPLE_EPOCHS = (0, 1, 2, 5, 10, 20, 50, 100, 200)


@cache
def _sample_text() -> str:
    """A small perceptron on 500 of the embedded digits, measured on its way; the same on every machine of a kind."""
    data = load("digits", per_class=50)
    images, labels = data.train.batch(torch.arange(len(data.train)))
    model = create("mlp:width=64,depth=3", data.image_shape, data.num_classes, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-3)
    slowing = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, SAMPLE_EPOCHS[-1])
    order = torch.Generator().manual_seed(0)
    frames = []
    for epoch in range(SAMPLE_EPOCHS[-1] + 1):
        if epoch in SAMPLE_EPOCHS:
            network = network_of_model(model, data.train.loader(), class_names=data.classes)[1]
            frames.append(frame("before training" if epoch == 0 else f"after epoch {epoch}", epoch, network))
        if epoch == SAMPLE_EPOCHS[-1]:
            break
        model.train()
        for positions in torch.randperm(len(labels), generator=order).split(100):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images[positions]), labels[positions]).backward()
            optimizer.step()
        slowing.step()
    title = "Sample: a small net on 500 handwritten digits, before and after training"
    return json.dumps(Network(title, tuple(frames)).to_dict())


def digits_sample() -> JSONObject:
    """The sample of the page, trained when it is first asked for (a few seconds)."""
    return json.loads(_sample_text())
