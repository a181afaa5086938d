"""Variability collapse index."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..._support.numerics import eigh, svdvals
from ._geometry import Geometry
from ._registry import define


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
    needs=("scatter", "within"),
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
    spectrum = geometry.require_spectrum()
    rank = geometry.rank
    scale = spectrum.values[0]
    between = (spectrum.values / scale).square() / geometry.num_classes
    # An N x d matrix of rounding errors e has singular values up to e (sqrt N + sqrt d); entries far above the
    # rms are rounded more coarsely, and no mean evens that out here.
    noise = 2 * geometry.rounding * (1 + math.sqrt(geometry.dim / geometry.total)) / float(scale)
    within = geometry.scatter / scale / scale
    quotient = _by_inverse(within, spectrum.directions, between, noise**2)
    if quotient is None:
        basis = torch.linalg.qr(spectrum.directions, mode="complete").Q
        unexplained = _schur_complement(basis.T @ within @ basis, rank, noise**2)
        quotient = torch.linalg.solve(unexplained + torch.diag(between), unexplained).diagonal().sum()
    return float(quotient.clamp(0, rank) / rank)


def _by_inverse(
    within: Float[Tensor, "d d"], directions: Float[Tensor, "d r"], between: Float[Tensor, " r"], noise: float
) -> Float[Tensor, ""] | None:
    """tr((T + L)^-1 T) with T^-1 = V' S_W^-1 V, in a tenth of the time; ``None`` where S_W is close to singular."""
    factor, failed = torch.linalg.cholesky_ex(within)
    pivots = factor.diagonal()
    if int(failed) or float(pivots.min()) <= 1e-3 * float(pivots.max()):
        return None
    if float(pivots.min()) ** 2 <= 100 * noise:
        return None
    half = torch.linalg.solve_triangular(factor, directions * between.sqrt(), upper=False)
    return (1 / (1 + svdvals(half).square())).sum()


def _schur_complement(matrix: Float[Tensor, "d d"], size: int, noise: float) -> Float[Tensor, "r r"]:
    """A - C D^+ C' of a positive semidefinite matrix whose leading block A has ``size`` rows.

    Eigenvalues of D below ``noise`` do not count, as long as they are far below the spread as a whole: at deep
    collapse all of the spread is of the size of the rounding, and stays.
    """
    block, cross, rest = matrix[:size, :size], matrix[:size, size:], matrix[size:, size:]
    if rest.shape[0] == 0 or float(rest.diagonal().max()) <= 0.0:
        return block
    floor = min(noise, 1e-3 * float(matrix.diagonal().max()))
    shifted = rest.clone()
    shifted.diagonal().sub_(floor)
    # The shifted matrix has a Cholesky factor when every eigenvalue is above the floor.
    enough = int(torch.linalg.cholesky_ex(shifted).info) == 0
    factor, failed = torch.linalg.cholesky_ex(rest)
    pivots = factor.diagonal()
    if enough and int(failed) == 0 and float(pivots.min()) > 1e-6 * float(pivots.max()):
        half = torch.linalg.solve_triangular(factor, cross.T, upper=False)
    else:
        values, vectors = eigh(rest)
        kept = values > max(floor, rest.shape[0] * torch.finfo(values.dtype).eps * float(values[-1]))
        half = (vectors[:, kept].T @ cross.T) / values[kept].sqrt()[:, None]
    return block - half.T @ half
