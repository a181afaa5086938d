"""Moments on devices without float64: sums in two float32 words, so that the features stay where they are.

A sum s and what it was rounded by, e, are kept apart: s + e has twice the digits. What is summed are deviations from a
sample of the class, as in :class:`Moments`. Of each chunk one number a sample goes to the CPU; the rest goes once, when
somebody reads.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..precision import DIGITS, digits_of
from .moments import Moments, chunk_rows

__all__ = ["PairedMoments", "PairedSum"]


class PairedSum:
    """A float32 sum with the error of its roundings beside it (Knuth's exact addition).

    >>> total = PairedSum((1,), torch.device("cpu"))
    >>> for value in (1.0, 1e-9, -1.0):
    ...     total.add(torch.tensor([0]), torch.tensor([value]))
    >>> total.value().item()  # float32 alone would give 0
    9.999999717180685e-10
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device):
        self._high = torch.zeros(shape, dtype=torch.float32, device=device)
        self._low = torch.zeros(shape, dtype=torch.float32, device=device)

    def add(self, rows: Int[Tensor, " n"], parts: Tensor) -> None:
        """Add ``parts`` to these rows, of which none comes twice."""
        before = self._high.index_select(0, rows)
        after = before + parts
        part = after - before
        error = (before - (after - part)) + (parts - part)
        self._high.index_copy_(0, rows, after)
        self._low.index_add_(0, rows, error)

    def value(self) -> Tensor:
        """The sum in float64, on the CPU."""
        high, low = (part.to("cpu").to(torch.float64) for part in (self._high, self._low))
        return high + low


class PairedMoments:
    """What :class:`Moments` adds up in float64, for float32 or coarser rows on a device that has none.

    Labels are looked at on the CPU, the rows only on their device.
    """

    def __init__(self, num_classes: int, dim: int, device: torch.device):
        self.device = device
        self._counts = torch.zeros(num_classes, dtype=torch.int64)
        self._centre = torch.zeros(num_classes, dim, dtype=torch.float32, device=device)
        self._sums = PairedSum((num_classes, dim), device)
        self._squares = torch.zeros(num_classes, dtype=torch.float64)
        self._digits = torch.zeros(DIGITS, dtype=torch.int64)

    def add(self, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], precision: torch.dtype) -> None:
        """Add finite rows on the device, with valid labels."""
        ordered, order = labels.to("cpu").sort(stable=True)
        step = chunk_rows(features.shape[1])
        for start in range(0, labels.shape[0], step):
            self._add_sorted(features, order[start : start + step], ordered[start : start + step])
        self._digits[digits_of(precision)] += labels.shape[0]

    def _add_sorted(self, features: Tensor, order: Tensor, labels: Tensor) -> None:
        classes, added = torch.unique_consecutive(labels, return_counts=True)
        rows = features.index_select(0, order.to(self.device)).to(torch.float32)
        there, new = classes.to(self.device), (self._counts[classes] == 0).nonzero().squeeze(1)
        if new.shape[0]:
            first = (added.cumsum(0) - added)[new].to(self.device)
            self._centre.index_copy_(0, classes[new].to(self.device), rows.index_select(0, first))
        rows = rows - self._centre.index_select(0, labels.to(self.device))
        inverse = torch.repeat_interleave(added).to(self.device)
        for words in _two_words(rows):
            local = torch.zeros(classes.shape[0], rows.shape[1], dtype=torch.float32, device=self.device)
            self._sums.add(there, local.index_add_(0, inverse, words))
        self._squares.index_add_(0, labels, torch.linalg.vector_norm(rows, dim=1).to("cpu").to(torch.float64).square())
        self._counts.index_add_(0, classes, added)

    def moments(self) -> Moments:
        """The same in float64, on the CPU."""
        result = Moments(0, self._centre.shape[1])
        result.set_state(
            {
                "counts": self._counts,
                "mean": self._centre.to("cpu").to(torch.float64),
                "sums": self._sums.value(),
                "squares": self._squares,
                "digits": self._digits,
            }
        )
        return result


def _two_words(rows: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """Rows as sums of two: the first twelve binary digits, whose float32 sums over a chunk are exact, and the rest."""
    grid = torch.exp2(torch.ceil(torch.log2(rows.abs().amax())) + 12)
    leading = (rows + grid) - grid
    return leading, rows - leading
