"""NC2 and NC3 where collapse is no simplex ETF: unbalanced classes (SELI), and more classes than fit, d < K-1.

For d < K-1 the best rank-d approximations of I - 11'/K are the projectors Pi of rank d with Pi 1 = 0, all equally good
(mse, Theorem 3.1); the measure is the distance of the normalised matrix from the nearest of them, Pi/sqrt(d).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..._support.numerics import eigh
from ...frames import seli
from ._geometry import Geometry, NotApplicableError
from ._registry import define
from .simplex import gaussian_nc2

SELI_PAPER = "Thrampoulidis et al. 2022"


def _frames(geometry: Geometry) -> tuple[Float[Tensor, "K r"], Float[Tensor, "K r"]]:
    geometry.require_means()
    geometry.require_etf()
    return seli(geometry.counts.to(torch.float64))


def _direction_distance(rows: Float[Tensor, "K d"], ideal: Float[Tensor, "K r"]) -> float:
    """| XX'/|XX'|_F - YY'/|YY'|_F |_F."""
    size = rows.abs().max()
    if float(size) == 0.0:
        raise NotApplicableError("all rows are the same")
    first, second = (rows / size) @ (rows / size).T, ideal @ ideal.T
    return float((first / first.square().sum().sqrt() - second / second.square().sum().sqrt()).square().sum().sqrt())


@define(
    "seli_weight",
    property="NC2 geometry",
    definition="| WW'/|WW'|_F - S/|S|_F |_F, S = (PDP)^(1/2), P = I - 11'/K, D = diag(n_k)",
    paper=SELI_PAPER,
    highest=math.sqrt(2),
    at_random="that of nc2, for equal counts",
    needs=("weight",),
    random_value=gaussian_nc2,
    core=False,
)
def seli_weight(geometry: Geometry) -> float:
    """Zero at the limit of vanishing decay, whatever the counts; nc2 for equal counts."""
    return _direction_distance(geometry.require_weight(), _frames(geometry)[0])


@define(
    "seli_means",
    property="NC2 geometry",
    definition="| MM'/|MM'|_F - S/|S|_F |_F, S = (PDP)^(+1/2), M the class means minus the mean of them",
    paper=SELI_PAPER,
    highest=math.sqrt(2),
    at_random="that of nc2_means, for equal counts",
    core=False,
)
def seli_means(geometry: Geometry) -> float:
    """The class means of SELI have mean zero over classes, so that is what is taken off."""
    means = geometry.require_means()
    return _direction_distance(means - means.mean(0), _frames(geometry)[1])


PROJECTED_PAPER = "mse (Zhou et al. 2022), Theorem 3.1 for d < K-1"


def projected_distance(left: Float[Tensor, "K d"], right: Float[Tensor, "K d"], rank: int) -> float:
    """min over Pi of | A/|A|_F - Pi/sqrt(rank) |_F for A = left right'; Pi of that rank with Pi 1 = 0.

    The best Pi projects on the leading eigenvectors of the symmetric part of A off the ones vector. All
    matrices live in the span of 1 and the columns of both factors, so the work is K (2d)^2 and no K x K
    matrix is formed for K > 2d.
    """
    left, right = left / left.abs().max(), right / right.abs().max()
    count = left.shape[0]
    ones = torch.full((count, 1), count**-0.5, dtype=left.dtype)
    factors = [left] if left is right or torch.equal(left, right) else [left, right]
    columns = torch.cat([factor - factor.mean(0) for factor in factors], dim=1)
    if columns.shape[1] < count:
        inside = torch.linalg.qr(columns).Q
        inside = inside - ones @ (ones.T @ inside)
    else:
        inside = torch.linalg.qr(torch.cat([ones, torch.eye(count, dtype=left.dtype)[:, 1:]], dim=1)).Q[:, 1:]
    # A in coordinates (inside, ones): the block inside, and the rest of its squares.
    same = factors[0] is factors[-1]
    inner_left, ones_left = inside.T @ left, ones.T @ left
    inner_right, ones_right = (inner_left, ones_left) if same else (inside.T @ right, ones.T @ right)
    product = inner_left @ inner_right.T
    crossing = (inner_left @ ones_right.T, ones_left @ inner_right.T, ones_left @ ones_right.T)
    rest = sum(float(block.square().sum()) for block in crossing)
    size = math.sqrt(float(product.square().sum()) + rest)
    if size == 0.0:
        raise NotApplicableError("the product of the two matrices is zero")
    vectors = eigh((product + product.T) / 2)[1][:, -rank:]
    difference = product / size - vectors @ vectors.T / math.sqrt(rank)
    return math.sqrt(float(difference.square().sum()) + rest / size**2)


def gaussian_projected(num_classes: int, per_class: int, dim: int) -> float:
    """About what independent normal rows give: the nuclear norm of WW' against its norm."""
    return math.sqrt(2 - 2 * math.sqrt(num_classes / (dim + num_classes)))


@define(
    "nc2_projected",
    property="NC2 geometry",
    definition="min over rank-d projectors Pi with Pi 1 = 0 of | WW'/|WW'|_F - Pi/sqrt(d) |_F, for d < K-1",
    paper=PROJECTED_PAPER,
    highest=math.sqrt(2),
    at_random="about sqrt(2 - 2 sqrt(K/(d+K))) for a normal classifier",
    needs=("weight",),
    random_value=gaussian_projected,
)
def nc2_projected(geometry: Geometry) -> float:
    """Of the classifier, not centred."""
    weight = geometry.require_weight()
    geometry.require_no_etf()
    return projected_distance(weight, weight, geometry.dim)


@define(
    "nc2_means_projected",
    property="NC2 geometry",
    definition="min over rank-d projectors Pi with Pi 1 = 0 of | MM'/|MM'|_F - Pi/sqrt(d) |_F, for d < K-1",
    paper=PROJECTED_PAPER,
    highest=math.sqrt(2),
    at_random="about sqrt(2 - 2 sqrt(K/(d+K))) for normal features",
    random_value=gaussian_projected,
)
def nc2_means_projected(geometry: Geometry) -> float:
    """The same for the centred class means."""
    means = geometry.require_means()
    geometry.require_no_etf()
    return projected_distance(means, means, geometry.dim)


def gaussian_projected_duality(num_classes: int, per_class: int, dim: int) -> float:
    """A fit to draws of normal features and classifiers, to some per cent; 1 and sqrt(2) at the ends are exact."""
    share = dim / num_classes
    return math.sqrt(1 + (share + share**5) / 2)


@define(
    "nc3_projected",
    property="NC3 self-duality",
    definition="min over rank-d projectors Pi with Pi 1 = 0 of | WM'/|WM'|_F - Pi/sqrt(d) |_F, for d < K-1",
    paper=PROJECTED_PAPER,
    highest=2.0,
    at_random="from 1 for d << K to sqrt(2) for d near K",
    needs=("weight",),
    random_value=gaussian_projected_duality,
)
def nc3_projected(geometry: Geometry) -> float:
    """Zero when W and M are the same low-rank frame up to scale."""
    weight, means = geometry.require_weight(), geometry.require_means()
    geometry.require_no_etf()
    return projected_distance(weight, means, geometry.dim)
