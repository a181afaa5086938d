"""``load``: a data set by name, cut, relabelled and normalised as asked."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from .._support.checks import describe, flag, integer, real
from .._support.fields.plan import RandomLabels
from ._cache import Tensors, as_tensors, cached
from ._errors import DataError
from ._sources import Source, sources
from ._split import Normalisation, Split, measure_normalisation
from .imbalance import imbalanced_subset
from .subsets import balanced_subset, hold_out
from .subsets import random_labels as draw_labels

__all__ = ["DataSet", "RandomLabels", "load", "root_folder"]

VARIABLE = "NEURALCOLLAPSE_DATA"


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training, validation (or ``None``) and test splits, normalised alike, with the classes' names."""

    name: str
    train: Split
    validation: Split | None
    test: Split
    classes: tuple[str, ...]
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        splits = (("train", self.train), ("validation", self.validation), ("test", self.test))
        sizes = ", ".join(f"{name} {len(split)}" for name, split in splits if split is not None)
        channels, height, width = self.image_shape
        return f"DataSet({self.name!r}, {sizes}, {self.num_classes} classes, {channels} x {height} x {width})"

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return len(self.classes)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.train.image_shape


def load(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    per_class: int | None = None,
    test_per_class: int | None = None,
    validation: float = 0.0,
    imbalance: str | None = None,
    random_labels: RandomLabels = False,
    seed: int = 0,
    cache: bool = True,
) -> DataSet:
    """The data set called ``name``, such as ``"digits"``, ``"cifar10"`` or ``"synthetic:num_classes=4,dim=8"``.

    ``root`` is the folder that holds the files (default: the variable NEURALCOLLAPSE_DATA); embedded sets
    need none. In this order: ``per_class`` (and ``test_per_class``) keep a balanced subset, ``random_labels``
    gives the training images labels at random (``True``: of equal class sizes; ``"independent"``: each drawn by
    itself), ``validation`` holds out this fraction of the training set, ``imbalance`` thins the classes out by a
    profile such as ``"exponential:ratio=100"``. Each is drawn once, from ``seed``. The normalisation is measured on
    what is left of the training set, and used for all splits.

    >>> data = load("digits", per_class=20)
    >>> len(data.train), data.image_shape, data.num_classes
    (200, (1, 8, 8), 10)
    """
    key, arguments = sources.parse(name)
    source = sources[key](**arguments)
    held = real("validation", validation, minimum=0.0, below=1.0)
    if not isinstance(random_labels, bool) and random_labels != "independent":
        raise TypeError(f"random_labels must be True, False or 'independent', got {describe(random_labels)}")
    if random_labels and imbalance is not None:
        raise ValueError("imbalance and random_labels exclude each other: give one of them")
    tensors, facts = _read_source(key, source, root, flag("cache", cache))
    train = _whole(tensors.train_images, tensors.train_labels, len(tensors.classes))
    test = _whole(tensors.test_images, tensors.test_labels, len(tensors.classes))
    if per_class is not None:
        train = balanced_subset(train, integer("per_class", per_class, minimum=1), seed)
    if test_per_class is not None:
        test = balanced_subset(test, integer("test_per_class", test_per_class, minimum=1), seed)
    if random_labels:
        train = draw_labels(train, seed, balanced=random_labels != "independent")
    kept = None
    if held > 0:
        train, kept = hold_out(train, held, seed)
    if imbalance is not None:
        train = imbalanced_subset(train, imbalance, seed)
    normalisation = measure_normalisation(train.images, train.index)
    return DataSet(
        name=name,
        train=replace(train, normalisation=normalisation),
        validation=None if kept is None else replace(kept, normalisation=normalisation),
        test=replace(test, normalisation=normalisation),
        classes=tensors.classes,
        facts=facts,
    )


def root_folder(root: str | os.PathLike[str] | None) -> Path | None:
    """``root``, or what the environment says, or ``None``."""
    given = root if root is not None else os.environ.get(VARIABLE)
    return Path(given) if given else None


def _read_source(
    key: str, source: Source, root: str | os.PathLike[str] | None, cache: bool
) -> tuple[Tensors, dict[str, Any]]:
    if source.embedded:
        arrays = source.read(Path())
        return as_tensors(arrays, "embedded"), {**arrays.facts, "origin": "embedded"}
    folder = root_folder(root)
    if folder is None:
        raise DataError(f"{key} is not embedded: say where it is (root, --root or the variable {VARIABLE})")
    if source.locate(folder) is None:
        way = source.unfetchable or f"'neuralcollapse data get {key} --root {folder}' fetches it"
        raise DataError(f"{key} is not in {folder}: {way}")
    tensors = cached(key, source, folder) if cache else as_tensors(source.read(folder), "files")
    return tensors, {"origin": tensors.origin}


def _whole(images: torch.Tensor, labels: torch.Tensor, num_classes: int) -> Split:
    unchanged = Normalisation(torch.zeros(images.shape[1]), torch.ones(images.shape[1]))
    return Split(images, torch.arange(len(labels)), labels, num_classes, unchanged)
