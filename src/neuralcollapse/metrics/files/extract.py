"""``extract``: features and labels of a model to files, for measuring later or elsewhere."""

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ..._support.checks import describe, integer
from ..._support.files import JSONObject, locked, sealed, unsealed, write_json
from ..._support.tensors import read_tensors, write_tensors
from ..hooks.batches import Batch, Batches, BatchReader, Forward, LabelsOf
from ..hooks.run import BATCH, ModelRun, check_model
from ..hooks.targets import Ignored
from ..inputs import IGNORED, length_of
from ..measurement import Measurement, Options, SharedHead
from ..precision import coarser
from ..recorder import left_in

__all__ = ["extract"]

MANIFEST = "extract.json"
CLASSIFIER = "classifier.safetensors"
FORMAT = "neuralcollapse.extract/1"
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


@dataclass
class LaterBatches:
    """The batches of a loader from a number on; those before are drawn and dropped."""

    loader: Iterable[Batch]
    start: int

    def __iter__(self) -> Iterator[Batch]:
        return islice(iter(self.loader), self.start, None)

    def __len__(self) -> int:
        length = length_of(self.loader)
        if length is None:
            raise TypeError("the loader has no length")
        return max(0, length - self.start)


def extract(
    model: nn.Module,
    loader: Batches,
    out: str | os.PathLike[str],
    layer: str | None = None,
    num_classes: int | None = None,
    *,
    forward: Forward | None = None,
    labels: LabelsOf | None = None,
    class_names: Sequence[str] | None = None,
    ignore_label: Ignored = IGNORED,
    dtype: torch.dtype | None = None,
    shard_bytes: int = 1 << 28,
    progress: bool = False,
) -> list[Path]:
    """Write the features that ``model`` makes of ``loader``, and their labels, to shards in the folder ``out``.

    ``shard-00000.safetensors`` and so on hold ``features`` (n, d) and ``labels`` (n,), ``classifier.safetensors``
    the classifier's ``weight`` and ``bias``: ``nc.measure_files(out)`` measures them. Every file is written whole or
    not at all. A call that was interrupted is made again with the same arguments and goes on after the last shard;
    the loader must then give the same batches in the same order (no shuffling). Shards have checksums: from the first
    one that is lost or damaged on they are made again, with a warning. Another process that writes there is refused.

    Args:
        model: any module; it runs in evaluation mode without gradients and is left as it was.
        loader: batches as in :func:`measure_model`, or a ``Dataset``.
        out: the folder; it is made where it is missing.
        layer: the classifier's name; by default the layer whose output is the model's output.
        num_classes: K; by default the number of the classifier's outputs.
        forward: a function ``(model, batch)`` that runs the model and returns the labels.
        labels: where the labels of a batch are: a key, a position, or a function of the batch.
        class_names: the names of the classes, for labels that are strings.
        ignore_label: the label of samples, tokens or positions to leave out.
        dtype: the precision of the stored features; by default the model's own.
        shard_bytes: bytes of features after which a shard is closed.
        progress: show a progress bar.

    Returns:
        The shards, in order.

    """
    check_model(model)
    size = integer("shard_bytes", shard_bytes, minimum=1)
    if dtype is not None and dtype not in DTYPES.values():
        raise TypeError(f"dtype must be one of {', '.join(DTYPES)}, got {describe(dtype)}")
    folder = Path(out)
    if isinstance(loader, Dataset):
        loader = DataLoader(loader, batch_size=BATCH)
    reader = BatchReader(forward, labels)
    options = Options(layer=layer, num_classes=num_classes, class_names=class_names, ignore_label=ignore_label)
    with locked(folder):
        manifest = ExtractManifest.open(folder, {"layer": layer, "dtype": None if dtype is None else str(dtype)})
        if not manifest.finished:
            _write_shards(model, loader, reader, options, manifest, size, dtype, progress)
    return manifest.files


def _write_shards(
    model: nn.Module,
    loader: Iterable[Batch],
    reader: BatchReader,
    options: Options,
    manifest: "ExtractManifest",
    size: int,
    dtype: torch.dtype | None,
    progress: bool,
) -> None:
    """The shards that are missing."""
    run = ModelRun(model, LaterBatches(loader, manifest.batches), reader, progress=progress)
    measurement = Measurement(model, options, custom=reader.custom, repeatable=run.repeatable)
    writer = ShardWriter(manifest, size)
    with run.looking(measurement.remove):
        for found, again in run.batches(measurement.start):
            writer.count()
            rows = measurement.rows(found, again)
            if rows is None:
                continue
            if not manifest.has_classifier:
                manifest.keep_classifier(measurement.head(rows[0].shape[1]))
            features, targets = left_in(*rows, options.settings.ignore_label)
            writer.add(features.to("cpu", dtype), targets.to("cpu"), measurement.precision)
    writer.close()


