"""Checkpoints, and what stops a run that began well: it can be resumed from the last of them.

A checkpoint is one safetensors file and one JSON file, both checked by digests; nothing is pickled.

The JSON file is written last: a checkpoint without it does not exist. A damaged one is skipped with a line about it.
"""

import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from .._support.checks import integer, one_line
from .._support.files import digest, write_bytes, write_text

__all__ = [
    "Checkpoint",
    "TrainingStopped",
    "checkpoint_path",
    "latest",
    "pack",
    "read_checkpoint",
    "tensors_bytes",
    "unpack",
    "write_checkpoint",
    "write_state",
    "writing",
]


@dataclass(frozen=True)
class Checkpoint:
    """A position in a run and all state there."""

    epoch: int
    """Finished epochs."""
    step: int
    """Finished steps of the next epoch."""
    state: dict[str, Any]


def pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """``value`` (nested dicts, lists, numbers, text, tensors) as JSON; tensors go to ``tensors`` by name."""
    if isinstance(value, Tensor):
        name = f"t{len(tensors):06d}"
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[pack(key, tensors), pack(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [pack(item, tensors) for item in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """What :func:`pack` was given."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {unpack(key, tensors): unpack(item, tensors) for key, item in content}
    items = [unpack(item, tensors) for item in content]
    return items if kind == "list" else tuple(items)


def write_state(path: Path, tensors: dict[str, Tensor]) -> str:
    """Write a safetensors file, atomically, and return its digest."""
    content = tensors_bytes(tensors)
    write_bytes(path, content)
    return digest(content)


def tensors_bytes(tensors: dict[str, Tensor]) -> bytes:
    """The content of a safetensors file."""
    return save(tensors)


def checkpoint_path(folder: str | Path, epoch: int, step: int = 0) -> Path:
    """The JSON file of the checkpoint in ``folder`` after so many epochs, and ``step`` steps of the next one."""
    return Path(folder) / f"{integer('epoch', epoch, minimum=0):06d}-{integer('step', step, minimum=0):08d}.json"


def write_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Write a checkpoint, then remove all but the last ``keep``."""
    tensors: dict[str, Tensor] = {}
    state = pack(checkpoint.state, tensors)
    path = checkpoint_path(folder, checkpoint.epoch, checkpoint.step)
    checksum = write_state(path.with_suffix(".safetensors"), tensors)
    body = json.dumps({"epoch": checkpoint.epoch, "step": checkpoint.step, "tensors": checksum, "state": state})
    text = json.dumps({"digest": digest(body.encode()), "body": body})
    write_text(path, text)
    for old in _newest_first(folder)[keep:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint whose JSON file is ``path``; raises ValueError when either file is damaged."""
    outer = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(outer, dict) or not isinstance(outer.get("body"), str):
        raise ValueError("its state file is not one of a checkpoint")
    if outer.get("digest") != digest(outer["body"].encode()):
        raise ValueError("its state file does not match its checksum")
    body = json.loads(outer["body"])
    content = path.with_suffix(".safetensors").read_bytes()
    if body["tensors"] != digest(content):
        raise ValueError("its tensors do not match their checksum")
    return Checkpoint(body["epoch"], body["step"], unpack(body["state"], load(content)))


def latest(
    folder: Path, message: Callable[[str], None], usable: Callable[[Checkpoint], str | None] = lambda checkpoint: None
) -> Checkpoint | None:
    """The newest checkpoint that is whole and of which ``usable`` names no fault; each newer one gets a line."""
    for path in _newest_first(folder):
        try:
            found = read_checkpoint(path)
            fault = usable(found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
            fault = f"is damaged ({one_line(error)})"
        else:
            if fault is None:
                return found
        message(f"checkpoint {path.stem} {fault}: using the one before it")
    return None


def like(tensor: Tensor, model: Tensor) -> Tensor:
    """``tensor`` in the memory layout of ``model``, where shapes agree: equal layout, equal rounding."""
    if tensor.shape != model.shape:
        return tensor
    return torch.empty_like(model, dtype=tensor.dtype).copy_(tensor)


NAME = re.compile(r"(\d+)-(\d+)\.json")


def _newest_first(folder: Path) -> list[Path]:
    named = ((NAME.fullmatch(path.name), path) for path in folder.glob("*.json"))
    places = {path: (int(found[1]), int(found[2])) for found, path in named if found}
    return sorted(places, key=lambda path: places[path], reverse=True)


class TrainingStopped(RuntimeError):  # noqa: N818 (it says what happened)
    """The run cannot go on; the message is one line and says in what state it was left."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a full disk, or a limit on files, into a message that says how to go on."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise TrainingStopped(
            f"{error.filename or folder}: {os.strerror(error.errno)}; the last checkpoint is whole: make room and "
            "resume the run"
        ) from error
