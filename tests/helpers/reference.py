"""Independent referees shared by the tests: finite differences, and solves that know no closed form."""

import numpy as np
import torch
from scipy.optimize import minimize

from neuralcollapse.ufm import Point, Problem
from neuralcollapse.ufm.spheres import SphereProblem


def first_derivative(function, step: float = 1e-3) -> float:
    """Central difference of fourth order at 0."""
    return (8 * (function(step) - function(-step)) - (function(2 * step) - function(-2 * step))) / (12 * step)


def second_derivative(function, step: float = 1e-2) -> float:
    """Central second difference of sixth order at 0."""
    pairs = [function(k * step) + function(-k * step) for k in (1, 2, 3)]
    return (270 * pairs[0] - 27 * pairs[1] + 2 * pairs[2] - 490 * function(0.0)) / (180 * step**2)


def lbfgs(problem: Problem, start: Point, **options: float) -> Point:
    """scipy's L-BFGS; on spheres the variables are normalised inside the objective."""
    sphere = isinstance(problem, SphereProblem)

    def feasible(point: Point) -> Point:
        return point.map(lambda rows: rows / rows.norm(dim=1, keepdim=True)) if sphere else point

    def objective(flat: np.ndarray):
        raw = start.like(torch.from_numpy(flat))
        state = problem.linearize(feasible(raw))
        slope = state.gradient
        if sphere:
            slope = slope.map(lambda g, rows: g / rows.norm(dim=1, keepdim=True), raw)
        return state.value, slope.flatten().numpy()

    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 20, **options}
    found = minimize(objective, start.flatten().numpy(), jac=True, method="L-BFGS-B", options=options)
    return feasible(start.like(torch.from_numpy(found.x)))


def best_value(problem: Problem, seeds=range(2), scale: float = 1.0) -> float:
    """The lowest value that L-BFGS reaches from several random starts."""
    values = []
    for seed in seeds:
        start = problem.random_point(seed)
        if not isinstance(problem, SphereProblem):
            start = start * scale
        values.append(problem.value(lbfgs(problem, start)))
    return min(values)
