"""Stored features: which files hold them, under which names, and their labels as integers."""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ..._support.checks import describe
from ..accumulators.statistics import holds_statistics
from .arrays import SUFFIXES, Array, open_arrays

__all__ = [
    "ROLES",
    "Collection",
    "Shard",
    "all_label_names",
    "collect",
    "encode",
    "find_files",
    "label_names",
    "layers_in",
    "named_errors",
]

ROLES = {
    "features": ("features", "X", "x", "embeddings", "embedding", "feature"),
    "labels": ("labels", "y", "targets", "target", "label"),
    "weight": ("weight", "W"),
    "bias": ("bias", "b"),
    "out_of_distribution": ("out_of_distribution",),
}
POSITIONS = ("features", "labels", "weight", "bias")
"""What ``.npy`` files are whose names do not say."""
LAYER = "features."
"""What the names of arrays begin with that are features of a layer each."""

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Shard:
    """Features and labels: a file and the name of an array in it, each."""

    features: tuple[Path, str]
    labels: tuple[Path, str]

    @property
    def name(self) -> str:
        """The file of the features."""
        return str(self.features[0])

    def read(self) -> tuple[Array, Array]:
        """Both arrays, mapped where their file allows it."""
        return open_arrays(self.features[0])[self.features[1]], self.read_labels()

    def precision(self) -> torch.dtype | None:
        """The dtype whose rounding the features carry, where their file says so."""
        return open_arrays(self.features[0]).precision

    def read_labels(self) -> Array:
        """The labels alone."""
        return open_arrays(self.labels[0])[self.labels[1]]


@dataclass(frozen=True)
class Collection:
    """What a list of files holds together."""

    shards: tuple[Shard, ...] = ()
    statistics: tuple[Path, ...] = ()
    others: dict[str, tuple[Path, str]] = field(default_factory=dict)
    """Where ``weight``, ``bias`` and ``out_of_distribution`` are."""

    def array(self, role: str) -> Array | None:
        """The array of that role, if there is one."""
        place = self.others.get(role)
        return None if place is None else open_arrays(place[0])[place[1]]


def find_files(paths: PathLike | Iterable[PathLike]) -> list[Path]:
    """Files, the files in folders, and what patterns such as ``shards/*.npz`` match; in order, each once."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise ValueError("paths must name at least one file, folder or pattern")
    found: dict[Path, None] = {}
    for path in given:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"paths must be paths of files or folders, got {describe(path)}")
        place = Path(path)
        if place.is_dir():
            inside = [file for file in sorted(place.iterdir()) if _readable(file)]
            if not inside:
                raise ValueError(f"{place}: no {', '.join(SUFFIXES)} file in that folder")
        elif not place.exists() and glob.has_magic(str(path)):
            inside = [Path(name) for name in sorted(glob.glob(str(path), recursive=True)) if _readable(Path(name))]
            if not inside:
                raise ValueError(f"{path}: no {', '.join(SUFFIXES)} file matches")
        else:
            inside = [place]
        found |= dict.fromkeys(inside)
    return list(found)


def _readable(file: Path) -> bool:
    return file.is_file() and file.suffix.lower() in SUFFIXES and not file.name.startswith(".")


def collect(files: Sequence[Path]) -> Collection:
    """Find features, labels, classifier and saved statistics in files."""
    single = [file for file in files if file.suffix.lower() == ".npy"]
    shards: list[Shard] = []
    statistics: list[Path] = []
    others: dict[str, tuple[Path, str]] = {}
    for file in files:
        if file in single:
            continue
        names = open_arrays(file).keys()
        if file.suffix.lower() == ".safetensors" and holds_statistics(file):
            statistics.append(file)
            continue
        roles = {role: name for role in ROLES if (name := _name_of_role(role, names)) is not None}
        for role in ("weight", "bias", "out_of_distribution"):
            if role in roles:
                others.setdefault(role, (file, roles[role]))
        if "features" in roles and "labels" in roles:
            shards.append(Shard((file, roles["features"]), (file, roles["labels"])))
        elif not {"weight", "bias", "out_of_distribution"} & set(roles):
            missing = "labels" if "features" in roles else "features"
            known = " or ".join(repr(name) for name in ROLES[missing])
            raise ValueError(f"{file}: no array {known} (it holds: {', '.join(names) or 'nothing'})")
    if single:
        paired, rest = _paired_files(single)
        shards += paired
        others = rest | others
    if not shards and not statistics:
        raise ValueError(f"{files[0]}: no features and labels in {'it' if len(files) == 1 else 'these files'}")
    return Collection(tuple(shards), tuple(statistics), others)


def layers_in(file: Path) -> dict[str, Shard]:
    """The arrays ``features.NAME`` of a file by name, each a shard with the file's labels; empty without any."""
    held = open_arrays(file).keys()
    layers = [name for name in held if name.startswith(LAYER) and name != LAYER]
    labels = _name_of_role("labels", held)
    if layers and labels is None:
        raise ValueError(f"{file}: no array 'labels' (it holds: {', '.join(held)})")
    return {name.removeprefix(LAYER): Shard((file, name), (file, labels or "")) for name in layers}


