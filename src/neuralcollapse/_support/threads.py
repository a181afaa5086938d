"""One torch thread for small work; the caller's setting comes back afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["torch_threads"]


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run the body with ``count`` intra-op threads.

    A small solve that takes 0.7 s on one thread takes 6 to 26 s on two of a busy machine.
    """
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)
