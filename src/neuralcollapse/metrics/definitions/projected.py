"""NC2 and NC3 where no simplex ETF fits, d < K-1: against its nearest rank-d projection (mse, Theorem 3.1).

The best rank-d approximations of I - 11'/K are the projectors Pi of rank d with Pi 1 = 0, all equally good;
the measure is the distance of the normalised matrix from the nearest of them, Pi/sqrt(d).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ._geometry import Geometry, NotApplicableError
from ._registry import define

PAPER = "mse (Zhou et al. 2022), Theorem 3.1 for d < K-1"


def projected_distance(left: Float[Tensor, "K d"], right: Float[Tensor, "K d"], rank: int) -> float:
    """Min over Pi of | A/|A|_F - Pi/sqrt(rank) |_F for A = left right'; Pi of that rank with Pi 1 = 0.

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
    vectors = torch.linalg.eigh((product + product.T) / 2).eigenvectors[:, -rank:]
    difference = product / size - vectors @ vectors.T / math.sqrt(rank)
    return math.sqrt(float(difference.square().sum()) + rest / size**2)


@define(
    "nc2_projected",
    property="NC2 geometry",
    definition="min over rank-d projectors Pi with Pi 1 = 0 of | WW'/|WW'|_F - Pi/sqrt(d) |_F, for d < K-1",
    paper=PAPER,
    highest=math.sqrt(2),
    at_random="about sqrt(2 - 2 sqrt(K/(d+K))) for a normal classifier",
    needs=("weight",),
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
    paper=PAPER,
    highest=math.sqrt(2),
    at_random="about sqrt(2 - 2 sqrt(K/(d+K))) for normal features",
)
def nc2_means_projected(geometry: Geometry) -> float:
    """The same for the centred class means."""
    means = geometry.require_means()
    geometry.require_no_etf()
    return projected_distance(means, means, geometry.dim)


@define(
    "nc3_projected",
    property="NC3 self-duality",
    definition="min over rank-d projectors Pi with Pi 1 = 0 of | WM'/|WM'|_F - Pi/sqrt(d) |_F, for d < K-1",
    paper=PAPER,
    highest=2.0,
    at_random="close to sqrt(2)",
    needs=("weight",),
)
def nc3_projected(geometry: Geometry) -> float:
    """Zero when W and M are the same low-rank frame up to scale."""
    weight, means = geometry.require_weight(), geometry.require_means()
    geometry.require_no_etf()
    return projected_distance(weight, means, geometry.dim)
