"""Small solves that know no closed form: L-BFGS from random starts, with the models' analytic gradients."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize

from neuralcollapse.ufm import Point, Problem
from neuralcollapse.ufm.normalized import SphereProblem

__all__ = ["Solution", "hessian_matrix", "minimise", "minimise_many"]


@dataclass(frozen=True)
class Solution:
    point: Point
    value: float
    gradient_norm: float


def minimise(problem: Problem, start: Point | int = 0, scale: float = 1.0) -> Solution:
    """L-BFGS from ``start`` (a point, or the seed of a random one times ``scale``) until the gradient stalls.

    On spheres the variables are unnormalised rows, so no constraint is left.
    """
    first = problem.random_point(start) * scale if isinstance(start, int) else start
    sphere = isinstance(problem, SphereProblem)

    def feasible(flat: np.ndarray) -> tuple[Point, Point | None]:
        raw = first.like(torch.from_numpy(flat.copy()))
        if not sphere:
            return raw, None
        norms = raw.map(lambda rows: rows.norm(dim=1, keepdim=True))
        return raw.map(torch.div, norms), norms

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point, norms = feasible(flat)
        state = problem.linearize(point)
        gradient = state.gradient if norms is None else state.gradient.map(torch.div, norms)
        return state.value, gradient.flatten().numpy()

    flat = first.flatten().numpy()
    for _ in range(3):  # restarting drops a stale curvature model: the last digits of the gradient
        found = minimize(
            objective,
            flat,
            jac=True,
            method="L-BFGS-B",
            options={
                "maxcor": 40,
                "maxiter": 20000,
                "maxfun": 40000,
                "ftol": 0.0,
                "gtol": 1e-12,
                "maxls": 50,
            },
        )
        flat = found.x
    point, _ = feasible(flat)
    state = problem.linearize(point)
    return Solution(point, state.value, state.gradient.norm())


def minimise_many(problem: Problem, starts: int, scale: float = 1.0) -> Solution:
    """The lowest of ``starts`` solves."""
    return min((minimise(problem, seed, scale) for seed in range(starts)), key=lambda found: found.value)


def hessian_matrix(problem: Problem, point: Point) -> np.ndarray:
    """The dense (Riemannian) Hessian in ambient coordinates; radial directions are projected out."""
    state = problem.linearize(point)
    size = point.flatten().numel()

    def column(index: int) -> torch.Tensor:
        unit = torch.zeros(size, dtype=torch.float64)
        unit[index] = 1.0
        direction = problem.project(point, point.like(unit))
        return problem.project(point, state.hessian_vector(direction)).flatten()

    matrix = torch.stack([column(index) for index in range(size)], dim=1).numpy()
    return (matrix + matrix.T) / 2
