"""Memory that is freed and soon wanted again stays with the process."""

import torch

__all__ = ["keep_freed_blocks"]

LARGEST = 32 << 20


def keep_freed_blocks() -> None:
    """Let blocks of up to 32 MB be reused without a trip to the operating system.

    The C library hands large freed blocks back at once and has their pages cleared again at the next request:
    for arrays of a few MB that costs as much as the arithmetic on them. It stops doing so for sizes that it
    has seen freed, up to 32 MB (glibc's dynamic mmap threshold); so one block of that size, never touched, is
    made and freed.
    """
    torch.empty(LARGEST - (1 << 16), dtype=torch.uint8)
