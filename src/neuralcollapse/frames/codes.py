"""Softmax codes: K unit vectors in R^d, each as far as possible from the convex hull of the others.

rho(W) = min_k dist(w_k, conv{w_j : j != k}) (Jiang et al. 2023). Always rho >= 1 - max cosine, with equality at the
best code in every case computed, so beyond the closed forms the largest smallest angle (Tammes' problem) is sought.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from .._support.checks import integer
from .._support.numerics import svd
from .one_vs_rest import one_vs_rest
from .simplex import simplex_etf

__all__ = ["known_code_distance", "orthogonal_simplices", "softmax_code"]

STARTS = 4
SHARPNESS = (4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0)
POLISH_ENTRIES = 200
"""Up to this many coordinates the numerical code is polished by sequential quadratic programming."""

GOLDEN = (1 + math.sqrt(5)) / 2
SHARP: dict[tuple[int, int], float] = {
    (12, 3): 1 - 1 / math.sqrt(5),
    (10, 4): 5 / 6,
    (24, 4): 1 / 2,
    (120, 4): 1 - GOLDEN / 2,
    (16, 5): 4 / 5,
    (27, 6): 3 / 4,
    (56, 7): 2 / 3,
    (240, 8): 1 / 2,
}
"""rho of the codes that are built exactly: icosahedron, Petersen, 24-cell, 600-cell, Clebsch, Schlaefli, E7 and E8."""


def known_code_distance(num_classes: int, dim: int) -> float | None:
    """The rho of the best code of K vectors in R^d where it is known in closed form, else None.

    K <= d+1: K/(K-1) (simplex ETF). d+2 <= K <= 2d: 1. d = 2: 1 - cos(2 pi/K). Beyond: the sharp codes.

    >>> known_code_distance(4, 2), known_code_distance(16, 5)
    (1.0, 0.8)
    """
    count, size = integer("num_classes", num_classes, minimum=2), integer("dim", dim, minimum=1)
    if count <= size + 1:
        return count / (count - 1)
    if size == 1:
        return 0.0
    if count <= 2 * size:
        return 1.0
    if size == 2:
        return 2 * math.sin(math.pi / count) ** 2
    return SHARP.get((count, size))


def softmax_code(num_classes: int, dim: int, seed: int = 0) -> Float[Tensor, "K d"]:
    """Unit rows with the largest known rho: exact where :func:`known_code_distance` is, else the best of a search.

    >>> polygon = softmax_code(6, 2)
    >>> round(one_vs_rest(polygon).smallest, 12)  # 1 - cos(60 degrees)
    0.5

    Args:
        num_classes: K >= 2.
        dim: d >= 1.
        seed: decides the starts of the search, which is used where no closed form is known; the code it finds is a
            local optimum of Tammes' problem and may be improved by another seed.

    """
    count, size = integer("num_classes", num_classes, minimum=2), integer("dim", dim, minimum=1)
    seed = integer("seed", seed, minimum=0)
    if count <= size + 1:
        return simplex_etf(count, size)
    if size == 1:
        return torch.tensor([[1.0 if k % 2 == 0 else -1.0] for k in range(count)], dtype=torch.float64)
    if count <= 2 * size:
        return orthogonal_simplices(partition(count, count - size))
    if size == 2:
        angle = 2 * math.pi / count * torch.arange(count, dtype=torch.float64)
        return torch.stack([angle.cos(), angle.sin()], dim=1)
    if (count, size) in SHARP:
        return _BUILDERS[count, size]()
    return _search(count, size, seed)


def partition(count: int, parts: int) -> list[int]:
    """``count`` classes in ``parts`` groups of nearly equal size, the larger first."""
    return [count // parts + (index < count % parts) for index in range(parts)]


def orthogonal_simplices(sizes: list[int]) -> Float[Tensor, "K d"]:
    """Regular simplices of these numbers of vertices in orthogonal subspaces: d = sum of (size - 1).

    >>> orthogonal_simplices([2, 2]).abs().round(decimals=6).tolist()  # the cross-polytope of the plane
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    return torch.block_diag(*(simplex_etf(size, size - 1) for size in sizes))


def _e8() -> Tensor:
    """The 240 roots of E8, scaled to unit length."""
    pairs = []
    for i, j in itertools.combinations(range(8), 2):
        for a, b in itertools.product((1.0, -1.0), repeat=2):
            row = [0.0] * 8
            row[i], row[j] = a, b
            pairs.append(row)
    halves = [list(s) for s in itertools.product((0.5, -0.5), repeat=8) if sum(v < 0 for v in s) % 2 == 0]
    return torch.tensor(pairs + halves, dtype=torch.float64) / math.sqrt(2)


def _nearest_projected(code: Tensor) -> Tensor:
    """The vectors nearest to the first one, projected off it: a code in one dimension less."""
    cosines = code @ code[0]
    nearest = code[(cosines - cosines[1:].max()).abs() < 1e-9]
    rest = nearest - torch.outer(nearest @ code[0], code[0])
    _, _, right = svd(rest, full_matrices=False)
    rows = rest @ right[: code.shape[1] - 1].T
    return rows / rows.norm(dim=1, keepdim=True)


def _neighbours_of_e8(times: int) -> Tensor:
    code = _e8()
    for _ in range(times):
        code = _nearest_projected(code)
    return code


