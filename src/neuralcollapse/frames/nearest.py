"""The simplex ETF nearest to a given classifier, in closed form."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .._support.checks import describe
from .._support.numerics import svd
from .._support.tensor_checks import finite_tensor
from .simplex import simplex_basis

__all__ = ["NearestETF", "nearest_etf"]


@dataclass(frozen=True)
class NearestETF:
    """The minimiser of ``|weight - scale * frame|_F`` over simplex ETFs ``frame`` and ``scale >= 0``."""

    frame: Float[Tensor, "K d"]
    scale: float
    distance: float

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.frame.shape))
        return f"NearestETF(frame {shape}, scale {self.scale:.4g}, relative distance {self.relative_distance:.2g})"

    @property
    def relative_distance(self) -> float:
        """``distance / |weight|_F``: 0 for a scaled ETF, 1 for a classifier with nothing in common with one."""
        size = math.hypot(self.distance, self.scale * math.sqrt(self.frame.shape[0]))
        return self.distance / size if size else 0.0


def nearest_etf(weight: Tensor) -> NearestETF:
    """The simplex ETF and scale nearest to ``weight`` (K, d) in the Frobenius norm, d >= K-1.

    With B an orthonormal basis of the complement of 1 and B'W = A S V' its thin SVD, the best frame is
    sqrt(K/(K-1)) B A V' (the polar factor of B'W) and the best scale sqrt(K/(K-1)) tr(S) / K: an orthogonal
    Procrustes problem. Where W has less than full rank the frame is one of several at the same distance.

    >>> from neuralcollapse.frames import simplex_etf
    >>> found = nearest_etf(3.0 * simplex_etf(4, 5))
    >>> round(found.scale, 12), round(found.distance, 12)
    (3.0, 0.0)

    Raises:
        ValueError: if ``weight`` is not (K, d) with K >= 2 and d >= K - 1, or not finite.

    """
    weight = finite_tensor("weight", weight, (None, None))
    count, dim = weight.shape
    if count < 2 or dim < count - 1:
        raise ValueError(f"weight must be (K, d) with K >= 2 and d >= K-1, got {describe(weight)}")
    matrix = weight.detach().to("cpu").to(torch.float64)
    basis = simplex_basis(count)
    left, singular, right = svd(basis.T @ matrix, full_matrices=False)
    root = math.sqrt(count / (count - 1))
    frame = root * (basis @ (left @ right))
    scale = root * float(singular.sum()) / count
    return NearestETF(frame, scale, float((matrix - scale * frame).norm()))
