"""MNIST and Fashion-MNIST: four IDX files, plain or packed, in ``MNIST/raw`` or ``FashionMNIST/raw``."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from .._errors import DataError
from .._formats.idx import read_idx
from ._base import Arrays, Download, ImageSource, OfficialFile, check_stored_labels, sources

__all__ = ["MNIST", "FashionMNIST"]


def _downloads(address: str, folder: str, files: dict[str, tuple[str, int]]) -> tuple[Download, ...]:
    return tuple(
        Download(f"{address}/{name}", md5, size, (OfficialFile(f"{folder}/{name}", md5),))
        for name, (md5, size) in files.items()
    )


class _IDXSource(ImageSource):
    folder: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    num_classes = 10
    image_shape = (1, 28, 28)
    train_size = 60_000
    test_size = 10_000

    def locate(self, root: Path) -> list[Path] | None:
        """The four files, each packed or not."""
        found = [_find(root / self.folder, stem) for stem in STEMS]
        return None if None in found else [path for path in found if path is not None]

    def read_stored(self, root: Path) -> Arrays:
        """Read the four files."""
        paths = self.locate(root)
        if paths is None:
            raise DataError(f"{root / self.folder}: needs the four files {', '.join(STEMS)}, packed with gzip or not")
        train = self._read_pair(paths[0], paths[1])
        test = self._read_pair(paths[2], paths[3])
        return Arrays(*train, *test, self.names)

    def _read_pair(self, image_path: Path, label_path: Path) -> tuple[np.ndarray, np.ndarray]:
        images, labels = read_idx(image_path, 3), read_idx(label_path, 1)
        if len(images) != len(labels):
            raise DataError(f"{image_path}: {len(images)} images, but {label_path.name} has {len(labels)} labels")
        if images.shape[1:] != self.image_shape[1:]:
            raise DataError(f"{image_path}: images have shape {images.shape[1:]}, expected {self.image_shape[1:]}")
        return images[:, None], check_stored_labels(label_path, labels, self.num_classes)


STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _find(folder: Path, stem: str) -> Path | None:
    for path in (folder / stem, folder / f"{stem}.gz"):
        if path.is_file():
            return path
    return None


@sources.add("mnist")
@dataclass(frozen=True)
class MNIST(_IDXSource):
    """Handwritten digits, 28x28 grey: 60,000 train, 10,000 test."""

    title = "MNIST (LeCun, Cortes and Burges, 1998)"
    licence = "CC BY-SA 3.0"
    folder = "MNIST/raw"
    names = tuple(str(label) for label in range(10))
    downloads = _downloads(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "MNIST/raw",
        {
            "train-images-idx3-ubyte.gz": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            "train-labels-idx1-ubyte.gz": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            "t10k-images-idx3-ubyte.gz": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            "t10k-labels-idx1-ubyte.gz": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        },
    )


@sources.add("fashion-mnist")
@dataclass(frozen=True)
class FashionMNIST(_IDXSource):
    """Pictures of clothes, 28x28 grey: 60,000 train, 10,000 test."""

    title = "Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017)"
    licence = "MIT"
    folder = "FashionMNIST/raw"
    names = (
        *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )
    downloads = _downloads(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "FashionMNIST/raw",
        {
            "train-images-idx3-ubyte.gz": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            "train-labels-idx1-ubyte.gz": ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
            "t10k-images-idx3-ubyte.gz": ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            "t10k-labels-idx1-ubyte.gz": ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        },
    )
