"""NC2 for unbalanced classes: the distance of a Gram matrix from that of the SELI geometry at the same counts."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ...frames import seli
from ._geometry import Geometry, NotApplicableError
from ._registry import define
from .nc2 import gaussian_nc2

PAPER = "Thrampoulidis et al. 2022"


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
    paper=PAPER,
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
    paper=PAPER,
    highest=math.sqrt(2),
    at_random="that of nc2_means, for equal counts",
    core=False,
)
def seli_means(geometry: Geometry) -> float:
    """The class means of SELI have mean zero over classes, so that is what is taken off."""
    means = geometry.require_means()
    return _direction_distance(means - means.mean(0), _frames(geometry)[1])
