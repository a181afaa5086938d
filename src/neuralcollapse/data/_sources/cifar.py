"""CIFAR-10 and CIFAR-100, from the pickle layout (``cifar-10-batches-py``) or the binary one."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ..._support.checks import describe
from .._errors import DataError
from .._formats.cifar import read_binary_batch, read_names, read_pickle_batch
from ._base import Arrays, Download, ImageSource, OfficialFile, check_stored_labels, sources

__all__ = ["CIFAR10", "CIFAR100", "Layout"]

ADDRESS = "https://www.cs.toronto.edu/~kriz"


@dataclass(frozen=True)
class Layout:
    """Where one layout keeps its batches."""

    folder: str
    train: tuple[str, ...]
    test: str
    names: str

    @property
    def binary(self) -> bool:
        """Whether batches are records of bytes rather than pickles."""
        return self.test.endswith(".bin")


@dataclass(frozen=True)
class _CIFAR(ImageSource):
    layouts: ClassVar[dict[str, Layout]]
    label_key: ClassVar[str]
    names_key: ClassVar[str]
    label_bytes: ClassVar[int]
    image_shape = (3, 32, 32)
    train_size = 50_000
    test_size = 10_000
    licence = "none stated by its authors; cite Krizhevsky 2009"

    layout: str = "auto"
    """``pickle``, ``binary``, or ``auto``: whichever is there, pickle first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout != "auto" and self.layout not in self.layouts:
            raise ValueError(f"layout must be one of auto, {', '.join(self.layouts)}, got {describe(self.layout)}")

    @property
    def unfetchable(self) -> str:
        """The official address gives the pickle layout."""
        return "its address gives the pickle layout: leave out layout=binary" if self.layout == "binary" else ""

    def locate(self, root: Path) -> list[Path] | None:
        """The batches of the first layout that is complete."""
        layout = self._layout(root)
        if layout is None:
            return None
        folder = root / layout.folder
        names = [folder / layout.names] if (folder / layout.names).is_file() else []
        return [folder / name for name in (*layout.train, layout.test)] + names

    def read_stored(self, root: Path) -> Arrays:
        """Read all batches."""
        layout = self._layout(root)
        if layout is None:
            folders = " or ".join(entry.folder for entry in self._candidates())
            raise DataError(f"{root}: needs the batches of {folders}")
        folder = root / layout.folder
        batches = [self._batch(folder / name, layout) for name in layout.train]
        images = np.concatenate([images for images, _ in batches])
        labels = np.concatenate([labels for _, labels in batches])
        names = tuple(str(label) for label in range(self.num_classes))
        if (folder / layout.names).is_file():
            names = tuple(read_names(folder / layout.names, self.names_key))
            if len(names) != self.num_classes:
                raise DataError(f"{folder / layout.names}: {len(names)} names for {self.num_classes} classes")
        return Arrays(images, labels, *self._batch(folder / layout.test, layout), names)

    def _candidates(self) -> list[Layout]:
        return list(self.layouts.values()) if self.layout == "auto" else [self.layouts[self.layout]]

    def _layout(self, root: Path) -> Layout | None:
        for layout in self._candidates():
            if all((root / layout.folder / name).is_file() for name in (*layout.train, layout.test)):
                return layout
        return None

    def _batch(self, path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
        if layout.binary:
            images, labels = read_binary_batch(path, self.label_bytes)
        else:
            images, labels = read_pickle_batch(path, self.label_key)
        return images, check_stored_labels(path, labels, self.num_classes)


def _members(folder: str, files: dict[str, str]) -> tuple[OfficialFile, ...]:
    return tuple(OfficialFile(f"{folder}/{name}", md5) for name, md5 in files.items())


@sources.add("cifar10")
@dataclass(frozen=True)
class CIFAR10(_CIFAR):
    """Photographs of ten kinds of things, 32x32 in colour: 50,000 train, 10,000 test."""

    title = "CIFAR-10 (Krizhevsky, 2009)"
    num_classes = 10
    label_key = "labels"
    names_key = "label_names"
    label_bytes = 1
    layouts = {  # noqa: RUF012 (a class constant)
        "pickle": Layout(
            "cifar-10-batches-py", tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"
        ),
        "binary": Layout(
            "cifar-10-batches-bin",
            tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
            "test_batch.bin",
            "batches.meta.txt",
        ),
    }
    downloads = (
        Download(
            f"{ADDRESS}/cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            170_498_071,
            _members(
                "cifar-10-batches-py",
                {
                    "data_batch_1": "c99cafc152244af753f735de768cd75f",
                    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                    "data_batch_4": "634d18415352ddfa80567beed471001a",
                    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                    "test_batch": "40351d587109b95175f43aff81a1287e",
                    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
                },
            ),
        ),
    )


@sources.add("cifar100")
@dataclass(frozen=True)
class CIFAR100(_CIFAR):
    """Photographs of a hundred kinds of things, 32x32 in colour: 50,000 train, 10,000 test; fine labels."""

    title = "CIFAR-100 (Krizhevsky, 2009)"
    num_classes = 100
    label_key = "fine_labels"
    names_key = "fine_label_names"
    label_bytes = 2
    layouts = {  # noqa: RUF012 (a class constant)
        "pickle": Layout("cifar-100-python", ("train",), "test", "meta"),
        "binary": Layout("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt"),
    }
    downloads = (
        Download(
            f"{ADDRESS}/cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            169_001_437,
            _members(
                "cifar-100-python",
                {
                    "train": "16019d7e3df5f24257cddd939b257f8d",
                    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
                    "meta": "7973b15100ade9c7d40fb424638fde48",
                },
            ),
        ),
    )
