"""NC0, NC2 and NC3: classifier and class means against a simplex ETF, and against each other.

``nc0`` is the sum of the classifier's rows, which gives what NC2 cannot fall below while it is not zero.
"""

import math

from jaxtyping import Float
from torch import Tensor

from ._geometry import Geometry, distance_from_simplex
from ._registry import define


def gaussian_floor(num_classes: int, per_class: int, dim: int) -> float:
    """What independent standard normal rows give, to first order."""
    share = (2 - (dim + 2) / (dim + num_classes + 1)) / num_classes
    return floor_of_share(share)


def floor_of_share(share: float) -> float:
    """sqrt(2 - 2 sqrt(1 - r^2)), without the loss of digits at small r."""
    share = min(max(share, 0.0), 1.0)
    return math.sqrt(2 * share / (1 + math.sqrt(1 - share)))


def nc2_floor_of(weight: Float[Tensor, "K d"]) -> float:
    """The least NC2 that classifiers with this part along the ones vector can have.

    With S = WW' and s = sum_k w_k, the rows and columns of S along 1 hold the share
    r^2 = (2 |W s|^2/K - |s|^4/K^2) / |S|_F^2 of its squares, and the simplex has none there: the rest of the
    normalised S is at most sqrt(1 - r^2) long, so nc2^2 >= 2 - 2 sqrt(1 - r^2).
    """
    scaled = weight / weight.abs().max()
    count = weight.shape[0]
    total = scaled.sum(0)
    gram = scaled @ scaled.T if count <= scaled.shape[1] else scaled.T @ scaled
    along = 2 * (scaled @ total).square().sum() / count - total.square().sum().square() / count**2
    return floor_of_share(float(along / gram.square().sum()))


@define(
    "nc0",
    property="NC2 geometry",
    definition="|sum_k w_k| / |W|_F",
    paper="Zhao et al. 2026",
    at_random="1 for a normal classifier",
    needs=("weight",),
    random_value=lambda num_classes, per_class, dim: 1.0,
)
def nc0(geometry: Geometry) -> float:
    """Zero when the rows sum to zero; under cross-entropy only weight decay moves that sum. At most sqrt(K)."""
    weight = geometry.require_weight()
    scaled = weight / weight.abs().max()
    return float(scaled.sum(0).square().sum().sqrt() / scaled.square().sum().sqrt())


@define(
    "nc2_floor",
    property="NC2 geometry",
    definition="sqrt(2 - 2 sqrt(1 - r^2)), r^2 = (2|Ws|^2/K - |s|^4/K^2)/|WW'|_F^2, s = sum_k w_k: a bound of nc2",
    paper="this package, from nc0 of Zhao et al. 2026",
    highest=math.sqrt(2),
    at_random="sqrt(2 - 2 sqrt(1 - r^2)) with r^2 about (2 - (d+2)/(d+K+1))/K for a normal classifier",
    needs=("weight",),
    random_value=gaussian_floor,
)
def nc2_floor(geometry: Geometry) -> float:
    """What NC2 cannot fall below without a change of the sum of the rows."""
    weight = geometry.require_weight()
    geometry.require_etf()
    return nc2_floor_of(weight)


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
    return distance_from_simplex(weight, weight)


def gaussian_nc2_means(num_classes: int, per_class: int, dim: int) -> float:
    """The same for centred rows: the spread of the K-1 eigenvalues of a Wishart matrix against their mean."""
    spread = (num_classes - 2) * (num_classes + 1) / (dim * (num_classes - 1) + 2)
    return math.sqrt(2 - 2 / math.sqrt(1 + spread))


@define(
    "nc2_means",
    property="NC2 geometry",
    definition="| MM'/|MM'|_F - (I - 11'/K)/sqrt(K-1) |_F, M the centred class means",
    paper="geometric (Zhu et al. 2021), on the features' side",
    highest=math.sqrt(2),
    at_random="about sqrt(2 - 2/sqrt(1 + (K-2)(K+1)/(d(K-1)+2))) for normal features",
    random_value=gaussian_nc2_means,
)
def nc2_means(geometry: Geometry) -> float:
    """The same for the centred class means."""
    means = geometry.require_means()
    geometry.require_etf()
    return distance_from_simplex(means, means)


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
    return distance_from_simplex(weight, means)


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
