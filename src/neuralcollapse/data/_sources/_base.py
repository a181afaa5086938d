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

CHUNK = 4096
LARGEST_SIDE = 512


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
    def unfetchable(self) -> str:
        """Why it cannot be fetched, and what to do instead; empty where it can."""
        return "" if self.downloads else self.how_to_get

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that are not at their default."""
        values = {entry.name: (getattr(self, entry.name), entry.default) for entry in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}


@dataclass(frozen=True)
class ImageSource(Source):
    """A data set of square images, which may be made smaller or larger; ``image_shape`` is that of the stored ones."""

    size: int | None = None
    """The side of the images: a divisor of the stored one (pixels are averaged over squares) or more (bilinear)."""
    channels: int | None = None
    """3 repeats a grey image for nets that take colours."""

    def __post_init__(self) -> None:
        stored, side, _ = self.image_shape
        if self.size is not None:
            size = integer("size", self.size, minimum=1, maximum=LARGEST_SIDE)
            if size < side and side % size:
                raise ValueError(f"size must divide the side of the stored images, {side}, or exceed it, got {size}")
        if self.channels is not None:
            count = integer("channels", self.channels, minimum=1)
            if count != stored and (stored, count) != (1, 3):
                takes = "1 or 3 for grey images" if stored == 1 else f"{stored} for these images"
                raise ValueError(f"channels must be {takes}, got {count}")

    @abstractmethod
    def read_stored(self, root: Path) -> Arrays:
        """Read the set with its images as they are stored."""

    def read(self, root: Path) -> Arrays:
        """Read the set, with images of the size and channels asked for."""
        stored = self.read_stored(root)
        train, test = (self._changed(images) for images in (stored.train_images, stored.test_images))
        return replace(stored, train_images=train, test_images=test)

    def _changed(self, images: np.ndarray) -> np.ndarray:
        channels, side, _ = self.image_shape
        size = side if self.size is None else self.size
        if size < side:
            images = _average_squares(images, side // size)
        elif size > side:
            images = _enlarge(images, size)
        repeats = 1 if self.channels is None else self.channels // channels
        return images if repeats == 1 else np.repeat(images, repeats, axis=1)


def _average_squares(images: np.ndarray, factor: int) -> np.ndarray:
    """Means of bytes over squares of ``factor`` pixels a side, as float32: the sums are exact."""
    total = np.zeros((*images.shape[:2], images.shape[2] // factor, images.shape[3] // factor), dtype=np.float32)
    for row in range(factor):
        for column in range(factor):
            total += images[:, :, row::factor, column::factor]
    return total / np.float32(factor**2)


def _enlarge(images: np.ndarray, size: int) -> np.ndarray:
    """Bilinear interpolation between the centres of pixels, to ``size`` a side; bytes are rounded to bytes.

    The centre of new pixel i lies at (i + 1/2) side/size - 1/2 among the old centres; beyond the outermost ones the
    image goes on as it ends.
    """
    matrix = _interpolation(images.shape[2], size)
    larger = np.empty((*images.shape[:2], size, size), dtype=images.dtype)
    for start in range(0, len(images), CHUNK):
        part = matrix @ images[start : start + CHUNK].astype(np.float32) @ matrix.T
        larger[start : start + CHUNK] = np.rint(part) if images.dtype == np.uint8 else part
    return larger


def _interpolation(side: int, size: int) -> np.ndarray:
    """The ``size x side`` matrix of bilinear interpolation along one axis."""
    place = np.clip((np.arange(size) + 0.5) * side / size - 0.5, 0, side - 1)
    lower = np.minimum(np.floor(place).astype(int), max(side - 2, 0))
    share = (place - lower).astype(np.float32)
    matrix = np.zeros((size, side), dtype=np.float32)
    rows = np.arange(size)
    matrix[rows, lower] += 1 - share
    matrix[rows, np.minimum(lower + 1, side - 1)] += share
    return matrix


def check_stored_labels(where: Path, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """``labels`` as int64 if all are classes."""
    if labels.size and not (int(labels.min()) >= 0 and int(labels.max()) < num_classes):
        worst = int(labels.max()) if int(labels.max()) >= num_classes else int(labels.min())
        raise DataError(f"{where}: label {worst} is not one of the classes 0 to {num_classes - 1}")
    return labels.astype(np.int64)
