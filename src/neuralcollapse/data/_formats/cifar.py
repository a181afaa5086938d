"""CIFAR-10 and CIFAR-100 batches, in the pickle layout and in the binary layout."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from .._errors import DataError, reading
from .pickles import PickledBytes, read_pickle

__all__ = ["read_binary_batch", "read_names", "read_pickle_batch"]

PIXELS = 3 * 32 * 32
LARGEST = 512 * 2**20

LabelledImages = tuple[UInt8[np.ndarray, "n 3 32 32"], Int64[np.ndarray, " n"]]


def read_pickle_batch(path: Path, label_key: str) -> LabelledImages:
    """Images and labels of one batch; ``label_key``: ``labels`` (CIFAR-10), ``fine_labels`` (CIFAR-100)."""
    batch = read_pickle(path)
    with reading(path):
        data, labels = batch.get("data"), batch.get(label_key)
        if not isinstance(data, PickledBytes) or not isinstance(labels, list):
            raise DataError(f"{path}: not a CIFAR batch (needs 'data' and {label_key!r}, has {_listed_keys(batch)})")
        pixels = data.array()
        if pixels.ndim != 2 or pixels.shape[1] != PIXELS:
            raise DataError(f"{path}: images have shape {pixels.shape[1:]}, expected ({PIXELS},)")
        if not all(type(label) is int for label in labels) or len(labels) != len(pixels):
            raise DataError(f"{path}: {len(labels)} labels for {len(pixels)} images")
        return pixels.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def read_binary_batch(path: Path, label_bytes: int) -> LabelledImages:
    """Images and labels of a binary batch; the last of its ``label_bytes`` is the label."""
    with reading(path):
        size, record = path.stat().st_size, label_bytes + PIXELS
        if size > LARGEST:
            raise DataError(f"{path}: larger than the {LARGEST:,} bytes allowed")
        if size == 0 or size % record:
            raise DataError(f"{path}: {size:,} bytes are not a whole number of records of {record}")
        records = np.fromfile(path, dtype=np.uint8).reshape(-1, record)
        images = np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, 3, 32, 32)
        return images, records[:, label_bytes - 1].astype(np.int64)


def read_names(path: Path, key: str) -> list[str]:
    """Class names from a pickled ``meta`` file (under ``key``) or a text file with one name a line."""
    with reading(path):
        if path.suffix == ".txt":
            return path.read_text(encoding="utf-8").split()
        names = read_pickle(path).get(key)
        if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
            raise DataError(f"{path}: no list of names under {key!r}")
        return [name.decode("latin-1") if isinstance(name, bytes) else name for name in names]


def _listed_keys(batch: dict[str, Any]) -> str:
    return ", ".join(repr(key[:20]) for key in list(batch)[:8]) or "nothing"
