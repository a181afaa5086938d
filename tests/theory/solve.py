"""Small solves that know no closed form: L-BFGS from random starts, with the models' analytic gradients."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import config

from neuralcollapse.ufm import Point, Problem
from reference import lbfgs

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


def minimise(problem: Problem, start: Point | int = 0, scale: float = 1.0) -> Solution:
    """L-BFGS from ``start`` (a point, or the seed of a random one times ``scale``) until the gradient stalls."""
    point = problem.random_point(start) * scale if isinstance(start, int) else start
    with unchecked():
        for _ in range(3):  # restarting drops a stale curvature model: the last digits of the gradient
            point = lbfgs(problem, point, maxcor=40, ftol=0.0, gtol=1e-12, maxls=50)
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

    with unchecked():
        matrix = torch.stack([column(index) for index in range(size)], dim=1).numpy()
    return (matrix + matrix.T) / 2
