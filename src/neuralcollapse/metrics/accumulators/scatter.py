"""The pooled d x d scatter within classes."""

import platform

import torch
from jaxtyping import Float
from torch import Tensor

from ..processes import Group, sum_over

__all__ = ["Scatter", "add_gram", "enough_for_nc1", "symmetric", "well_conditioned"]

WAITING = 4096
"""Rows that wait for their products together: these pay from a thousand rows on, all else in chunks of the cache."""
WIDE_ROWS, WIDE_BLOCK = 1024, 192
_ONEDNN = (
    platform.machine() in ("x86_64", "AMD64")
    and torch.backends.mkldnn.is_available()
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


def add_gram(total: Float[Tensor, "d d"], rows: Float[Tensor, "n d"]) -> None:
    """Add ``rows' rows`` to ``total``'s blocks on and above the diagonal.

    Only those blocks are multiplied, which is close to half the work; :func:`symmetric` fills in the rest. Rows of
    lower precision than the total are multiplied in their own and added in the total's.
    """
    dim = rows.shape[1]
    if dim > 128 and rows.dtype == torch.float32 and has_wide_products(rows):
        # In pieces, because products of fewer rows are both rounded less and faster.
        for part in rows.split(WIDE_ROWS):
            columns = part.T.contiguous()
            for start in range(0, dim, WIDE_BLOCK):
                block = columns[start : start + WIDE_BLOCK]
                total[start : start + WIDE_BLOCK, start:].add_(_wide_products(block, columns[start:]))
        return
    width = dim if dim <= 128 else max(128, -(-dim // 8))
    for start in range(0, dim, width):
        stop = min(start + width, dim)
        if rows.dtype == total.dtype:
            total[start:stop, start:].addmm_(rows[:, start:stop].T, rows[:, start:])
        else:
            total[start:stop, start:].add_(rows[:, start:stop].T @ rows[:, start:])


def has_wide_products(rows: Tensor) -> bool:
    """Whether oneDNN can multiply these rows: on x86 it takes the widest vectors that the processor has.

    The BLAS of torch does so on processors of one maker alone, and takes twice the time on the others.
    """
    return type(rows) is Tensor and rows.device.type == "cpu" and _ONEDNN and bool(torch.backends.mkldnn.enabled)


def _wide_products(left: Float[Tensor, "a n"], right: Float[Tensor, "b n"]) -> Float[Tensor, "a b"]:
    """``left right'``."""
    return torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")


def symmetric(total: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The full symmetric matrix whose upper triangle :func:`add_gram` accumulated."""
    upper = total.triu()
    return upper + upper.triu(1).T


def well_conditioned(matrix: Float[Tensor, "d d"]) -> bool:
    """Whether products in float32 are enough for a scatter matrix: no direction has 1e-5 of another's variance.

    Such products are right to 1e-7 of the largest entries, which is then 1 % of the least variance at worst. Only the
    diagonal and what is above it are read.
    """
    size = float(matrix.diagonal().max()) or 1.0
    factor, failed = torch.linalg.cholesky_ex((matrix / size).to("cpu", torch.float32), upper=True)
    pivots = factor.diagonal()
    return int(failed) == 0 and float(pivots.min()) ** 2 > 1e-5 * float(pivots.max()) ** 2


def enough_for_nc1(matrix: Float[Tensor, "d d"], directions: Float[Tensor, "d r"], values: Float[Tensor, " r"]) -> bool:
    """Whether a scatter of float32 products gives nc1 = sum_i v_i' S v_i / s_i^2 to 1e-5, in the worst case.

    Each v_i' S v_i is off by at most some 1e-7 of the largest variance, whatever its own size.
    """
    inverse = (values[0] / values).square()
    along = ((matrix @ directions) * directions).sum(0)
    return bool(matrix.diagonal().max() * inverse.sum() <= 100 * (along @ inverse))


class Scatter:
    """sum over samples of (h - m_y)(h - m_y)', grown by Gram matrices only: nothing is ever subtracted.

    The rows to add come from :class:`Moments`: they carry the move of the class means.
    """

    def __init__(self, dim: int, device: torch.device | None = None):
        self.total = torch.zeros(dim, dim, dtype=torch.float64, device=device)
        self._waiting: Tensor | None = None
        self._filled = 0

    def room(self, count: int, dtype: torch.dtype) -> Float[Tensor, "n d"] | None:
        """Where to write rows to be added before the next call; ``None`` for more than may wait."""
        if self._filled + count > WAITING:
            self._flush()
        if count > WAITING:
            return None
        if self._waiting is None:
            self._waiting = torch.empty(WAITING, self.total.shape[0], dtype=dtype, device=self.total.device)
        self._filled += count
        return self._waiting[self._filled - count : self._filled]

    def _flush(self) -> None:
        if self._waiting is not None and self._filled:
            add_gram(self.total, self._waiting[: self._filled])
        self._filled = 0

    def add(self, rows: Float[Tensor, "n d"]) -> None:
        """Add the Gram matrix of ``rows``."""
        for start in range(0, rows.shape[0], 4096):
            add_gram(self.total, rows[start : start + 4096])

    def merge(self, other: "Scatter") -> None:
        """Add another scatter; the distance of the means is added by :meth:`add`."""
        other._flush()
        self.total += other.total.to(self.total.device)

    def result(self) -> Float[Tensor, "d d"]:
        """The symmetric sum."""
        self._flush()
        return symmetric(self.total)

    def state(self) -> dict[str, Tensor]:
        """The sum by name."""
        self._flush()
        return {"scatter": self.total}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Take over a sum."""
        self.total, self._waiting, self._filled = state["scatter"], None, 0

    def to(self, device: torch.device) -> None:
        """Move the sum."""
        self._flush()
        self._waiting = None
        self.total = self.total.to(device)

    def all_reduce(self, group: Group = None) -> None:
        """Sum over processes whose scatters are about the same means."""
        self._flush()
        (self.total,) = sum_over([self.total], group)
