"""miniImageNet: an image folder and three split files, pooled and split again as in the papers."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._errors import DataError, reading
from .._formats.pictures import read_picture
from ._base import Arrays, ImageSource, sources

__all__ = ["MiniImageNet"]

FOLDER = "mini-imagenet"
SPLITS = ("train.csv", "val.csv", "test.csv")
SIDE = 84
MOST_ROWS = 1_000_000


@sources.add("mini-imagenet")
@dataclass(frozen=True)
class MiniImageNet(ImageSource):
    """One hundred classes of ImageNet, 84x84 in colour: 500 train and 100 test pictures a class.

    The published splits share no class: they are for few-shot learning. As in the papers, all classes are
    pooled and each is split 5 : 1, here by a fixed permutation, so every run sees the same pictures.
    """

    title = "miniImageNet (Vinyals et al., 2016; splits of Ravi and Larochelle, 2017)"
    num_classes = 100
    image_shape = (3, SIDE, SIDE)
    train_size = 50_000
    test_size = 10_000
    licence = "ImageNet's terms: research use"
    how_to_get = (
        "it has no official address: put the pictures in mini-imagenet/images and the split files train.csv, "
        "val.csv and test.csv (columns filename, label) in mini-imagenet"
    )

    def locate(self, root: Path) -> list[Path] | None:
        """The split files (the pictures are checked when they are read)."""
        paths = [root / FOLDER / name for name in SPLITS]
        ready = (root / FOLDER / "images").is_dir() and all(path.is_file() for path in paths)
        return paths if ready else None

    def read_stored(self, root: Path) -> Arrays:
        """Decode every picture that the split files name."""
        paths = self.locate(root)
        if paths is None:
            raise DataError(f"{root / FOLDER}: {self.how_to_get}")
        by_class: dict[str, list[Path]] = {}
        for path in paths:
            for file_name, label in _listed_images(path):
                by_class.setdefault(label, []).append(_image_file(root / FOLDER / "images", file_name, label, path))
        if len(by_class) < 2:
            raise DataError(
                f"{root / FOLDER}: the split files name {len(by_class)} classes, expected {self.num_classes}"
            )
        order = np.random.default_rng(0)
        train: list[tuple[Path, int]] = []
        test: list[tuple[Path, int]] = []
        for index, label in enumerate(sorted(by_class)):
            files = by_class[label]
            shuffled = [files[i] for i in order.permutation(len(files))]
            held = max(1, round(len(files) / 6))
            test += [(file, index) for file in sorted(shuffled[:held])]
            train += [(file, index) for file in sorted(shuffled[held:])]
        return Arrays(*_decode(train), *_decode(test), tuple(sorted(by_class)))


def _listed_images(path: Path) -> list[tuple[str, str]]:
    with reading(path), path.open(encoding="utf-8", newline="") as file:
        rows = []
        for row in csv.DictReader(file):
            if not row.get("filename") or not row.get("label"):
                raise DataError(f"{path}: line {len(rows) + 2} needs the columns filename and label")
            rows.append((row["filename"], row["label"]))
            if len(rows) > MOST_ROWS:
                raise DataError(f"{path}: more than {MOST_ROWS:,} lines")
        return rows


def _image_file(folder: Path, file_name: str, label: str, named_in: Path) -> Path:
    for path in (folder / file_name, folder / label / file_name):
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{named_in}: names {file_name[:80]!r}, which lies outside the image folder")
        if path.is_file():
            return path
    raise DataError(f"{named_in}: names {file_name[:80]!r}, which is not in {folder}")


def _decode(files: list[tuple[Path, int]]) -> tuple[np.ndarray, np.ndarray]:
    images = np.empty((len(files), 3, SIDE, SIDE), dtype=np.uint8)
    for index, (path, _) in enumerate(files):
        images[index] = read_picture(path, SIDE)
    return images, np.array([label for _, label in files], dtype=np.int64)
