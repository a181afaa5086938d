"""NC1 of the four papers: within-class against between-class covariance, on the span of the class means."""

from ._geometry import Geometry
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
