"""NC2: the distance of a normalised Gram matrix from that of a simplex ETF."""

import math

from ._geometry import Geometry, gram_distance
from ._registry import define


def gaussian_nc2(num_classes: int, per_class: int, dim: int) -> float:
    """What independent standard normal rows give, to first order (THEORY: exact to 1-3 % from K = 5 on)."""
    return math.sqrt(2 - 2 * math.sqrt(dim * (num_classes - 1) / (num_classes * (dim + num_classes + 1))))


@define(
    "nc2",
    property="NC2 geometry",
    definition="| WW'/|WW'|_F - (I - 11'/K)/sqrt(K-1) |_F",
    paper="geometric (Zhu et al. 2021); losses and normalized with the root and the 1/K restored",
    highest=math.sqrt(2),
    at_random="about sqrt(2 - 2 sqrt(d(K-1)/(K(d+K+1)))) for a normal classifier",
    needs=("weight",),
    random_value=gaussian_nc2,
)
def nc2(geometry: Geometry) -> float:
    """Of the classifier, not centred: a common component of its rows counts as a deviation."""
    weight = geometry.require_weight()
    geometry.require_etf()
    return gram_distance(weight, weight)


@define(
    "nc2_means",
    property="NC2 geometry",
    definition="| MM'/|MM'|_F - (I - 11'/K)/sqrt(K-1) |_F, M the centred class means",
    paper="geometric (Zhu et al. 2021), on the features' side",
    highest=math.sqrt(2),
    at_random="below nc2 of a normal classifier, since M is centred",
)
def nc2_means(geometry: Geometry) -> float:
    """The same for the centred class means."""
    means = geometry.require_means()
    geometry.require_etf()
    return gram_distance(means, means)
