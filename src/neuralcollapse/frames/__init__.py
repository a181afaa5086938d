"""Simplex equiangular tight frames and their kin, as ``(K, d)`` float64 tensors whose rows are the vectors."""

from .nearest import NearestETF, nearest_etf
from .simplex import low_rank_etf, orthogonal_frame, simplex_basis, simplex_etf, simplex_gram

__all__ = [
    "NearestETF",
    "low_rank_etf",
    "nearest_etf",
    "orthogonal_frame",
    "simplex_basis",
    "simplex_etf",
    "simplex_gram",
]
