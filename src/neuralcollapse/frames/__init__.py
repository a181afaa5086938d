"""Simplex equiangular tight frames and their kin, as ``(K, d)`` float64 tensors whose rows are the vectors."""

from .._support.public import explain_calls
from .codes import known_code_distance, orthogonal_simplices, softmax_code
from .nearest import NearestETF, nearest_etf
from .one_vs_rest import OneVsRest, one_vs_rest
from .seli import seli
from .simplex import low_rank_etf, orthogonal_frame, simplex_basis, simplex_etf, simplex_gram

__all__ = [
    "NearestETF",
    "OneVsRest",
    "known_code_distance",
    "low_rank_etf",
    "nearest_etf",
    "one_vs_rest",
    "orthogonal_frame",
    "orthogonal_simplices",
    "seli",
    "simplex_basis",
    "simplex_etf",
    "simplex_gram",
    "softmax_code",
]

explain_calls(__name__)
