"""NC1 as a quotient of traces: no pseudo-inverse, so no direction is weighted up."""

from ._geometry import Geometry
from ._registry import define


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
