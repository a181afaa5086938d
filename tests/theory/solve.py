"""Small solves that know no closed form: L-BFGS from random starts, with the models' analytic gradients."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import config
from scipy.optimize import minimize

from neuralcollapse.ufm import Point, Problem
from neuralcollapse.ufm.normalized import SphereProblem

__all__ = ["Solution", "hessian_matrix", "minimise", "minimise_many"]


@dataclass(frozen=True)
class Solution:
    point: Point
    value: float
    gradient_norm: float


@contextmanager
def unchecked() -> Iterator[None]:
    """Without the run-time checks of annotations: in a loop they cost more than the calls."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)


def join(like: Point, blocks: list[torch.Tensor]) -> Point:
    """A point with the blocks that ``like`` has."""
    pieces = iter(blocks)
    return Point(*(None if block is None else next(pieces) for block in (like.W, like.H, like.b)))


def reshaped(like: Point, flat: torch.Tensor) -> Point:
    """The point with the shapes of ``like`` and the entries of ``flat``."""
    pieces = torch.split(flat, [block.numel() for block in like.blocks])
    return join(like, [piece.view(block.shape) for piece, block in zip(pieces, like.blocks, strict=True)])


def minimise(problem: Problem, start: Point | int = 0, scale: float = 1.0) -> Solution:
    """L-BFGS from ``start`` (a point, or the seed of a random one times ``scale``) until the gradient stalls.

    On spheres the variables are unnormalised rows, so no constraint is left.
    """
    first = problem.random_point(start) * scale if isinstance(start, int) else start
    sphere = isinstance(problem, SphereProblem)

    def feasible(flat: np.ndarray) -> tuple[Point, list[torch.Tensor]]:
        raw = reshaped(first, torch.from_numpy(flat.copy()))
        norms = [block.norm(dim=-1, keepdim=True) if sphere else torch.ones(()) for block in raw.blocks]
        return join(first, [block / norm for block, norm in zip(raw.blocks, norms, strict=True)]), norms

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point, norms = feasible(flat)
        state = problem.linearize(point)
        slopes = [slope / norm for slope, norm in zip(state.gradient.blocks, norms, strict=True)]
        return state.value, torch.cat([slope.reshape(-1) for slope in slopes]).numpy()

    flat = first.flatten().numpy()
    options = {"maxcor": 40, "maxiter": 20000, "maxfun": 40000, "ftol": 0.0, "gtol": 1e-12, "maxls": 50}
    with unchecked():
        for _ in range(3):  # restarting drops a stale curvature model: the last digits of the gradient
            flat = minimize(objective, flat, jac=True, method="L-BFGS-B", options=options).x
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
        direction = problem.project(point, reshaped(point, unit))
        return problem.project(point, state.hessian_vector(direction)).flatten()

    with unchecked():
        matrix = torch.stack([column(index) for index in range(size)], dim=1).numpy()
    return (matrix + matrix.T) / 2
