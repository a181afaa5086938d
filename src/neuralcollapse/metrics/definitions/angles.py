"""Equal norms, equal angles, maximal angles: the parts of NC2 as Papyan, Han and Donoho (2020) plot them."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ._geometry import Geometry, NotApplicableError
from ._pairs import PairSum, Rows, Tile
from ._registry import define

PAPER = "Papyan, Han and Donoho 2020"


def equinorm(rows: Float[Tensor, "K d"]) -> float:
    """Standard deviation of the row norms (over K, not K-1) divided by their mean."""
    norms = (rows / rows.abs().max()).square().sum(1).sqrt()
    return float(norms.std(correction=0) / norms.mean())


def unit_rows(geometry: Geometry, rows: Float[Tensor, "K d"]) -> Float[Tensor, "K d"]:
    """Rows, one a class, of unit length; a zero row has no direction."""
    scaled = rows / rows.abs().max()
    norms = scaled.square().sum(1, keepdim=True).sqrt()
    check_directions(geometry, norms[:, 0])
    return scaled / norms


def check_directions(geometry: Geometry, lengths: Float[Tensor, " K"]) -> None:
    """Raise unless every row, of these lengths, has a direction."""
    zero = (lengths == 0).nonzero()
    if zero.shape[0]:
        label = geometry.number_of(int(zero[0]))
        raise NotApplicableError(f"the vector of class {label} is zero, so it has no direction")


class MeanAngles(PairSum):
    """Sums over pairs of different class means of (cos - mean cos)^2 and |cos + 1/(K-1)|."""

    def __init__(self, geometry: Geometry, vectors: Rows):
        _ = geometry.require_directions() if self.of == "means" else geometry.require_weight()
        check_directions(geometry, vectors.lengths)
        self.pairs = vectors.count * (vectors.count - 1)
        self._mean, self._ideal = vectors.mean_cosine, -1.0 / (vectors.count - 1)
        self._squares = self._apart = 0.0

    def add(self, tile: Tile) -> None:
        """Add the deviations of a tile's cosines; the mean is known, so none comes from a cancellation."""
        values = tile.without_own(tile.cosines - self._mean, 0.0)
        self._squares += tile.orders * float(torch.linalg.vector_norm(values)) ** 2
        torch.sub(tile.cosines, self._ideal, out=values)
        self._apart += tile.orders * float(tile.without_own(values.abs_(), 0.0).sum())

    def equiangular(self) -> float:
        """Standard deviation of the cosines between different rows."""
        return math.sqrt(self._squares / self.pairs)

    def max_angle(self) -> float:
        """Mean of |cosine + 1/(K-1)| over different rows."""
        return self._apart / self.pairs


class WeightAngles(MeanAngles):
    """The same of the rows of the classifier."""

    of = "weight"


EQUINORM = "std of |x_k| / mean of |x_k|"
EQUIANGULAR = "std over k != j of cos(x_k, x_j)"
MAX_ANGLE = "mean over k != j of |cos(x_k, x_j) + 1/(K-1)|"
ROWS = {
    "weight": (WeightAngles, "x_k the rows of W", "a normal classifier", ("weight",)),
    "means": (MeanAngles, "x_k the centred class means", "normal features", ()),
}
for _of, (_kind, _whose, _random, _needs) in ROWS.items():

    @define(
        f"equinorm_{_of}",
        property="NC2 geometry",
        definition=f"{EQUINORM}, {_whose}",
        paper=PAPER,
        at_random=f"about 1/sqrt(2d) for {_random}",
        needs=_needs,
    )
    def _equinorm(geometry: Geometry, of: str = _of) -> float:
        return equinorm(geometry.require_weight() if of == "weight" else geometry.require_means())

    @define(
        f"equiangular_{_of}",
        property="NC2 geometry",
        definition=f"{EQUIANGULAR}, {_whose}",
        paper=PAPER,
        highest=1.0,
        at_random=f"about 1/sqrt(d) for {_random}",
        needs=_needs,
        pairs=(_kind,),
    )
    def _equiangular(geometry: Geometry, kind: type[MeanAngles] = _kind) -> float:
        return geometry.pair_sum(kind).equiangular()

    @define(
        f"max_angle_{_of}",
        property="NC2 geometry",
        definition=f"{MAX_ANGLE}, {_whose}",
        paper=PAPER,
        highest=2.0,
        at_random=f"about sqrt(2/(pi d)) for large K for {_random}",
        needs=_needs,
        pairs=(_kind,),
    )
    def _max_angle(geometry: Geometry, kind: type[MeanAngles] = _kind) -> float:
        return geometry.pair_sum(kind).max_angle()
