"""Memory for large arrays that is used again as soon as nobody refers to it."""

import math
import sys
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

__all__ = ["Workspace"]

ALIGNMENT = 64
SLACK = 4096
"""Bytes beyond a block: enough to align it, and for the C library to reuse it for an aligned array once it is freed."""
UNUSED = 3
"""References to a block that no tensor uses: the list's, the loop's and the one of asking."""


class Workspace:
    """Large tensors without fresh memory: the system would have to clear its pages, at several times their arithmetic.

    A block is a numpy array; tensors on it, and views of them, hold a reference to it for as long as they live. So a
    block with no reference but the workspace's own is free, and nobody has to hand anything back.

    >>> workspace = Workspace()
    >>> first = workspace.empty([3, 2])
    >>> address = first.data_ptr()
    >>> view = first[1:]
    >>> del first
    >>> workspace.empty([3, 2]).data_ptr() == address  # the view still uses it
    False
    >>> del view
    >>> workspace.empty([3, 2]).data_ptr() == address
    True
    """

    def __init__(self, usual: int = 0) -> None:
        self._usual = usual
        """Bytes that a new block has at least, if it is filled by more than half: one size serves all."""
        self._blocks: list[np.ndarray] = []

    def empty(self, shape: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
        """A tensor with arbitrary entries, in a free block that it fills by more than half, else in a new one."""
        size = math.prod(shape) * dtype.itemsize
        for block in self._blocks:
            if size <= block.nbytes < 2 * size and sys.getrefcount(block) == UNUSED:
                return torch.from_numpy(block)[:size].view(dtype).view(*shape)
        room = max(size, self._usual) if 2 * size > self._usual else size
        raw = np.empty(room + SLACK, dtype=np.uint8)
        offset = -raw.ctypes.data % ALIGNMENT
        block = raw[offset : offset + room]
        self._blocks.append(block)
        return torch.from_numpy(block)[:size].view(dtype).view(*shape)
