"""NC3: self-duality of classifier and class means."""

import math

from ._geometry import Geometry, gram_distance
from ._registry import define


@define(
    "nc3",
    property="NC3 self-duality",
    definition="| WM'/|WM'|_F - (I - 11'/K)/sqrt(K-1) |_F, M the centred class means",
    paper="geometric (Zhu et al. 2021); losses and normalized with the root and the 1/K restored",
    highest=2.0,
    at_random="sqrt(2): classifier and means have nothing in common",
    needs=("weight",),
    random_value=lambda num_classes, per_class, dim: math.sqrt(2),
)
def nc3(geometry: Geometry) -> float:
    """Zero when W and M are the same simplex ETF up to scale."""
    weight, means = geometry.require_weight(), geometry.require_means()
    geometry.require_etf()
    return gram_distance(weight, means)


@define(
    "nc3_frobenius",
    property="NC3 self-duality",
    definition="| W/|W|_F - M/|M|_F |_F^2, M the centred class means",
    paper="Papyan, Han and Donoho 2020",
    highest=4.0,
    at_random="2: classifier and means have nothing in common",
    needs=("weight",),
    random_value=lambda num_classes, per_class, dim: 2.0,
)
def nc3_frobenius(geometry: Geometry) -> float:
    """Zero when W is proportional to M, simplex or not."""
    weight, means = geometry.require_weight(), geometry.require_means()
    weight, means = weight / weight.abs().max(), means / means.abs().max()
    difference = weight / weight.square().sum().sqrt() - means / means.square().sum().sqrt()
    return float(difference.square().sum())