def _name_of_role(role: str, names: Iterable[str]) -> str | None:
    present = set(names)
    return next((name for name in ROLES[role] if name in present), None)


def _paired_files(files: Sequence[Path]) -> tuple[list[Shard], dict[str, tuple[Path, str]]]:
    """``.npy`` files by their names (``features_0.npy`` goes with ``labels_0.npy``), else by their order."""
    groups: dict[tuple[str, ...], dict[str, Path]] = {}
    for file in files:
        words = re.split(r"[._-]+", file.stem)
        role = next((role for role in POSITIONS for word in words if word in ROLES[role]), None)
        if role is None:
            break
        rest = (str(file.parent), *(word for word in words if word not in ROLES[role]))
        groups.setdefault(rest, {})[role] = file
    else:
        shards, others = [], {}
        for group in groups.values():
            if ("features" in group) != ("labels" in group):
                alone = next(iter(group.values()))
                other = "labels" if "features" in group else "features"
                raise ValueError(f"{alone}: no {other} file beside it")
            if "features" in group:
                shards.append(Shard((group["features"], "array"), (group["labels"], "array")))
            others |= {role: (group[role], "array") for role in ("weight", "bias") if role in group}
        return shards, others
    if not 2 <= len(files) <= 4:
        raise ValueError(
            f"{files[0]}: .npy files are named features... and labels..., or are two to four in the order "
            "FEATURES LABELS [WEIGHT [BIAS]]"
        )
    places = {role: (file, "array") for role, file in zip(POSITIONS, files, strict=False)}
    shard = Shard(places["features"], places["labels"])
    return [shard], {role: place for role, place in places.items() if role in ("weight", "bias")}


def _label_values(labels: Array) -> np.ndarray:
    values = labels.numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.ndim != 1:
        raise ValueError(f"labels must have shape (N,), got shape {values.shape}")
    return values


def label_names(labels: Array) -> set[str] | None:
    """The different labels of an array of text; ``None`` for numbers."""
    values = _label_values(labels)
    if values.dtype.kind in "US":
        return set(np.unique(values).astype(str).tolist())
    if values.dtype.kind == "O" or values.dtype.kind == "T":
        if not all(isinstance(value, str) for value in values):
            raise TypeError("labels must be integers or text")
        return set(values.tolist())
    return None


def all_label_names(shards: Sequence[Shard]) -> tuple[str, ...] | None:
    """The class names of all shards in alphabetical order; ``None`` where labels are numbers."""
    names: set[str] = set()
    kinds = set()
    for shard in shards:
        with named_errors(str(shard.labels[0])):
            found = label_names(shard.read_labels())
        kinds.add(found is None)
        names |= found or set()
    if len(kinds) > 1:
        raise ValueError("labels must be text in all files or numbers in all files")
    return tuple(sorted(names)) if kinds == {False} else None


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Errors that say which file they are about."""
    try:
        yield
    except (ValueError, TypeError) as error:
        text = str(error)
        raise type(error)(text if text.startswith(name) else f"{name}: {text}") from error


def encode(labels: Array, names: Sequence[str] | None) -> Int[Tensor, " N"]:
    """Labels as int64: the place of each among ``names``, or the numbers that they are."""
    values = _label_values(labels)
    if names is not None:
        place = {name: number for number, name in enumerate(names)}
        return torch.tensor([place[str(value)] for value in values.astype(str)], dtype=torch.int64)
    if values.dtype.kind == "b":
        values = values.astype(np.int64)
    if values.dtype.kind not in "iu":
        raise TypeError(f"labels must be integers or text, got {values.dtype}")
    return torch.from_numpy(values.astype(np.int64))
