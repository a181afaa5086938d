"""NC5: class means orthogonal to the mean of out-of-distribution features."""

import math

from ._geometry import Geometry, NotApplicableError
from ._registry import define


@define(
    "nc5_ood",
    property="NC5 out of distribution",
    definition="mean over classes of |cos(m_k, m_OOD)|, class means and out-of-distribution mean not centred",
    paper="Ben Ammar et al. 2024 (NECO)",
    highest=1.0,
    at_random="about sqrt(2/(pi d)) for normal features",
    needs=("out_of_distribution",),
    random_value=lambda num_classes, per_class, dim: math.sqrt(2 / (math.pi * dim)),
)
def nc5_ood(geometry: Geometry) -> float:
    """Zero when the out-of-distribution mean is orthogonal to every class mean."""
    geometry.require_means()
    other = geometry.out_of_distribution_mean
    if other is None:
        raise geometry.lacking("out_of_distribution")
    means = geometry.centred + geometry.global_mean
    means = means / means.abs().max()
    norms = means.square().sum(1).sqrt()
    if not bool(other.any()) or not bool((norms > 0).all()):
        raise NotApplicableError("a class mean or the out-of-distribution mean is zero, so it has no direction")
    other = other / other.abs().max()
    return float(((means @ other).abs() / (norms * other.square().sum().sqrt())).mean())
