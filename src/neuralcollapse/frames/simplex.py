"""The frames that classifiers and class means collapse to.

K vectors in R^d, as rows. P = I - 11'/K is the projector on the complement of the ones vector.
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from .._support.checks import integer
from .._support.machine import check_room

__all__ = ["embed", "fourier_modes", "low_rank_etf", "orthogonal_frame", "simplex_basis", "simplex_etf", "simplex_gram"]

Seed = int | Generator | None


def simplex_basis(num_classes: int) -> Float[Tensor, "K K-1"]:
    """An orthonormal basis B of the complement of the ones vector (the Helmert matrix): B'B = I, BB' = P."""
    count = _with_room(integer("num_classes", num_classes, minimum=2))
    index = torch.arange(1, count, dtype=torch.float64)
    upper = torch.ones(count, count - 1, dtype=torch.float64).triu()
    basis = upper - torch.diag_embed(index, offset=-1)[:, : count - 1]
    return basis / torch.sqrt(index * (index + 1))


def simplex_gram(num_classes: int) -> Float[Tensor, "K K"]:
    """K/(K-1) (I - 11'/K): ones on the diagonal, -1/(K-1) elsewhere.

    >>> simplex_gram(3).tolist()
    [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    count = _with_room(integer("num_classes", num_classes, minimum=2))
    gram = torch.full((count, count), -1.0 / (count - 1), dtype=torch.float64)
    return gram.fill_diagonal_(1.0)


def simplex_etf(num_classes: int, dim: int, seed: Seed = None) -> Float[Tensor, "K d"]:
    """A simplex equiangular tight frame: unit rows whose cosines are all -1/(K-1).

    ``seed=None`` gives the canonical one (Helmert coordinates, padded by zeros), a seed or generator one
    drawn from the Haar measure.

    >>> etf = simplex_etf(3, 2)
    >>> (etf @ etf.T)[0].round(decimals=12).tolist()
    [1.0, -0.5, -0.5]

    Raises:
        ValueError: if ``dim < num_classes - 1``: no such frame exists; see :func:`low_rank_etf`.

    """
    count, size = _checked_sizes(num_classes, dim)
    if size < count - 1:
        raise ValueError(
            f"dim must be at least num_classes - 1 = {count - 1} for a simplex ETF, got {size}; "
            "low_rank_etf gives the best approximation below that"
        )
    return math.sqrt(count / (count - 1)) * embed(simplex_basis(count), size, seed)


def orthogonal_frame(num_classes: int, dim: int, seed: Seed = None) -> Float[Tensor, "K d"]:
    """K orthonormal rows in R^d (the optimum of the squared error without bias); needs d >= K.

    ``seed`` as in :func:`simplex_etf`.
    """
    count, size = _checked_sizes(num_classes, dim)
    if size < count:
        raise ValueError(f"dim must be at least num_classes = {count} for an orthogonal frame, got {size}")
    return embed(torch.eye(count, dtype=torch.float64), size, seed)


def low_rank_etf(num_classes: int, dim: int, seed: Seed = None) -> Float[Tensor, "K d"]:
    """A best rank-d approximation of the simplex ETF, d < K-1: Gram matrix K/(K-1) Pi with Pi a rank-d projector.

    All nonzero eigenvalues of the ETF's Gram matrix are equal, so every projector Pi with Pi 1 = 0 is as good
    (mse, Theorem 3.1, is not unique there). ``seed=None`` takes the lowest Fourier modes, whose rows have equal
    norms sqrt(d/(K-1)) for even d; a seed draws the subspace from the Haar measure.
    """
    count, size = _checked_sizes(num_classes, dim)
    if size >= count - 1:
        return simplex_etf(count, size, seed)
    if seed is None:
        subspace = fourier_modes(count, size)
    else:
        subspace = simplex_basis(count) @ _haar(count - 1, size, seed)
    return math.sqrt(count / (count - 1)) * subspace


def _checked_sizes(num_classes: int, dim: int) -> tuple[int, int]:
    count, size = integer("num_classes", num_classes, minimum=2), integer("dim", dim, minimum=1)
    check_room(f"a frame of num_classes = {count} rows and dim = {size} columns", 8 * count * size)
    return count, size


def _with_room(count: int) -> int:
    """``count``, if a matrix of num_classes squared entries and a copy fit into memory."""
    check_room(f"a matrix of num_classes = {count} rows and columns", 16 * count**2)
    return count


def embed(rows: Tensor, dim: int, seed: Seed) -> Tensor:
    """``rows`` (K, r) isometrically in R^dim: padded by zeros, or along a Haar-random r-frame."""
    rank = rows.shape[1]
    if seed is None:
        return torch.nn.functional.pad(rows, (0, dim - rank))
    return rows @ _haar(dim, rank, seed).T


def _haar(rows: int, columns: int, seed: Seed) -> Tensor:
    """``rows x columns`` with orthonormal columns, uniformly distributed (QR with the sign of R's diagonal)."""
    generator = seed if isinstance(seed, Generator) else torch.Generator().manual_seed(integer("seed", seed))
    gaussian = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    q, r = torch.linalg.qr(gaussian)
    return q * torch.where(r.diagonal() < 0, -1.0, 1.0)


def fourier_modes(count: int, dim: int) -> Tensor:
    """``dim <= count - 1`` orthonormal columns perpendicular to 1: cosine and sine pairs of rising frequency.

    >>> fourier_modes(4, 3).round(decimals=3).T.tolist()  # (1, 0, -1, 0)/sqrt 2, (0, 1, 0, -1)/sqrt 2, signs/2
    [[0.707, 0.0, -0.707, -0.0], [0.0, 0.707, 0.0, -0.707], [0.5, -0.5, 0.5, -0.5]]
    """
    angle = 2 * math.pi / count * torch.arange(count, dtype=torch.float64)
    columns = []
    for mode in range(1, dim // 2 + 1):
        columns += [torch.cos(mode * angle), torch.sin(mode * angle)]
    if dim % 2:
        # The alternating mode of an even K has entries of one size, so the rows keep equal norms.
        alternating = count % 2 == 0
        columns.append(torch.cos((count // 2 if alternating else dim // 2 + 1) * angle))
    modes = torch.stack(columns, dim=1)
    return modes / modes.norm(dim=0)
