"""NC4 of Papyan, Han and Donoho: does the classifier decide for the nearest class mean?"""

from ._geometry import Geometry
from ._registry import define


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
