"""Roots to the last digit, and decompositions that come to an end at collapse.

LAPACK's divide and conquer (gesdd, syevd), which torch calls, gives up on some matrices with many equal singular
values: on the class means of 100 collapsed classes, for one. Where it does, the slower QR iteration does not.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["eigh", "root", "svd", "svdvals"]

NoConvergence = torch.linalg.LinAlgError  # pyright: ignore[reportPrivateImportUsage]  (public, but not in torch's types)


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """The root of ``function`` between ``low`` and ``high``, where its signs differ, to rounding (Brent's method)."""
    from scipy.optimize import brentq

    tolerances: dict[str, Any] = {"xtol": 1e-18, "rtol": 1e-15}
    found: Any = brentq(function, low, high, **tolerances)
    return float(found)


def svd(matrix: Tensor, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """U, s and V' of a matrix U diag(s) V', with falling s."""
    try:
        left, values, right = torch.linalg.svd(matrix, full_matrices=full_matrices)
    except NoConvergence:
        if not bool(matrix.isfinite().all()):
            raise
        from scipy import linalg

        parts = linalg.svd(matrix.numpy(force=True), full_matrices=full_matrices, lapack_driver="gesvd")
        left, values, right = _like(matrix, parts)
    return left, values, right


def svdvals(matrix: Tensor) -> Tensor:
    """The singular values of a matrix, falling."""
    try:
        return torch.linalg.svdvals(matrix)
    except NoConvergence:
        return svd(matrix, full_matrices=False)[1]


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Rising eigenvalues of a symmetric matrix, and its eigenvectors in columns."""
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except NoConvergence:
        if not bool(matrix.isfinite().all()):
            raise
        from scipy import linalg

        values, vectors = _like(matrix, linalg.eigh(matrix.numpy(force=True), driver="ev"))
    return values, vectors


def _like(matrix: Tensor, arrays: Sequence[Any]) -> list[Tensor]:
    return [torch.as_tensor(array, dtype=matrix.dtype, device=matrix.device) for array in arrays]
