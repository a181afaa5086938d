"""The smallest eigenpair of a Hessian that is known by its products only."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from .point import Point
from .problem import Problem, ProblemLinearization

__all__ = ["smallest_eigenpair"]

DENSE_LIMIT = 300


def smallest_eigenpair(
    problem: Problem, point: Point, state: ProblemLinearization, seed: int = 0
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
        direction = tangent(torch.from_numpy(np.ascontiguousarray(vector).reshape(-1)))
        return tangent(state.hessian_vector(point.like(direction)).flatten()).numpy()

    if size <= DENSE_LIMIT:
        matrix = np.stack([product(column) for column in np.eye(size)], axis=1)
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        radius, vector = float(np.abs(values).max()), vectors[:, 0]
    else:
        generator = torch.Generator().manual_seed(seed)
        start = tangent(torch.randn(size, dtype=torch.float64, generator=generator)).numpy()
        operator = _operator(product, size)
        radius = abs(_eigsh(operator, start, 1e-2)[0])
        shift = 1.1 * radius + 1e-300
        shifted = _operator(lambda v: product(v) - shift * v.reshape(-1), size)
        vector = _eigsh(shifted, start, 1e-9)[1]
    return _rayleigh(problem, point, state, vector, radius)


def _rayleigh(
    problem: Problem, point: Point, state: ProblemLinearization, vector: np.ndarray, radius: float
) -> tuple[float, Point, float]:
    direction = problem.project(point, point.like(torch.from_numpy(np.ascontiguousarray(vector))))
    norm = direction.norm()
    if norm == 0:
        return 0.0, direction, radius
    direction = direction * (1 / norm)
    return direction.dot(state.hessian_vector(direction)), direction, radius


def _operator(product: Callable[[np.ndarray], np.ndarray], size: int) -> LinearOperator:
    make: Any = LinearOperator  # its constructor returns a subclass that takes other arguments
    return make((size, size), matvec=product, dtype=np.float64)


def _eigsh(operator: LinearOperator, start: np.ndarray, tolerance: float) -> tuple[float, np.ndarray]:
    try:
        options: dict[str, Any] = {"k": 1, "which": "LM", "v0": start, "tol": tolerance, "maxiter": 300, "ncv": 40}
        values, vectors = eigsh(operator, **options)
    except ArpackNoConvergence as stopped:
        if len(stopped.eigenvalues) == 0:
            return float(np.linalg.norm(operator.matvec(start)) / np.linalg.norm(start)), start
        values, vectors = stopped.eigenvalues, stopped.eigenvectors
    return float(values[0]), vectors[:, 0]
