"""Tensors in safetensors files that are the same, byte by byte, whenever they are written, and know their checksum."""

import hashlib
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .files import atomic_write

__all__ = ["check_tensors", "read_tensors", "write_tensors"]

CHECKSUM = "checksum"
NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], notes: Mapping[str, str] | None = None
) -> None:
    """Write tensors and notes to a safetensors file, atomically, with a checksum of both among the notes.

    The library's own writer puts notes in an order that differs between processes; here the bytes depend on the
    content alone.
    """
    # Wide entries first, so that all of them are aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    arrays = {name: _as_bytes(tensors[name]) for name in order}
    said = dict(sorted((notes or {}).items()))
    header: dict[str, object] = {"__metadata__": {CHECKSUM: _content_checksum(tensors, arrays, said), **said}}
    end = 0
    for name, array in arrays.items():
        place = [end, end := end + array.nbytes]
        header[name] = {"dtype": NAMES[tensors[name].dtype], "shape": list(tensors[name].shape), "data_offsets": place}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in arrays.values():
                file.write(array.data)

    atomic_write(path, write)


def read_tensors(path: str | os.PathLike[str], always: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and notes of a safetensors file; what has a checksum must match it; with ``always`` it must have one.

    Raises:
        ValueError: if it is missing, damaged or something else; the line names the file.

    """
    name = os.fspath(path)
    if not Path(name).is_file():
        raise ValueError(f"{' '.join(name.split())}: no such file")
    try:
        with safe_open(name, framework="pt") as file:
            notes = dict(file.metadata() or {})
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{name}: not a readable safetensors file ({' '.join(str(error).split())})") from error
    stated = notes.pop(CHECKSUM, None)
    if stated is not None and stated != _content_checksum(
        tensors, {key: _as_bytes(tensors[key]) for key in tensors}, notes
    ):
        raise ValueError(f"{name}: damaged: it does not match its checksum")
    if stated is None and always:
        raise ValueError(f"{name}: damaged: its checksum is missing")
    return tensors, notes


def check_tensors(path: str | os.PathLike[str]) -> None:
    """ValueError if a safetensors file has a checksum and does not match it; looked at once while it is unchanged."""
    about = Path(path).stat()
    _check_content(os.fspath(path), about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=4096)
def _check_content(name: str, size: int, changed: int) -> None:
    with safe_open(name, framework="pt") as file:
        stated = CHECKSUM in (file.metadata() or {})
    if stated:
        read_tensors(name)


def _as_bytes(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()


def _content_checksum(tensors: Mapping[str, Tensor], arrays: Mapping[str, np.ndarray], notes: Mapping[str, str]) -> str:
    facts = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in sorted(tensors)]
    result = hashlib.blake2b(json.dumps([facts, notes], sort_keys=True).encode(), digest_size=16)
    for name in sorted(arrays):
        result.update(arrays[name].data)
    return result.hexdigest()
