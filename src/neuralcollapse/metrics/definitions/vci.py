"""Variability collapse index."""

import torch
from jaxtyping import Float
from torch import Tensor

from .._geometry import Geometry
from .._registry import define


@define(
    "vci",
    property="NC1 variability",
    definition="1 - tr(S_T^+ S_B) / rank(S_B), with S_T = S_W + S_B",
    paper="Xu and Liu 2023",
    highest=1.0,
    at_random="1 - d/(N-1) for normal features, K-1 <= d < N; 0 when d >= N-1",
    random_value=lambda num_classes, per_class, dim: max(
        0.0, 1 - max(dim, num_classes - 1) / (num_classes * per_class - 1)
    ),
    needs=("scatter",),
    core=False,
)
def vci(geometry: Geometry) -> float:
    """tr((T + L)^-1 T) / r, with L = diag(s_i^2 / K) and T the residual of S_W on the span of the means.

    In coordinates (v_1..v_r, complement) S_W = [[A, C], [C', D]] and T = A - C D^+ C', the Schur complement:
    by block inversion this equals the definition, and it keeps its relative accuracy where the index itself
    goes to zero.
    """
    geometry.require_spread()
    if geometry.scatter is None:
        raise geometry.lacking("scatter")
    spectrum = geometry.spectrum
    rank = spectrum.values.shape[0]
    basis = torch.linalg.qr(spectrum.directions, mode="complete").Q
    scale = spectrum.values[0]
    within = (basis.T @ (geometry.scatter / scale) @ basis) / scale
    unexplained = _schur_complement(within, rank)
    between = (spectrum.values / scale).square() / geometry.num_classes
    solved = torch.linalg.solve(unexplained + torch.diag(between), unexplained)
    return float(solved.diagonal().sum().clamp(0, rank) / rank)


def _schur_complement(matrix: Float[Tensor, "d d"], size: int) -> Float[Tensor, "r r"]:
    """A - C D^+ C' of a positive semidefinite matrix whose leading block A has ``size`` rows."""
    block, cross, rest = matrix[:size, :size], matrix[:size, size:], matrix[size:, size:]
    if rest.shape[0] == 0 or float(rest.diagonal().max()) <= 0.0:
        return block
    factor, failed = torch.linalg.cholesky_ex(rest)
    pivots = factor.diagonal()
    if int(failed) == 0 and float(pivots.min()) > 1e-6 * float(pivots.max()):
        half = torch.linalg.solve_triangular(factor, cross.T, upper=False)
    else:
        values, vectors = torch.linalg.eigh(rest)
        kept = values > rest.shape[0] * torch.finfo(values.dtype).eps * values[-1]
        half = (vectors[:, kept].T @ cross.T) / values[kept].sqrt()[:, None]
    return block - half.T @ half
