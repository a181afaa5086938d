"""Arrays from files of other programs, never executed: ``.npz``, ``.npy``, ``.safetensors``, ``.parquet``, ``.pt``.

Nothing is unpickled but plain tensors. Arrays that lie uncompressed in their file are mapped into memory, so a
file may be larger than it; an array that must be unpacked is measured first, and refused if it would not fit.
"""

import os
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..._support.machine import available_memory
from ..._support.tensors import check_tensors
from ..inputs import Array
from ..precision import precision_named

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["SUFFIXES", "Array", "ArrayFile", "open_arrays"]

Result = TypeVar("Result")
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
"""What numpy, torch, zipfile and zlib raise on damaged files."""


class ArrayFile:
    """The arrays of a file by name; each is read when it is asked for, and an error names the file."""

    def __init__(self, file: Path, readers: dict[str, Callable[[], Array]]):
        self._file, self._readers = file, readers

    @property
    def precision(self) -> torch.dtype | None:
        """The dtype whose rounding the features carry, where the file says so and the arrays do not show it."""
        return _guarded(self._file, partial(_stated_precision, self._file))

    def __getitem__(self, name: str) -> Array:
        return _guarded(self._file, self._readers[name])

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def get(self, name: str, default: Array | None = None) -> Array | None:
        """The array of that name, or ``default``."""
        return self[name] if name in self._readers else default

    def keys(self) -> list[str]:
        """The names, without reading anything."""
        return list(self._readers)


def open_arrays(path: str | os.PathLike[str]) -> ArrayFile:
    """The arrays of a file by name; a ``.npy`` file holds one, named ``array``."""
    file = Path(path)
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise ValueError(f"{file}: expected a {', '.join(_READERS)} file")
    if not file.is_file():
        raise FileNotFoundError(2, "no such file", str(file))
    return ArrayFile(file, _guarded(file, partial(reader, file)))


def _guarded(file: Path, read: Callable[[], Result]) -> Result:
    try:
        return read()
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
    if isinstance(error, _TooLargeError):
        return ValueError(f"{file}: {error}")
    text = " ".join(str(error).split())
    text = text if len(text) <= 150 else text[:147] + "..."
    return ValueError(f"{file}: not a readable {file.suffix.lower()} file: {text}")


class _TooLargeError(ValueError):
    """An array that would not fit, found before memory was asked for."""


def _check_size(name: str, size: int, hint: str) -> None:
    limit = available_memory() // 2
    if size > limit:
        raise _TooLargeError(
            f"array {name!r} would take {size / 1e9:.3g} GB of memory, more than half of what is free; {hint}"
        )


def _open_npy(file: Path) -> dict[str, Callable[[], Array]]:
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    return {"array": lambda: array}


def _open_npz(file: Path) -> dict[str, Callable[[], Array]]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    return {member.filename.removesuffix(".npy"): partial(_read_member, file, member) for member in members}


def _read_member(file: Path, member: zipfile.ZipInfo) -> np.ndarray:
    with zipfile.ZipFile(file) as archive, archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"array {member.filename!r} has the unknown format version {version}")
        shape, fortran, dtype = read_header[version](stream)
        if dtype.hasobject:
            raise ValueError(f"array {member.filename!r} holds Python objects, which are not read")
        size = dtype.itemsize * int(np.prod(shape, dtype=object))
        header = stream.tell()
        if header + size > member.file_size:
            raise ValueError(f"array {member.filename!r} is cut short")
        if 0 in shape or dtype.itemsize == 0:
            return np.empty(shape, dtype)
        if member.compress_type == zipfile.ZIP_STORED:
            return np.memmap(file, dtype, "r", _data_start(file, member) + header, shape, "F" if fortran else "C")
        _check_size(member.filename, size, "np.savez writes files that need not be unpacked")
        content = stream.read(size)
        if len(content) < size:
            raise ValueError(f"array {member.filename!r} is cut short")
        return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _data_start(file: Path, member: zipfile.ZipInfo) -> int:
    with file.open("rb") as raw:
        raw.seek(member.header_offset + 26)
        name_length, extra_length = struct.unpack("<HH", raw.read(4))
    return member.header_offset + 30 + name_length + extra_length


def _open_safetensors(file: Path) -> dict[str, Callable[[], Array]]:
    from safetensors import SafetensorError, safe_open

    def read(name: str) -> Tensor:
        with safe_open(file, framework="pt") as archive:
            return archive.get_tensor(name)

    try:
        with safe_open(file, framework="pt") as archive:
            names = list(archive.keys())
        check_tensors(file)
        return {name: partial(read, name) for name in names}
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _stated_precision(file: Path) -> torch.dtype | None:
    if file.suffix.lower() == ".parquet":
        # The reader hands out half precision as float32.
        kinds = _run_query("SELECT DISTINCT logical_type FROM parquet_schema(?)", file).fetchall()
        return torch.float16 if any("FLOAT16" in str(kind).upper() for (kind,) in kinds) else None
    if file.suffix.lower() != ".safetensors":
        return None
    from safetensors import safe_open

    with safe_open(file, framework="pt") as archive:
        return precision_named((archive.metadata() or {}).get("precision"))


