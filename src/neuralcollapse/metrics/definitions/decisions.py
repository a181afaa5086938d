"""NC4 and NC5: what the classifier decides, by how much, and where other data lies.

NC4 of the geometric paper is a bias that takes back what the global mean adds to the logits; that of Papyan, Han and
Donoho is a decision for the nearest class mean. NC5 is an out-of-distribution mean orthogonal to the classes'.
"""

import math

from ._geometry import Geometry, NotApplicableError
from ._registry import define


@define(
    "nc4_bias",
    property="NC4 decisions",
    definition="| b + W h_G |",
    paper="geometric (Zhu et al. 2021)",
    at_random="sqrt(d/n) for normal features and classifier without bias",
    needs=("weight",),
    random_value=lambda num_classes, per_class, dim: math.sqrt(dim / per_class),
)
def nc4_bias(geometry: Geometry) -> float:
    """The Euclidean norm over classes, on the scale of the logits; a missing bias is zero."""
    weight = geometry.require_weight()
    logits = weight @ geometry.global_mean
    return float((logits if geometry.bias is None else logits + geometry.bias).square().sum().sqrt())


@define(
    "nc4_mismatch",
    property="NC4 decisions",
    definition="share of samples with argmax_k (w_k'h + b_k) != argmin_k |h - m_k|",
    paper="Papyan, Han and Donoho 2020",
    highest=1.0,
    at_random="1 - 1/K for a classifier that knows nothing",
    needs=("weight", "decisions"),
    random_value=lambda num_classes, per_class, dim: 1 - 1 / num_classes,
)
def nc4_mismatch(geometry: Geometry) -> float:
    """Counts over all samples that were decided, right or wrong."""
    geometry.require_weight()
    geometry.require_means()
    if geometry.samples.mismatches is None or geometry.samples.decided is None:
        raise geometry.lacking("decisions")
    return geometry.samples.mismatches / max(int(geometry.samples.decided.sum()), 1)


@define(
    "cosine_margin",
    property="NC4 decisions",
    definition="mean over samples of cos(h - h_G, w_y - w_G) - max_{j != y} cos(h - h_G, w_j - w_G)",
    paper="mse (Zhou et al. 2022)",
    better="higher",
    lowest=-2.0,
    highest=2.0,
    at_collapse=lambda num_classes: num_classes / (num_classes - 1),
    at_random="negative: minus the expected maximum of K-1 random cosines",
    needs=("weight", "margins"),
)
def cosine_margin(geometry: Geometry) -> float:
    """Features centred by the global mean h_G, the classifier by the mean w_G of its rows.

    The report also carries quantiles and the sorted curve of all margins.
    """
    weight = geometry.require_weight()
    geometry.require_means()
    centred = weight - weight.mean(0)
    norms = (centred / weight.abs().max()).square().sum(1)
    small = (norms <= (1e-14) ** 2 * weight.shape[1]).nonzero()
    if small.shape[0]:
        raise NotApplicableError(
            f"the classifier's row {geometry.number_of(int(small[0]))} equals the mean of its rows, so it has no angle"
        )
    margins = geometry.samples.margins
    if margins is None:
        raise geometry.lacking("margins")
    if margins.shape[0] == 0:
        raise NotApplicableError("every sample coincides with the global mean")
    return float(margins.mean(dtype=geometry.centred.dtype))


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
    size = means.abs().max()
    means = means / size
    norms = means.square().sum(1).sqrt()
    if not bool(other.any()) or not bool((norms > geometry.mean_errors / size).all()):
        raise NotApplicableError("a class mean or the out-of-distribution mean is zero, so it has no direction")
    other = other / other.abs().max()
    return float(((means @ other).abs() / (norms * other.square().sum().sqrt())).mean())
