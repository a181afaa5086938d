"""IDX files of MNIST and its kin: a magic number, big-endian sizes, then bytes; plain or packed with gzip."""

import gzip
import math
import struct
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from .._errors import DataError, reading

__all__ = ["read_idx"]

LARGEST = 256 * 2**20
UNSIGNED_BYTE = 8
CHUNK = 2**20


def read_idx(path: Path, dimensions: int) -> UInt8[np.ndarray, "..."]:
    """The array in ``path``, which must hold unsigned bytes in ``dimensions`` dimensions.

    A packed file is unpacked only as far as its header asks, and no further than 256 MiB, whatever it expands
    to.
    """
    with reading(path), path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=raw) as stream:
                return _read_stream(path, stream, dimensions)
        return _read_stream(path, raw, dimensions)


def _read_stream(path: Path, stream: BufferedIOBase, dimensions: int) -> np.ndarray:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != UNSIGNED_BYTE:
        raise DataError(f"{path}: not an IDX file of unsigned bytes (it starts with {magic.hex() or 'nothing'})")
    if magic[3] != dimensions:
        raise DataError(f"{path}: has {magic[3]} dimensions, expected {dimensions}")
    header = stream.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DataError(f"{path}: truncated in its header")
    shape = struct.unpack(f">{dimensions}I", header)
    size = math.prod(shape)
    if size > LARGEST:
        raise DataError(f"{path}: claims {size:,} bytes of shape {shape}, more than the {LARGEST:,} allowed")
    content = bytearray()
    while len(content) < size:
        chunk = stream.read(min(CHUNK, size - len(content)))
        if not chunk:
            raise DataError(f"{path}: truncated, holds {len(content):,} of the {size:,} bytes that its header states")
        content += chunk
    if stream.read(1):
        raise DataError(f"{path}: goes on after the {size:,} bytes that its header states")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
