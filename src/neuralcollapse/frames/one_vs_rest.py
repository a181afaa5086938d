"""How far each vector is from the convex hull of the others, with a certificate.

w_k are the rows of W (K, d), G = W W'. Row k of X, a point of the simplex with x_k = 0, is a convex combination of the
others; p = X_k W - w_k and u = p/|p| bracket the distance: min_j (w_j - w_k)'u <= dist_k <= |p|.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .._support.checks import describe
from .._support.numerics import eigh
from .._support.tensor_checks import finite_tensor

__all__ = ["OneVsRest", "one_vs_rest"]

CLOSE = 1e-13
"""A bracket narrower than this share of the largest row counts as closed."""
ITERATIONS = 100
EXCHANGES = 200
"""How many vectors may enter or leave the support of one row in its exact solution."""


@dataclass(frozen=True)
class OneVsRest:
    """The distances of each row to the convex hull of the others, and proved lower bounds on them.

    Attributes:
        distances: |w_k - a point of the hull|, so at least the true distance.
        lower_bounds: numbers that the true distances cannot fall below, rounding included.

    """

    distances: Float[Tensor, " K"]
    lower_bounds: Float[Tensor, " K"]

    @property
    def smallest(self) -> float:
        """rho = min_k dist_k, what a softmax code maximises over unit rows (Jiang et al. 2023)."""
        return float(self.distances.min())

    @property
    def gap(self) -> float:
        """The widest of the brackets."""
        return float((self.distances - self.lower_bounds).max())

    def __repr__(self) -> str:
        return f"OneVsRest({len(self.distances)} rows, smallest {self.smallest:.6g}, gap {self.gap:.1e})"


def one_vs_rest(weight: Tensor) -> OneVsRest:
    """dist(w_k, conv{w_j : j != k}) for every row of ``weight`` (K, d), K >= 2, as it is (rows are not scaled).

    All rows at once by accelerated projected gradients with restarts; rows that stay open are solved exactly by
    exchanging the vectors that support their nearest point. Every distance comes with a lower bound.

    >>> square = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> one_vs_rest(square).distances.tolist()
    [1.0, 1.0, 1.0, 1.0]

    Raises:
        ValueError: if ``weight`` has fewer than two rows or entries that are not finite.

    """
    rows = finite_tensor("weight", weight, (None, None)).detach().to("cpu").to(torch.float64)
    if rows.shape[0] < 2 or rows.shape[1] < 1:
        raise ValueError(f"weight must be (K, d) with K >= 2 and d >= 1, got {describe(weight)}")
    # Squares must neither over- nor underflow; a shift of all rows changes no distance but keeps digits.
    centred = rows - rows.mean(0)
    scale = float(centred.abs().max())
    if scale == 0:
        return OneVsRest(torch.zeros(len(rows), dtype=torch.float64), torch.zeros(len(rows), dtype=torch.float64))
    centred = centred / scale
    mixtures = _nearest_mixtures(centred)
    distances, lower = _bracket(centred, mixtures)
    size = float(centred.norm(dim=1).max())
    for index in torch.nonzero(distances - lower > CLOSE * size).flatten().tolist():
        exact = _support_exchange(centred, index, mixtures[index])
        upper, bound = _bracket(centred, exact[None], index)
        if float(upper - bound) < float(distances[index] - lower[index]):
            distances[index], lower[index] = upper[0], torch.maximum(bound[0], lower[index])
    # What rounding in the products and in the shift may have added.
    slack = 4 * torch.finfo(torch.float64).eps * (size + float(rows.abs().max()) / scale)
    lower = torch.minimum((lower - slack).clamp(min=0), distances)
    return OneVsRest(distances * scale, lower * scale)


def _nearest_mixtures(rows: Float[Tensor, "K d"]) -> Float[Tensor, "K K"]:
    """X with rows on simplices and zero diagonal that nearly minimises |w_k - X_k W|^2 for all k."""
    count, dim = rows.shape
    gram = rows @ rows.T
    steepness = (
        float(torch.linalg.matrix_norm(gram, 2)) if count <= dim else float(torch.linalg.matrix_norm(rows, 2) ** 2)
    )
    mixtures = _affine_start(gram)
    momentum, share = mixtures.clone(), 1.0
    size = float(rows.norm(dim=1).max())
    for iteration in range(ITERATIONS):
        slope = momentum @ gram - gram if count <= dim else (momentum @ rows - rows) @ rows.T
        after = _onto_simplices(momentum - slope / steepness)
        step = after - mixtures
        following = (1 + (1 + 4 * share**2) ** 0.5) / 2
        # A row whose momentum points uphill starts anew.
        uphill = ((momentum - after) * step).sum(1, keepdim=True) > 0
        momentum = after + torch.where(uphill, 0.0, (share - 1) / following) * step
        mixtures, share = after, following
        if iteration % 10 == 9:
            distances, lower = _bracket(rows, mixtures)
            if float((distances - lower).max()) <= CLOSE * size or float(step.abs().max()) <= 1e-15:
                break
    return mixtures


def _affine_start(gram: Float[Tensor, "K K"]) -> Float[Tensor, "K K"]:
    """The nearest points in the affine hulls, put onto the simplices: exact near a regular simplex.

    With A = (PGP)^+ and affinely independent rows the weights are -A_kj/A_kk.
    """
    count = len(gram)
    centred = gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()
    values, vectors = eigh((centred + centred.T) / 2)
    if count > 2 and float(values[1]) <= 1e-10 * float(values[-1]):
        start = torch.full_like(gram, 1 / (count - 1))
    else:
        inverse = (vectors[:, 1:] / values[1:]) @ vectors[:, 1:].T
        start = -inverse / inverse.diagonal()[:, None]
    return _onto_simplices(start)


def _onto_simplices(rows: Float[Tensor, "K K"]) -> Float[Tensor, "K K"]:
    """Each row projected onto the probability simplex of the other coordinates (Held, Wolfe and Crowder 1974)."""
    rows = rows.clone().fill_diagonal_(-torch.inf)
    ordered = rows.sort(dim=1, descending=True).values[:, :-1]
    excess = ordered.cumsum(1) - 1
    ranks = torch.arange(1, ordered.shape[1] + 1, dtype=rows.dtype)
    held = (ordered * ranks > excess).sum(1, keepdim=True).clamp(min=1)
    level = excess.gather(1, held - 1) / held
    return (rows - level).clamp(min=0)


def _bracket(rows: Tensor, mixtures: Tensor, only: int | None = None) -> tuple[Tensor, Tensor]:
    """(|p|, min_j (w_j - w_k)'u) of each row of ``mixtures`` (for the row ``only``, of one mixture)."""
    own = rows if only is None else rows[only : only + 1]
    towards = mixtures @ rows - own
    distances = towards.norm(dim=1)
    unit = towards / torch.where(distances > 0, distances, 1.0)[:, None]
    heights = unit @ rows.T - torch.linalg.vecdot(unit, own, dim=1)[:, None]
    columns = torch.arange(len(rows)) if only is None else torch.tensor([only])
    heights[torch.arange(len(own)), columns] = torch.inf
    lower = heights.min(dim=1).values
    return distances, torch.where(distances > 0, lower, 0.0).clamp(min=0)


def _support_exchange(rows: Float[Tensor, "K d"], index: int, start: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    """The nearest point of the hull to one row, by Wolfe's (1976) exchange of the vectors that carry it."""
    shifted = rows - rows[index]
    weights = torch.where(start > 1e-9, start, 0.0)
    weights = weights / weights.sum()
    size = float(shifted.norm(dim=1).max())
    for _ in range(EXCHANGES):
        weights = _inner_exchange(shifted, weights)
        nearest = weights @ shifted
        heights = shifted @ nearest
        heights[index] = torch.inf
        entering = int(heights.argmin())
        if float(nearest @ nearest - heights[entering]) <= 1e-15 * size**2 or float(weights[entering]) > 0:
            break
        weights[entering] = 1e-300  # enters with no weight of its own yet
    return weights


def _inner_exchange(shifted: Float[Tensor, "K d"], weights: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    """Vectors leave the support until its affine minimiser has positive weights only."""
    for _ in range(EXCHANGES):
        support = torch.nonzero(weights > 0).flatten()
        best = _affine_minimiser(shifted[support])
        if bool((best > 0).all()):
            return torch.zeros_like(weights).index_copy_(0, support, best)
        held = weights[support]
        shrinking = best <= 0
        ratio = held[shrinking] / (held - best)[shrinking]
        held = held + float(ratio.min()) * (best - held)
        held[shrinking.nonzero().flatten()[ratio.argmin()]] = 0.0
        held = held.clamp(min=0)
        weights = torch.zeros_like(weights).index_copy_(0, support, held / held.sum())
    return weights


def _affine_minimiser(points: Float[Tensor, "m d"]) -> Float[Tensor, " m"]:
    """The weights, summing to 1, of the smallest combination of ``points``: least squares on their differences."""
    base = points[0]
    differences = (points[1:] - base).T
    if differences.shape[1] == 0:
        return torch.ones(1, dtype=points.dtype)
    rest = torch.linalg.lstsq(differences, -base[:, None], driver="gelsd").solution.flatten()
    return torch.cat([1 - rest.sum()[None], rest])
