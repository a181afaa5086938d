"""Memory for the rows of one chunk, kept from chunk to chunk: fresh pages would take as long as the sums themselves."""

import threading

import torch
from torch import Tensor

__all__ = ["room"]

LARGEST = 1 << 22
"""Bytes of a tensor that is kept; larger chunks take memory of their own."""
_kept = threading.local()


def room(name: str, index: Tensor, like: Tensor) -> Tensor | None:
    """A tensor for ``index.shape[0]`` rows as ``like`` has them, to write to before the next call of that name.

    Each thread has its own. ``None`` where none is kept: on accelerators, which do so themselves, and for large chunks.
    """
    shape = (index.shape[0], *like.shape[1:])
    size = shape[0] * like[0].numel() * like.element_size() if like.shape[0] else LARGEST + 1
    if like.device.type != "cpu" or type(like) is not Tensor or size > LARGEST:
        return None
    rooms: dict[tuple[object, ...], Tensor] = _kept.__dict__.setdefault("rooms", {})
    key = (name, like.dtype)
    if key not in rooms or rooms[key].numel() * rooms[key].element_size() < size:
        # Not an inference tensor, which could not be written to outside of that mode.
        with torch.inference_mode(False):
            rooms[key] = torch.empty(size // like.element_size(), dtype=like.dtype)
    return rooms[key][: size // like.element_size()].view(shape)
