"""Decoded images, kept in one safetensors file below the root and memory-mapped from there.

The file is written beside its place and renamed, so a reader finds a whole cache or none; a killed run leaves
none. It states the size and time of the files that it was made from, and its own checksums; when either
disagrees, it is made anew from the files.
"""

import errno
import json
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from .._support.checks import one_line
from .._support.files import atomic_write
from ._sources import Arrays, Source

__all__ = ["Tensors", "cache_path", "cached", "verify_cache"]

VERSION = "1"
PARTS = ("train_images", "train_labels", "test_images", "test_labels")
STALE_SECONDS = 3600
NOT_WRITABLE = (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Tensors:
    """A data set in tensors, and where it came from."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    origin: str
    """``cache``, ``files``, or why no cache was written."""


def cache_path(name: str, source: Source, root: Path) -> Path:
    """Where the cache of a data set with these parameters lies."""
    parts = [name, *(f"{key}={value}" for key, value in source.parameters.items())]
    return root / ".neuralcollapse" / f"{'-'.join(parts)}.safetensors"


def cached(name: str, source: Source, root: Path) -> Tensors:
    """The data set from its cache, or from its files with a cache written for the next time."""
    path = cache_path(name, source, root)
    fingerprint = _fingerprint(source, root)
    found = _open_cache(path, fingerprint)
    if found is not None:
        return found
    arrays = source.read(root)
    tensors = as_tensors(arrays, "files")
    parts = {part: getattr(tensors, part) for part in PARTS}
    metadata = {
        "version": VERSION,
        "fingerprint": fingerprint,
        "classes": json.dumps(arrays.classes),
        "checksums": json.dumps({part: _checksum(tensor) for part, tensor in parts.items()}),
    }
    try:
        _remove_stale(path)
        atomic_write(path, lambda temporary: save_file(parts, temporary, metadata))
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
        return as_tensors(arrays, f"files (no cache: {error.strerror})")
    except SafetensorError as error:  # how a full disk shows while safetensors writes
        return as_tensors(arrays, f"files (no cache: {one_line(error)})")
    return _open_cache(path, fingerprint) or tensors


def verify_cache(path: Path) -> str | None:
    """``None`` when the cache is whole, else what is wrong with it."""
    try:
        with safe_open(path, framework="pt") as file:
            stated = json.loads((file.metadata() or {}).get("checksums", "{}"))
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        return f"cannot be read: {one_line(error)}"
    for part in PARTS:
        if part not in tensors or stated.get(part) != _checksum(tensors[part]):
            return f"{part} does not match its checksum"
    return None


def as_tensors(arrays: Arrays, origin: str) -> Tensors:
    """Arrays as tensors, without a copy where they may be written to."""
    parts = [torch.from_numpy(np.require(getattr(arrays, part), requirements=["C", "W"])) for part in PARTS]
    return Tensors(*parts, classes=arrays.classes, origin=origin)


def _open_cache(path: Path, fingerprint: str) -> Tensors | None:
    if not path.exists() or verify_cache(path) is not None:
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        if metadata.get("version") != VERSION or metadata.get("fingerprint") != fingerprint:
            return None
        tensors = load_file(path)
        classes = tuple(str(name) for name in json.loads(metadata["classes"]))
        return Tensors(*(tensors[part] for part in PARTS), classes=classes, origin="cache")
    except (SafetensorError, OSError, ValueError, KeyError):
        return None


def _fingerprint(source: Source, root: Path) -> str:
    files = source.locate(root) or []
    states = [(str(path.relative_to(root)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return json.dumps([repr(source), states])


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.contiguous().view(torch.uint8).numpy().data)


def _remove_stale(path: Path) -> None:
    """Remove what killed writers left behind long ago; a live one may still be at work on a younger file."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        if time.time() - leftover.stat().st_mtime > STALE_SECONDS:
            leftover.unlink(missing_ok=True)
