"""NC4 of the geometric paper: the bias takes back what the global mean adds to the logits."""

import math

from ._geometry import Geometry
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