def _icosahedron() -> Tensor:
    rows = [np.roll([0.0, a, b * GOLDEN], shift) for shift in range(3) for a in (1, -1) for b in (1, -1)]
    return torch.tensor(np.array(rows), dtype=torch.float64) / math.hypot(1, GOLDEN)


def _cell24() -> Tensor:
    signs = list(itertools.product((1.0, -1.0), repeat=2))
    rows = np.zeros((24, 4))
    for row, ((i, j), (a, b)) in zip(rows, itertools.product(itertools.combinations(range(4), 2), signs), strict=True):
        row[i], row[j] = a, b
    return torch.from_numpy(rows) / math.sqrt(2)


def _cell600() -> Tensor:
    axes = np.concatenate([np.eye(4), -np.eye(4)])
    halves = np.array(list(itertools.product((0.5, -0.5), repeat=4)))
    even = [p for p in itertools.permutations(range(4)) if _is_even(p)]
    rest = [
        np.array([a * GOLDEN / 2, b / 2, c / (2 * GOLDEN), 0.0])[list(p)]
        for p in even
        for a, b, c in itertools.product((1, -1), repeat=3)
    ]
    return torch.from_numpy(np.concatenate([axes, halves, np.array(rest)]))


def _is_even(permutation: tuple[int, ...]) -> bool:
    inversions = sum(a > b for a, b in itertools.combinations(permutation, 2))
    return inversions % 2 == 0


_BUILDERS: dict[tuple[int, int], Callable[[], Tensor]] = {
    (12, 3): _icosahedron,
    (10, 4): lambda: _neighbours_of_e8(4),
    (24, 4): _cell24,
    (120, 4): _cell600,
    (16, 5): lambda: _neighbours_of_e8(3),
    (27, 6): lambda: _neighbours_of_e8(2),
    (56, 7): lambda: _neighbours_of_e8(1),
    (240, 8): _e8,
}


def _search(count: int, dim: int, seed: int) -> Tensor:
    """The best of a few descents on log sum exp(t cos) with rising t, polished where the problem is small."""
    generator = np.random.default_rng(seed)
    best, reached = None, -1.0
    for _ in range(STARTS):
        rows = _unit_rows(generator.standard_normal((count, dim)))
        for sharpness in SHARPNESS:
            rows = _descend_soft_maximum(rows, sharpness)
        if count * dim <= POLISH_ENTRIES:
            rows = _polish(rows)
        distance = one_vs_rest(torch.from_numpy(rows)).smallest
        if distance > reached:
            best, reached = rows, distance
    return torch.from_numpy(best)


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _descend_soft_maximum(rows: np.ndarray, sharpness: float) -> np.ndarray:
    shape = rows.shape

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        free = flat.reshape(shape)
        norms = np.linalg.norm(free, axis=1, keepdims=True)
        unit = free / norms
        cosines = unit @ unit.T
        np.fill_diagonal(cosines, -np.inf)
        top = cosines.max()
        weights = np.exp(sharpness * (cosines - top))
        total = weights.sum()
        slope = 2 * (weights / total) @ unit
        slope -= unit * (slope * unit).sum(1, keepdims=True)
        return top + np.log(total) / sharpness, (slope / norms).ravel()

    found = minimize(objective, rows.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-15})
    return _unit_rows(found.x.reshape(shape))


def _polish(rows: np.ndarray) -> np.ndarray:
    """Minimise c subject to w_i'w_j <= c on the pairs that are nearly nearest, and unit rows."""
    count, dim = rows.shape
    cosines = rows @ rows.T
    first, second = np.triu_indices(count, 1)
    near = cosines[first, second] > cosines[first, second].max() - 0.1
    first, second = first[near], second[near]

    def split(v: np.ndarray) -> np.ndarray:
        return v[:-1].reshape(count, dim)

    def room(v: np.ndarray) -> np.ndarray:
        w = split(v)
        return v[-1] - (w[first] * w[second]).sum(1)

    def room_slope(v: np.ndarray) -> np.ndarray:
        w, slope = split(v), np.zeros((len(first), v.size))
        blocks = slope[:, :-1].reshape(len(first), count, dim)
        index = np.arange(len(first))
        blocks[index, first], blocks[index, second] = -w[second], -w[first]
        slope[:, -1] = 1
        return slope

    def length_slope(v: np.ndarray) -> np.ndarray:
        slope = np.zeros((count, v.size))
        blocks = slope[:, :-1].reshape(count, count, dim)
        blocks[np.arange(count), np.arange(count)] = 2 * split(v)
        return slope

    target = np.zeros(count * dim + 1)
    target[-1] = 1
    found = minimize(
        lambda v: v[-1],
        np.append(rows.ravel(), cosines[first, second].max()),
        jac=lambda v: target,
        constraints=[
            {"type": "ineq", "fun": room, "jac": room_slope},
            {"type": "eq", "fun": lambda v: (split(v) ** 2).sum(1) - 1, "jac": length_slope},
        ],
        method="SLSQP",
        options={"maxiter": 100, "ftol": 1e-15},
    )
    better = _unit_rows(split(found.x))
    products = better @ better.T
    np.fill_diagonal(products, -1)
    return better if products.max() < cosines[first, second].max() else rows
