"""The lowest eigenvalues, with their multiplicities, of a symmetric operator that is known by its products."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

__all__ = ["lowest_eigenvalues"]

DENSE_LIMIT = 1000
"""The size up to which all products are formed and the matrix is solved."""

Product = Callable[[np.ndarray], np.ndarray]


def lowest_eigenvalues(product: Product, project: Product, size: int, count: int, seed: int = 0) -> np.ndarray:
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

    def restricted(vector: np.ndarray) -> np.ndarray:
        return project(product(project(vector.reshape(-1))))

    def largest(apply: Product, wanted: int, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
        make: Any = LinearOperator  # its constructor returns a subclass that takes other arguments
        operator = make((size, size), matvec=apply, dtype=np.float64)
        start, width = project(generator.normal(size=size)), min(2 * wanted + 40, size)
        try:
            options: dict[str, Any] = {"v0": start, "ncv": width, "tol": tolerance, "maxiter": 1000}
            pairs: Any = eigsh(operator, k=wanted, which="LM", **options)
        except ArpackNoConvergence as stopped:
            if len(stopped.eigenvalues) == 0:
                raise ArithmeticError("Lanczos found no eigenvalue of the Hessian in 1000 restarts") from stopped
            pairs = stopped.eigenvalues, stopped.eigenvectors
        return pairs

    shift = 1.1 * abs(float(largest(restricted, 1, 1e-2)[0][0])) + 1e-300
    values, vectors = np.empty(0), np.empty((size, 0))

    def deflated(vector: np.ndarray) -> np.ndarray:
        """Hessian - shift on what is left; zero, the far end, on what was found and outside the range."""
        inside = project(vector.reshape(-1))
        inside = inside - vectors @ (vectors.T @ inside)
        bent = project(product(inside)) - shift * inside
        return bent - vectors @ (vectors.T @ bent)

    while True:
        found, basis = largest(deflated, min(count, size - 1), 1e-10)
        lowest = np.sort(values)[count - 1] if len(values) >= count else np.inf
        new = found + shift < lowest - 1e-9 * shift
        if not new.any():
            return np.sort(values)[:count]
        values = np.concatenate([values, found[new] + shift])
        vectors = np.linalg.qr(np.concatenate([vectors, basis[:, new]], axis=1))[0]
