"""The lower end of a Hessian's spectrum, from its products: eigenvalues with multiplicities, and one eigenpair."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from .point import Point

if TYPE_CHECKING:
    from .problem import Problem, ProblemLinearization

__all__ = ["lowest_eigenvalues", "smallest_eigenpair"]

DENSE_LIMIT = 1000
"""The size up to which :func:`lowest_eigenvalues` forms all products and solves the matrix."""
DENSE_PAIR_LIMIT = 300
"""The same of :func:`smallest_eigenpair`, which is asked for in the middle of solves."""

VectorMap = Callable[[np.ndarray], np.ndarray]


def lowest_eigenvalues(product: VectorMap, project: VectorMap, size: int, count: int, seed: int = 0) -> np.ndarray:
    """The ``count`` lowest eigenvalues, rising, of ``product`` on the range of the orthogonal projection ``project``.

    Lanczos sees one copy of a repeated eigenvalue at first, and the spectra of symmetric solutions are full of them.
    So vectors that are found are moved above the spectrum and the search is repeated from another start, until
    it finds nothing lower than what is there.
    """
    if size <= DENSE_LIMIT:
        matrix = np.stack([project(product(project(column))) for column in np.eye(size)], axis=1)
        outside = np.eye(size) - np.stack([project(column) for column in np.eye(size)], axis=1)
        above = 2 * np.linalg.norm(matrix) + 1.0
        return np.linalg.eigvalsh((matrix + matrix.T) / 2 + above * outside)[:count]

    generator = np.random.default_rng(seed)

    def largest(apply: VectorMap, wanted: int, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
        start, width = project(generator.normal(size=size)), min(2 * wanted + 40, size)
        found = _largest_pairs(apply, start, wanted, width, tolerance, restarts=1000)
        if found is None:
            raise ArithmeticError("Lanczos found no eigenvalue of the Hessian in 1000 restarts")
        return found

    def restricted(vector: np.ndarray) -> np.ndarray:
        return project(product(project(vector)))

    shift = 1.1 * abs(float(largest(restricted, 1, 1e-2)[0][0])) + 1e-300
    values, vectors = np.empty(0), np.empty((size, 0))

    def deflated(vector: np.ndarray) -> np.ndarray:
        """Hessian - shift on what is left; zero, the far end, on what was found and outside the range."""
        inside = project(vector)
        inside = inside - vectors @ (vectors.T @ inside)
        moved = project(product(inside)) - shift * inside
        return moved - vectors @ (vectors.T @ moved)

    while True:
        found, basis = largest(deflated, min(count, size - 1), 1e-10)
        lowest = np.sort(values)[count - 1] if len(values) >= count else np.inf
        new = found + shift < lowest - 1e-9 * shift
        if not new.any():
            return np.sort(values)[:count]
        values = np.concatenate([values, found[new] + shift])
        vectors = np.linalg.qr(np.concatenate([vectors, basis[:, new]], axis=1))[0]


def smallest_eigenpair(
    problem: "Problem", point: Point, state: "ProblemLinearization", seed: int = 0
) -> tuple[float, Point, float]:
    """(smallest eigenvalue, its unit eigenvector, spectral radius) of the Hessian on the tangent space.

    Small problems are solved densely. Otherwise Lanczos on Hessian - c I, c above the spectral radius: the wanted
    end is then the largest in size, so ARPACK's tolerance is relative to c and does not chase zero eigenvalues. Without
    convergence, the best Ritz pair found is returned: its Rayleigh quotient is still the curvature along it.
    """
    size = sum(block.numel() for block in point.blocks)

    def tangent(flat: torch.Tensor) -> torch.Tensor:
        return problem.project(point, point.like(flat)).flatten()

    def product(vector: np.ndarray) -> np.ndarray:
        direction = tangent(torch.from_numpy(vector))
        return tangent(state.hessian_vector(point.like(direction)).flatten()).numpy()

    if size <= DENSE_PAIR_LIMIT:
        matrix = np.stack([product(column) for column in np.eye(size)], axis=1)
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        radius, vector = float(np.abs(values).max()), vectors[:, 0]
    else:
        generator = torch.Generator().manual_seed(seed)
        start = tangent(torch.randn(size, dtype=torch.float64, generator=generator)).numpy()
        found = _largest_pairs(product, start, 1, 40, 1e-2, restarts=300)
        radius = float(np.linalg.norm(product(start)) / np.linalg.norm(start)) if found is None else abs(found[0][0])
        shift = 1.1 * radius + 1e-300
        found = _largest_pairs(lambda v: product(v) - shift * v, start, 1, 40, 1e-9, restarts=300)
        vector = start if found is None else found[1][:, 0]
    return _rayleigh(problem, point, state, vector, float(radius))


def _rayleigh(
    problem: "Problem", point: Point, state: "ProblemLinearization", vector: np.ndarray, radius: float
) -> tuple[float, Point, float]:
    direction = problem.project(point, point.like(torch.from_numpy(np.ascontiguousarray(vector))))
    norm = direction.norm()
    if norm == 0:
        return 0.0, direction, radius
    direction = direction * (1 / norm)
    return direction.dot(state.hessian_vector(direction)), direction, radius


def _largest_pairs(
    apply: VectorMap, start: np.ndarray, wanted: int, width: int, tolerance: float, restarts: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Eigenvalues of largest size with their vectors, as many as converged; None where none did."""
    size = len(start)
    make: Any = LinearOperator  # its constructor returns a subclass that takes other arguments
    operator = make((size, size), matvec=lambda v: apply(np.ascontiguousarray(v.reshape(-1))), dtype=np.float64)
    options: dict[str, Any] = {"which": "LM", "v0": start, "ncv": width, "tol": tolerance, "maxiter": restarts}
    try:
        pairs: Any = eigsh(operator, k=wanted, **options)
    except ArpackNoConvergence as stopped:
        if len(stopped.eigenvalues) == 0:
            return None
        pairs = stopped.eigenvalues, stopped.eigenvectors
    return pairs
