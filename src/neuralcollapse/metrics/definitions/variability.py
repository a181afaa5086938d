"""NC1: the spread within classes against the distance between them.

``nc1`` is that of the four papers, on the span of the class means; ``nc1_quotient`` takes traces, so no direction is
weighted up; ``cdnv`` looks at pairs of classes, and ``numerical_rank`` at each class alone.
"""

from jaxtyping import Float
from torch import Tensor

from ._geometry import Geometry, NotApplicableError
from ._pairs import PairSum, Rows, Tile
from ._registry import define


def gaussian_nc1(num_classes: int, per_class: int, dim: int) -> float:
    """Expected nc1 of independent standard normal features; infinite for K-2 <= d <= K."""
    if dim > num_classes:
        return (per_class - 1) * (num_classes - 1) / (dim - num_classes)
    if dim < num_classes - 2:
        return (per_class - 1) * dim / (num_classes - 2 - dim)
    return float("inf")


@define(
    "nc1",
    property="NC1 variability",
    definition="tr(S_W S_B^+)/K, S_W = (1/N) sum (h - m_y)(h - m_y)', S_B = (1/K) sum (m_k-h_G)(m_k-h_G)'",
    paper="Papyan, Han and Donoho 2020; geometric (Zhu et al. 2021), mse, losses, normalized",
    at_random="(n-1)(K-1)/(d-K) for d > K, (n-1)d/(K-2-d) for d < K-2, in the mean over normal features",
    needs=("projection", "within"),
    random_value=gaussian_nc1,
)
def nc1(geometry: Geometry) -> float:
    """sum_i v_i' S_W v_i / s_i^2, with s_i, v_i the singular values and right vectors of the centred means.

    This is tr(S_W S_B^+)/K without forming S_B or its pseudo-inverse: the float64 SVD of the means sees s_i,
    where an eigendecomposition of S_B would see s_i^2 and lose half of the digits. Directions in which the means
    differ by less than the rounding of the features do not count: noise over noise would add n/K for each.
    """
    geometry.require_spread()
    spectrum = geometry.require_spectrum()
    along = geometry.samples.along
    if along is not None:
        return float((along[: geometry.rank] / spectrum.values.square()).sum())
    if geometry.scatter is None:
        raise geometry.lacking("projection")
    scaled = spectrum.directions / spectrum.values
    return float(((geometry.scatter @ scaled) * scaled).sum().clamp(min=0))


@define(
    "nc1_quotient",
    property="NC1 variability",
    definition="tr S_W / tr S_B",
    paper="Tirer, Huang and Niles-Weed 2023",
    at_random="(n-1)K/(K-1) for normal features of n samples a class",
    needs=("within",),
    random_value=lambda num_classes, per_class, dim: (per_class - 1) * num_classes / (num_classes - 1),
)
def nc1_quotient(geometry: Geometry) -> float:
    """Mean squared distance to the own class mean, over that of the class means to the global mean."""
    geometry.require_spread()
    within = geometry.class_variances @ geometry.counts.to(geometry.class_variances.dtype) / geometry.total
    size = geometry.centred.abs().max()
    between = (geometry.centred / size).square().sum() / geometry.num_classes
    return float(within / size / size / between)


class ClassDistances(PairSum):
    """The sum over k != j of (var_k + var_j) / (2 |m_k - m_j|^2)."""

    touching = "coincide"

    def __init__(self, geometry: Geometry, vectors: Rows):
        geometry.require_spread()
        self.variances = geometry.class_variances / vectors.size / vectors.size
        self.noise: Float[Tensor, " K"] | None = None
        self._errors = (geometry.mean_errors / vectors.size).square()
        self.total = 0.0
        self.pairs = vectors.count * (vectors.count - 1)
        self.too_close: tuple[int, int] | None = None

    def add(self, tile: Tile) -> None:
        """Add 1/|m_k - m_j|^2 to both classes' variances."""
        left, right, distances = tile.left, tile.right, tile.distances
        if self.too_close is None:
            self.too_close = tile.within(distances, self._errors)
        if self.noise is not None:
            distances = distances - self.noise[left, None] - self.noise[None, right]
        if self.too_close is None and float(distances.min()) <= 0.0:
            self.too_close = tile.least(distances)
        inverse = distances.reciprocal()
        sums = self.variances[left] @ inverse.sum(1) + self.variances[right] @ inverse.sum(0)
        self.total += tile.orders * float(sums) / 2

    def mean(self, geometry: Geometry) -> float:
        """The mean over pairs."""
        if self.too_close is not None:
            k, j = map(geometry.number_of, self.too_close)
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
    return geometry.pair_sum(ClassDistances).mean(geometry)


@define(
    "numerical_rank",
    property="NC1 variability",
    definition="mean over classes of |H_k|_*^2 / |H_k|_F^2 (nuclear and Frobenius norms of class k)",
    paper="mse (Zhou et al. 2022)",
    lowest=1.0,
    at_collapse=1.0,
    at_random="somewhat below min(n, d)",
    needs=("ranks",),
    core=False,
)
def numerical_rank(geometry: Geometry) -> float:
    """One when every class is a single direction; the features are not centred."""
    geometry.require_means()
    if int(geometry.counts.max()) < 2:
        raise NotApplicableError("every class has a single sample, so every class has rank one")
    ranks = geometry.samples.ranks
    if ranks is None:
        raise geometry.lacking("ranks")
    zero = (ranks == 0).nonzero()
    if zero.shape[0]:
        raise NotApplicableError(
            f"all features of class {geometry.number_of(int(zero[0]))} are zero, so its rank is not defined"
        )
    return float(ranks.mean())
