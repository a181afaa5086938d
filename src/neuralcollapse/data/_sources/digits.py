"""The 1,797 embedded 8x8 digits of UCI and scikit-learn (origin and licence: ``data/files/README.md``)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .._formats.idx import read_idx
from ._base import Arrays, ImageSource, sources

__all__ = ["Digits"]

FILES = Path(__file__).parent.parent / "files"
TRAIN_PER_CLASS = 150


@sources.add("digits")
@dataclass(frozen=True)
class Digits(ImageSource):
    """Handwritten digits, 8x8, values 0 to 16. Train: the first 150 of each class; test: the other 297."""

    title = "Optical Recognition of Handwritten Digits (UCI, 1998), test part"
    num_classes = 10
    image_shape = (1, 8, 8)
    train_size = 1500
    test_size = 297
    licence = "CC BY 4.0"
    embedded = True

    def read_stored(self, root: Path) -> Arrays:
        """Read the embedded files."""
        images = read_idx(FILES / "digits-images-idx3-ubyte.gz", 3)[:, None]
        labels = read_idx(FILES / "digits-labels-idx1-ubyte.gz", 1).astype(np.int64)
        rank_in_class = np.empty_like(labels)
        for label in range(self.num_classes):
            mine = np.flatnonzero(labels == label)
            rank_in_class[mine] = np.arange(mine.size)
        train = rank_in_class < TRAIN_PER_CLASS
        names = tuple(str(label) for label in range(self.num_classes))
        return Arrays(images[train], labels[train], images[~train], labels[~train], names)