class ShardWriter:
    """Collects batches into shards, which end where a batch does."""

    def __init__(self, manifest: "ExtractManifest", size: int):
        self._manifest, self._size = manifest, size
        self._features: list[Tensor] = []
        self._labels: list[Tensor] = []
        self._bytes = self._batches = 0
        self._precision = torch.float64

    def count(self) -> None:
        """A batch of the loader begins, with or without samples."""
        self._batches += 1

    def add(self, features: Tensor, labels: Tensor, precision: torch.dtype) -> None:
        """Take its samples; ``precision`` is the coarsest dtype that their features had."""
        self._precision = coarser(self._precision, precision, features.dtype)
        if features.shape[0]:
            self._features.append(features.clone())
            self._labels.append(labels.clone())
            self._bytes += features.nbytes
        if self._bytes >= self._size:
            self._flush()

    def close(self) -> None:
        """Write what is left and mark the folder as finished."""
        self._flush()
        if not self._manifest.files:
            raise ValueError("loader holds no batches")
        self._manifest.finish()

    def _flush(self) -> None:
        if self._features:
            self._manifest.add(torch.cat(self._features), torch.cat(self._labels), self._batches, self._precision)
            self._features, self._labels, self._bytes, self._batches = [], [], 0, 0


class ExtractManifest:
    """``extract.json``: which shards there are, and how many batches are in them."""

    def __init__(self, folder: Path, settings: dict[str, str | None], content: JSONObject):
        self._folder, self._settings, self._content = folder, settings, content

    @classmethod
    def open(cls, folder: Path, settings: dict[str, str | None]) -> "ExtractManifest":
        """The manifest of a folder, or a fresh one; a folder of other settings is refused."""
        file = folder / MANIFEST
        if not file.exists():
            if any(not file.name.startswith(".") for file in folder.iterdir()):
                raise ValueError(f"{folder} is not empty and holds no {MANIFEST}: choose another folder")
            return cls(folder, settings, {"format": FORMAT, **settings, "finished": False, "shards": []})
        try:
            content = unsealed(json.loads(file.read_text(encoding="utf-8")), always=True)
            known = content["format"] == FORMAT and isinstance(content["finished"], bool)
            names = [str(shard["file"]) for shard in content["shards"]]
            sum(int(shard["batches"]) for shard in content["shards"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{file} is damaged: choose another folder") from error
        if not known:
            raise ValueError(f"{file} is of another format: choose another folder")
        for name, value in settings.items():
            if content.get(name) != value:
                raise ValueError(f"{folder} holds features of {name} = {content.get(name)}, not {value}")
        _drop_damaged(folder, content, names)
        return cls(folder, settings, content)

    @property
    def finished(self) -> bool:
        """Whether the loader came to its end."""
        return self._content["finished"]

    @property
    def batches(self) -> int:
        """Batches that are in the shards."""
        return sum(shard["batches"] for shard in self._content["shards"])

    @property
    def files(self) -> list[Path]:
        """The shards."""
        return [self._folder / shard["file"] for shard in self._content["shards"]]

    @property
    def has_classifier(self) -> bool:
        """Whether the classifier was looked at."""
        return "classifier" in self._content

    def keep_classifier(self, head: SharedHead) -> None:
        """Write the classifier's weight and bias, if it has a weight."""
        self._write()
        self._content |= {"classifier": head.name, "weight": head.weight is not None}
        if head.weight is not None:
            tensors = {"weight": head.weight} | ({} if head.bias is None else {"bias": head.bias})
            write_tensors(self._folder / CLASSIFIER, tensors)

    def add(self, features: Tensor, labels: Tensor, batches: int, precision: torch.dtype) -> None:
        """Write a shard, with the rounding that its features carry, then say so."""
        name = f"shard-{len(self._content['shards']):05d}.safetensors"
        metadata = {"precision": str(precision).removeprefix("torch.")}
        write_tensors(self._folder / name, {"features": features, "labels": labels}, metadata)
        self._content["shards"].append({"file": name, "rows": features.shape[0], "batches": batches})
        self._write()

    def finish(self) -> None:
        """Mark the folder as complete."""
        self._content["finished"] = True
        self._write()

    def _write(self) -> None:
        write_json(self._folder / MANIFEST, sealed(self._content))


def _drop_damaged(folder: Path, content: JSONObject, names: Sequence[str]) -> None:
    """Forget the shards from the first damaged one on; all of them where the classifier is: it comes from a batch."""
    files = [folder / name for name in names]
    if content.get("weight") and not _is_whole(folder / CLASSIFIER):
        del content["classifier"], content["weight"]
        content |= {"finished": False, "shards": []}
        return
    for number, file in enumerate(files):
        if not _is_whole(file):
            content |= {"finished": False, "shards": content["shards"][:number]}
            return


def _is_whole(file: Path) -> bool:
    try:
        read_tensors(file, always=True)
    except ValueError as error:
        warnings.warn(f"{error}; it is made again", stacklevel=4)
        return False
    return True
