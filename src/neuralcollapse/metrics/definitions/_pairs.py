"""One pass over all pairs of K vectors, for everything that is a sum or a minimum over them.

The pass is K^2 d / 2 multiplications in float64, tile by tile: a tile holds the products of one block of rows with
another, never K x K of them, and everyone who asked reads it before the next is made.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from ._geometry import Geometry

__all__ = ["PairSum", "Rows", "Tile", "add_pairs"]

TILE = 512
CLOSE = 1e-6
"""Squared distances below this part of the squared lengths are made from differences: products lose their digits."""


class Rows:
    """K vectors, divided by their largest entry so that nothing overflows, and their lengths."""

    def __init__(self, rows: Float[Tensor, "K d"]):
        lowest, highest = torch.aminmax(rows)
        self.size = max(-float(lowest), float(highest)) or 1.0
        self.rows = rows / self.size
        self.squares = torch.cat([part.square().sum(1) for part in self.rows.split(TILE)])
        self.lengths = self.squares.sqrt()

    @property
    def count(self) -> int:
        """K."""
        return self.rows.shape[0]

    @cached_property
    def mean_cosine(self) -> float:
        """The mean cosine of two different rows, from the length of the sum of unit rows."""
        total = (1 / self.lengths) @ self.rows
        return (float(total.square().sum()) - self.count) / (self.count * (self.count - 1))

    def tiles(self) -> Iterator["Tile"]:
        """Tiles on and above the diagonal."""
        for start in range(0, self.count, TILE):
            for other in range(start, self.count, TILE):
                yield Tile(self, start, other)


@dataclass(frozen=True, eq=False)
class Tile:
    """The pairs (k, j) with k from ``start`` and j from ``other`` on; one on the diagonal has both orders of a pair."""

    vectors: Rows
    start: int
    other: int

    @property
    def left(self) -> slice:
        """The numbers k."""
        return slice(self.start, min(self.start + TILE, self.vectors.count))

    @property
    def right(self) -> slice:
        """The numbers j."""
        return slice(self.other, min(self.other + TILE, self.vectors.count))

    @property
    def orders(self) -> int:
        """How often a sum over the tile counts: a pair off the diagonal stands for (k, j) and (j, k)."""
        return 1 if self.start == self.other else 2

    def without_own(self, values: Float[Tensor, "a b"], value: float) -> Float[Tensor, "a b"]:
        """The same tensor with ``value`` where a row meets itself."""
        return values.fill_diagonal_(value) if self.start == self.other else values

    @cached_property
    def products(self) -> Float[Tensor, "a b"]:
        """<x_k, x_j> of the scaled rows."""
        return self.vectors.rows[self.left] @ self.vectors.rows[self.right].T

    @cached_property
    def distances(self) -> Float[Tensor, "a b"]:
        """|x_k - x_j|^2 of the scaled rows, infinite for k = j; zero only where the rows are equal."""
        squares = self.vectors.squares
        scale = squares[self.left, None] + squares[None, self.right]
        found = torch.sub(scale, self.products, alpha=2)
        first, second = self._pairs(found < scale.mul_(CLOSE))
        if first.shape[0]:
            rows = self.vectors.rows
            found[first, second] = (rows[first + self.start] - rows[second + self.other]).square().sum(1)
        return self.without_own(found, torch.inf)

    @cached_property
    def cosines(self) -> Float[Tensor, "a b"]:
        """<x_k, x_j> / |x_k||x_j|."""
        lengths = self.vectors.lengths
        return self.products / lengths[self.left, None] / lengths[None, self.right]

    @cached_property
    def unit_distances(self) -> Float[Tensor, "a b"]:
        """|u_k - u_j|^2 of the unit rows; 2 for k = j."""
        found = 2 - 2 * self.cosines
        first, second = self._pairs(found < 1e-4)
        if first.shape[0]:
            rows, lengths = self.vectors.rows, self.vectors.lengths[:, None]
            one, two = first + self.start, second + self.other
            found[first, second] = (rows[one] / lengths[one] - rows[two] / lengths[two]).square().sum(1)
        return self.without_own(found, 2.0)

    def _pairs(self, chosen: Bool[Tensor, "a b"]) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
        """Places of the chosen pairs, without those of a row with itself."""
        if self.start == self.other:
            chosen.fill_diagonal_(False)
        first, second = chosen.nonzero(as_tuple=True)
        return first, second

    def within(self, squares: Float[Tensor, "a b"], errors: Float[Tensor, " K"]) -> tuple[int, int] | None:
        """The pair with the least squared distance, if the squared errors of its ends explain some pair's."""
        if not bool((squares <= errors[self.left, None] + errors[None, self.right]).any()):
            return None
        return self.least(squares - errors[self.left, None] - errors[None, self.right])

    def least(self, values: Float[Tensor, "a b"]) -> tuple[int, int]:
        """The pair (k, j) with the least value."""
        first, second = divmod(int(values.argmin()), values.shape[1])
        return self.start + first, self.other + second


class PairSum(ABC):
    """Something collected over pairs of classes; a metric names it in ``pairs``, and reads its attributes."""

    of: ClassVar[Literal["means", "weight"]] = "means"
    """Whose rows: the centred class means, or the classifier."""

    @abstractmethod
    def __init__(self, geometry: "Geometry", vectors: Rows):
        """Raise NotApplicableError where the sum has no meaning."""

    @abstractmethod
    def add(self, tile: Tile) -> None:
        """Read a tile."""


def add_pairs(vectors: Rows, sums: Sequence[PairSum]) -> None:
    """Show every tile to every sum."""
    if sums:
        for tile in vectors.tiles():
            for one in sums:
                one.add(tile)
