"""A model's objective between two points, and over a plane of two directions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._support.checks import integer, real
from ..ufm import Point, Problem

__all__ = ["ObjectivePlane", "ObjectiveSlice", "objective_plane", "objective_slice"]


class ObjectiveSlice(NamedTuple):
    """Positions along the way (0 is the start, 1 the end) and the objective at each; both (steps,)."""

    positions: np.ndarray
    values: np.ndarray


class ObjectivePlane(NamedTuple):
    """Steps along the first (rows) and second direction (columns), and the objective at each pair."""

    first: np.ndarray
    second: np.ndarray
    values: np.ndarray


def objective_slice(
    problem: Problem,
    start: Point,
    end: Point,
    steps: int = 51,
    reach: tuple[float, float] = (0.0, 1.0),
) -> ObjectiveSlice:
    """The objective at (1-t) start + t end; on spheres at those rows scaled back to unit norm.

    >>> import torch
    >>> from neuralcollapse.ufm import RegularizedUFM
    >>> model = RegularizedUFM("ce", 3, 2, 2, weight_decay=0.01, feature_decay=0.01)
    >>> best = model.optimum()
    >>> positions, values = objective_slice(model, 0.0 * best.point, best.point, steps=3)
    >>> positions.tolist()
    [0.0, 0.5, 1.0]
    >>> bool(values[0] > values[1] > values[2]), round(float(values[0]), 6)  # log 3 at zero
    (True, 1.098612)

    Args:
        problem: whose objective.
        start: the point at t = 0.
        end: the point at t = 1.
        steps: how many positions, evenly spaced, at least 2.
        reach: the first and the last t; beyond 0 and 1 the line goes on.

    """
    problem.check(start)
    problem.check(end)
    first, last = (real(f"reach[{index}]", value) for index, value in enumerate(reach))
    positions = np.linspace(first, last, integer("steps", steps, minimum=2))
    way = end - start
    return ObjectiveSlice(positions, np.array([_value_after(problem, start, way * float(t)) for t in positions]))


def objective_plane(
    problem: Problem,
    point: Point,
    first: Point,
    second: Point,
    first_steps: Sequence[float] | np.ndarray,
    second_steps: Sequence[float] | np.ndarray,
) -> ObjectivePlane:
    """The objective at point + s first + t second for all s and t; on spheres of tangent parts, rows scaled back.

    >>> from neuralcollapse.ufm import RegularizedUFM
    >>> model = RegularizedUFM("mse", 2, 1, 2, weight_decay=0.1, feature_decay=0.1)
    >>> best = model.optimum().point
    >>> plane = objective_plane(model, best, model.random_point(0), model.random_point(1), [-1, 0, 1], [0, 1])
    >>> plane.values.shape, bool(plane.values[1, 0] == plane.values.min())
    ((3, 2), True)

    Args:
        problem: whose objective.
        point: the middle, at steps 0 and 0.
        first: the direction of the rows, as it is (not scaled to unit length).
        second: the direction of the columns.
        first_steps: s, one a row.
        second_steps: t, one a column.

    """
    problem.check(point)
    ways = [problem.project(point, problem.check_direction(direction)) for direction in (first, second)]
    grid = []
    for name, steps in (("first_steps", first_steps), ("second_steps", second_steps)):
        numbers = np.array([real(f"{name}[{index}]", step) for index, step in enumerate(np.asarray(steps).tolist())])
        if numbers.size == 0:
            raise ValueError(f"{name} must name at least one step")
        grid.append(numbers)
    values = [[_value_after(problem, point, ways[0] * float(s) + ways[1] * float(t)) for t in grid[1]] for s in grid[0]]
    return ObjectivePlane(grid[0], grid[1], np.array(values))


def _value_after(problem: Problem, point: Point, step: Point) -> float:
    return problem.value(problem.retract(point, step))
