"""Equal norms, equal angles, maximal angles: the parts of NC2 as Papyan, Han and Donoho (2020) plot them."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from .._geometry import Geometry, NotApplicableError
from .._registry import define

PAPER = "Papyan, Han and Donoho 2020"
TILE = 1024


def equinorm(rows: Float[Tensor, "K d"]) -> float:
    """Standard deviation of the row norms (over K, not K-1) divided by their mean."""
    norms = (rows / rows.abs().max()).square().sum(1).sqrt()
    return float(norms.std(correction=0) / norms.mean())


def unit_rows(rows: Float[Tensor, "K d"]) -> Float[Tensor, "K d"]:
    """Rows of unit length; a zero row has no direction."""
    scaled = rows / rows.abs().max()
    norms = scaled.square().sum(1, keepdim=True).sqrt()
    zero = (norms[:, 0] == 0).nonzero()
    if zero.shape[0]:
        raise NotApplicableError(f"the vector of class {int(zero[0])} is zero, so it has no direction")
    return scaled / norms


def _mean_over_pairs(rows: Float[Tensor, "K d"], value: Callable[[Tensor], Tensor]) -> float:
    """The mean of ``value(cosine)`` over ordered pairs of different rows, in tiles."""
    unit = unit_rows(rows)
    count, total = unit.shape[0], 0.0
    for start in range(0, count, TILE):
        stop = min(start + TILE, count)
        cosines = unit[start:stop] @ unit.T
        own = torch.arange(start, stop)
        values = value(cosines)
        values[own - start, own] = 0.0
        total += float(values.sum())
    return total / (count * (count - 1))


def equiangular(rows: Float[Tensor, "K d"]) -> float:
    """Standard deviation of the cosines between different rows."""
    mean = _mean_over_pairs(rows, lambda cosines: cosines)
    return math.sqrt(_mean_over_pairs(rows, lambda cosines: (cosines - mean).square()))


def max_angle(rows: Float[Tensor, "K d"]) -> float:
    """Mean of |cosine + 1/(K-1)| over different rows."""
    ideal = 1.0 / (rows.shape[0] - 1)
    return _mean_over_pairs(rows, lambda cosines: (cosines + ideal).abs())


FAMILY = (
    ("equinorm", equinorm, "std of |x_k| / mean of |x_k|", math.inf, "about 1/sqrt(2d)"),
    ("equiangular", equiangular, "std over k != j of cos(x_k, x_j)", 1.0, "about 1/sqrt(d)"),
    (
        "max_angle",
        max_angle,
        "mean over k != j of |cos(x_k, x_j) + 1/(K-1)|",
        2.0,
        "about sqrt(2/(pi d)) for large K",
    ),
)
for _name, _measure, _definition, _highest, _random in FAMILY:

    @define(
        f"{_name}_weight",
        property="NC2 geometry",
        definition=f"{_definition}, x_k the rows of W",
        paper=PAPER,
        highest=_highest,
        at_random=f"{_random} for a normal classifier",
        needs=("weight",),
    )
    def _of_weight(geometry: Geometry, measure: Callable[[Tensor], float] = _measure) -> float:
        return measure(geometry.require_weight())

    @define(
        f"{_name}_means",
        property="NC2 geometry",
        definition=f"{_definition}, x_k the centred class means",
        paper=PAPER,
        highest=_highest,
        at_random=f"{_random} for normal features",
    )
    def _of_means(geometry: Geometry, measure: Callable[[Tensor], float] = _measure) -> float:
        return measure(geometry.require_means())
