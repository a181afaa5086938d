"""Class-distance normalised variance."""

from jaxtyping import Float
from torch import Tensor

from ._geometry import Geometry, NotApplicableError
from ._pairs import PairSum, Rows, Tile
from ._registry import define


class ClassDistances(PairSum):
    """The sum over k != j of (var_k + var_j) / (2 |m_k - m_j|^2)."""

    touching = "coincide"

    def __init__(self, geometry: Geometry, vectors: Rows):
        geometry.require_spread()
        self.variances = geometry.class_variances / vectors.size / vectors.size
        self.noise: Float[Tensor, " K"] | None = None
        self.total = 0.0
        self.pairs = vectors.count * (vectors.count - 1)
        self.too_close: tuple[int, int] | None = None

    def add(self, tile: Tile) -> None:
        """Add 1/|m_k - m_j|^2 to both classes' variances."""
        left, right, distances = tile.left, tile.right, tile.distances
        if self.noise is not None:
            distances = distances - self.noise[left, None] - self.noise[None, right]
        if self.too_close is None and float(distances.min()) <= 0.0:
            self.too_close = tile.least(distances)
        inverse = distances.reciprocal()
        sums = self.variances[left] @ inverse.sum(1) + self.variances[right] @ inverse.sum(0)
        self.total += tile.orders * float(sums) / 2

    def mean(self) -> float:
        """The mean over pairs."""
        if self.too_close is not None:
            k, j = self.too_close
            raise NotApplicableError(f"the means of classes {k} and {j} {self.touching}")
        return self.total / self.pairs


@define(
    "cdnv",
    property="NC1 variability",
    definition="mean over k != j of (var_k + var_j) / (2 |m_k - m_j|^2), var_k the mean square of |h - m_k|",
    paper="Galanti, Gyorgy and Hutter 2021",
    at_random="(n-1)/2 for normal features of n samples a class in many dimensions",
    needs=("within",),
    random_value=lambda num_classes, per_class, dim: (per_class - 1) / 2 * dim / max(dim - 2, 1),
    pairs=(ClassDistances,),
)
def cdnv(geometry: Geometry) -> float:
    """The mean over ordered pairs of classes."""
    return geometry.pair_sum(ClassDistances).mean()
