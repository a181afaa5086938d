"""What a data set says about itself: its files, where they come from, and how they are read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..._support.registry import Registry
from .._errors import DataError

__all__ = ["Arrays", "Download", "OfficialFile", "Source", "sources"]

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


def check_labels(where: Path, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """``labels`` as int64 if all are classes."""
    if labels.size and not (int(labels.min()) >= 0 and int(labels.max()) < num_classes):
        worst = int(labels.max()) if int(labels.max()) >= num_classes else int(labels.min())
        raise DataError(f"{where}: label {worst} is not one of the classes 0 to {num_classes - 1}")
    return labels.astype(np.int64)
