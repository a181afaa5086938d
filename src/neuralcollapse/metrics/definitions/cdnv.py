"""Class-distance normalised variance."""

import torch
from jaxtyping import Float
from torch import Tensor

from .._geometry import Geometry, NotApplicableError
from .._registry import define

TILE = 1024


@define(
    "cdnv",
    property="NC1 variability",
    definition="mean over k != j of (var_k + var_j) / (2 |m_k - m_j|^2), var_k the mean square of |h - m_k|",
    paper="Galanti, Gyorgy and Hutter 2021",
    at_random="(n-1)/2 for normal features of n samples a class in many dimensions",
    needs=("within",),
    random_value=lambda num_classes, per_class, dim: (per_class - 1) / 2 * dim / max(dim - 2, 1),
)
def cdnv(geometry: Geometry) -> float:
    """The mean over ordered pairs of classes, in tiles of 1024 so that many classes need no K x K matrix."""
    geometry.require_spread()
    return mean_over_pairs(geometry.centred, geometry.class_variances)


def mean_over_pairs(
    centred: Float[Tensor, "K d"], variances: Float[Tensor, " K"], noise: Float[Tensor, " K"] | None = None
) -> float:
    """Mean over k != j of (var_k + var_j) / (2 (|m_k - m_j|^2 - noise_k - noise_j))."""
    size = centred.abs().max()
    means, variance = centred / size, variances / size**2
    squares = means.square().sum(1)
    count, total = centred.shape[0], 0.0
    for start in range(0, count, TILE):
        rows = slice(start, min(start + TILE, count))
        distance = (squares[rows, None] + squares[None, :]) - 2 * means[rows] @ means.T
        own = torch.arange(start, rows.stop)
        scale = squares[rows, None] + squares[None, :]
        close = distance < 1e-6 * scale
        close[own - start, own] = False
        if bool(close.any()):
            first, second = close.nonzero(as_tuple=True)
            distance[first, second] = (means[first + start] - means[second]).square().sum(1)
        if noise is not None:
            distance -= (noise[rows, None] + noise[None, :]) / size**2
        distance[own - start, own] = torch.inf
        if float(distance.min()) <= 0.0:
            k, j = divmod(int(distance.argmin()), count)
            least = "coincide" if noise is None else "are no farther apart than the noise of these few samples explains"
            raise NotApplicableError(f"the means of classes {k + start} and {j} {least}")
        total += float(((variance[rows, None] + variance[None, :]) / (2 * distance)).sum())
    return total / (count * (count - 1))
