"""What a data set says about itself: its files, where they come from, and how they are read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..._support.checks import integer
from ..._support.registry import Registry
from .._errors import DataError

__all__ = ["Arrays", "Download", "ImageSource", "OfficialFile", "Source", "sources"]

sources: Registry[type["Source"]] = Registry("data set")


@dataclass(frozen=True)
class Arrays:
    """A data set as read: images (N, C, height, width) of bytes or float32, labels (N,) of int64."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    classes: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OfficialFile:
    """A file as its authors publish it: path below the root, and MD5."""

    path: str
    md5: str


@dataclass(frozen=True)
class Download:
    """One address; ``gives`` are the files it brings: itself, or the members of a ``.tar.gz`` archive."""

    url: str
    md5: str
    size: int
    gives: tuple[OfficialFile, ...]

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[1]

    @property
    def is_archive(self) -> bool:
        """Whether the files must be taken out of an archive."""
        return self.file_name.endswith(".tar.gz")


@dataclass(frozen=True)
class Source(ABC):
    """A data set. Class attributes describe it; instances carry its parameters, if it has any."""

    title: ClassVar[str]
    num_classes: ClassVar[int]
    image_shape: ClassVar[tuple[int, int, int]]
    train_size: ClassVar[int]
    test_size: ClassVar[int]
    licence: ClassVar[str]
    embedded: ClassVar[bool] = False
    """Needs no files."""
    downloads: ClassVar[tuple[Download, ...]] = ()
    how_to_get: ClassVar[str] = ""
    """For sets that cannot be downloaded: what to put where."""

    def locate(self, root: Path) -> list[Path] | None:
        """The files below ``root`` that :meth:`read` would use, or ``None`` when some are missing."""
        return []

    @abstractmethod
    def read(self, root: Path) -> Arrays:
        """Read the set from below ``root`` (which an embedded set ignores)."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that are not at their default."""
        values = {entry.name: (getattr(self, entry.name), entry.default) for entry in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}


@dataclass(frozen=True)
class ImageSource(Source):
    """A data set of square images, which may be made smaller; ``image_shape`` is that of the stored ones."""

    size: int | None = None
    """The side of the images, a divisor of the stored one: pixels are averaged over squares."""

    def __post_init__(self) -> None:
        side = self.image_shape[1]
        if self.size is not None and side % integer("size", self.size, minimum=1):
            raise ValueError(f"size must divide the side of the stored images, {side}, got {self.size}")

    @abstractmethod
    def read_stored(self, root: Path) -> Arrays:
        """Read the set with its images as they are stored."""

    def read(self, root: Path) -> Arrays:
        """Read the set, with images of the size asked for."""
        stored = self.read_stored(root)
        factor = self.image_shape[1] // (self.size or self.image_shape[1])
        if factor == 1:
            return stored
        return replace(
            stored,
            train_images=_average_squares(stored.train_images, factor),
            test_images=_average_squares(stored.test_images, factor),
        )


def _average_squares(images: np.ndarray, factor: int) -> np.ndarray:
    """Means of bytes over squares of ``factor`` pixels a side, as float32: the sums are exact."""
    total = np.zeros((*images.shape[:2], images.shape[2] // factor, images.shape[3] // factor), dtype=np.float32)
    for row in range(factor):
        for column in range(factor):
            total += images[:, :, row::factor, column::factor]
    return total / np.float32(factor**2)


def check_labels(where: Path, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """``labels`` as int64 if all are classes."""
    if labels.size and not (int(labels.min()) >= 0 and int(labels.max()) < num_classes):
        worst = int(labels.max()) if int(labels.max()) >= num_classes else int(labels.min())
        raise DataError(f"{where}: label {worst} is not one of the classes 0 to {num_classes - 1}")
    return labels.astype(np.int64)