def _open_torch(file: Path) -> dict[str, Callable[[], Array]]:
    import pickle

    if not zipfile.is_zipfile(file):
        raise ValueError("not written by torch.save in its present form")
    try:
        content = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError("it holds more than tensors, which is not read: save a dict of tensors") from None
    except (TypeError, AttributeError, LookupError, AssertionError) as error:  # of a damaged description of a tensor
        raise ValueError(f"damaged ({' '.join(str(error).split())})") from error
    if isinstance(content, list | tuple) and len(content) == 2:
        content = {"features": content[0], "labels": content[1]}
    if not isinstance(content, dict):
        raise ValueError("expected a dict of tensors, or a pair (features, labels)")
    tensors = {name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, Tensor)}
    return {name: partial(_strided, value) for name, value in tensors.items()}


def _strided(tensor: Tensor) -> Tensor:
    """A tensor whose entries lie inside its storage (a damaged file may say otherwise)."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise ValueError(f"a {tensor.layout} tensor on {tensor.device} is not read: save a dense one")
    return tensor.detach()


def _open_parquet(file: Path) -> dict[str, Callable[[], Array]]:
    columns = {
        str(row[0]): str(row[1]) for row in _run_query("DESCRIBE SELECT * FROM read_parquet(?)", file).fetchall()
    }
    readers: dict[str, Callable[[], Array]] = {}
    numbered: dict[str, list[tuple[int, str]]] = {}
    for name, kind in columns.items():
        match = re.fullmatch(r"(.*?)[._]?(\d+)", name)
        if match and not kind.endswith("]") and kind != "VARCHAR":
            numbered.setdefault(match[1], []).append((int(match[2]), name))
        readers[name] = partial(_read_column, file, name, kind)
    for name, parts in numbered.items():
        if name and name not in readers:
            readers[name] = partial(_read_columns, file, name, [column for _, column in sorted(parts)])
    return readers


def _run_query(text: str, file: Path) -> "DuckDBPyConnection":
    import duckdb

    try:
        connection = duckdb.connect(config={"threads": 1})
        return connection.execute(text, [str(file)])
    except duckdb.Error as error:
        raise ValueError(str(error)) from error


def _quoted_column(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _read_column(file: Path, name: str, kind: str) -> np.ndarray:
    column = _quoted_column(name)
    if not kind.endswith("]"):
        values = _run_query(f"SELECT {column} AS v FROM read_parquet(?)", file).fetchnumpy()["v"]
        return _without_nulls(values, name)
    sizes = f"SELECT count(*), count({column}), min(len({column})), max(len({column})) FROM read_parquet(?)"
    rows, filled, least, most = _run_query(sizes, file).fetchall()[0]
    if filled < rows or least != most or not most:
        raise ValueError(f"the lists of column {name!r} must all have the same length, got {least} to {most}")
    kind = "DOUBLE" if kind.startswith("DOUBLE") else "FLOAT"
    _check_size(name, rows * most * (8 if kind == "DOUBLE" else 4), "split the file")
    values = _run_query(f"SELECT unnest({column})::{kind} AS v FROM read_parquet(?)", file).fetchnumpy()["v"]
    return _without_nulls(values, name).reshape(rows, most)


def _read_columns(file: Path, name: str, columns: list[str]) -> np.ndarray:
    rows = _run_query("SELECT count(*) FROM read_parquet(?)", file).fetchall()[0][0]
    _check_size(name, rows * len(columns) * 4, "split the file")
    text = ", ".join(_quoted_column(column) for column in columns)
    found = _run_query(f"SELECT {text} FROM read_parquet(?)", file).fetchnumpy()
    return np.stack([_without_nulls(found[column], column) for column in columns], axis=1)


def _without_nulls(values: object, name: str) -> np.ndarray:
    if isinstance(values, np.ma.MaskedArray):
        if values.mask.any():
            raise ValueError(f"column {name!r} has empty entries")
        return values.data
    return np.asarray(values)


_READERS: dict[str, Callable[[Path], dict[str, Callable[[], Array]]]] = {
    ".npz": _open_npz,
    ".npy": _open_npy,
    ".safetensors": _open_safetensors,
    ".parquet": _open_parquet,
    ".pt": _open_torch,
    ".pth": _open_torch,
}
SUFFIXES = tuple(_READERS)
