"""Arrays from files of other programs, mapped and never executed: ``.npz``, ``.npy``, ``.safetensors``.

Nothing is unpickled. Arrays that lie uncompressed in their file are mapped into memory, so a file may be
larger than it.
"""

import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import Tensor

__all__ = ["open_arrays"]

Array = Tensor | np.ndarray
BROKEN = (
    ValueError,
    EOFError,
    KeyError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    NotImplementedError,
    OverflowError,
    RuntimeError,
)
"""What numpy, zipfile and zlib raise on damaged files."""


def open_arrays(path: str | os.PathLike[str]) -> Mapping[str, Array]:
    """The arrays of a file by name; a ``.npy`` file holds one, named ``array``."""
    file = Path(path)
    readers = {".npz": _open_npz, ".npy": _open_npy, ".safetensors": _open_safetensors}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise ValueError(f"{file}: expected a {', '.join(readers)} file")
    if not file.is_file():
        raise FileNotFoundError(2, "no such file", str(file))
    try:
        return reader(file)
    except OSError as error:
        if error.filename is not None:
            raise
        raise _unreadable(file, error) from error
    except BROKEN as error:
        raise _unreadable(file, error) from error
    except MemoryError as error:
        raise ValueError(f"{file}: its arrays do not fit into memory") from error


def _unreadable(file: Path, error: Exception) -> ValueError:
    """One line of bounded length: libraries quote the damaged bytes at length."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 150 else text[:147] + "..."
    return ValueError(f"{file}: not a readable {file.suffix.lower()} file: {text}")


def _open_npy(file: Path) -> dict[str, Array]:
    return {"array": np.load(file, mmap_mode="r", allow_pickle=False)}


def _open_npz(file: Path) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as stream:
                if member.compress_type == zipfile.ZIP_STORED:
                    arrays[name] = _map_member(file, member, stream)
                else:
                    arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
    return arrays


def _map_member(file: Path, member: zipfile.ZipInfo, stream) -> np.ndarray:
    """Map an array that lies uncompressed in a zip archive."""
    version = np.lib.format.read_magic(stream)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read_header:
        raise ValueError(f"array {member.filename!r} has the unknown format version {version}")
    shape, fortran, dtype = read_header[version](stream)
    if dtype.hasobject:
        raise ValueError(f"array {member.filename!r} holds Python objects, which are not read")
    header = stream.tell()
    with file.open("rb") as raw:
        raw.seek(member.header_offset + 26)
        name_length, extra_length = struct.unpack("<HH", raw.read(4))
    offset = member.header_offset + 30 + name_length + extra_length + header
    if header + dtype.itemsize * int(np.prod(shape, dtype=object)) > member.file_size:
        raise ValueError(f"array {member.filename!r} is cut short")
    if 0 in shape or dtype.itemsize == 0:
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, "r", offset, shape, "F" if fortran else "C")


def _open_safetensors(file: Path) -> dict[str, Array]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as archive:
            return {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from error
