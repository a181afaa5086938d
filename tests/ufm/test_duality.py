"""The parts of bounds and verdicts by themselves."""

import math

import pytest

from neuralcollapse.ufm import RegularizedUFM
from neuralcollapse.ufm.duality import best_on_ray
from neuralcollapse.ufm.verdict import _descends

PROBLEM = RegularizedUFM("ce", 3, 4, 5, 0.01, 0.02)


@pytest.mark.parametrize("top", [0.2, 1.0, 7.0])
@pytest.mark.parametrize("largest", [math.inf, 10.0])
def test_a_parabola_is_climbed_to_its_top(top, largest):
    assert best_on_ray(lambda c: 3 - (c - top) ** 2, largest) == pytest.approx(3, abs=1e-12)


def test_a_bound_that_grows_ends_at_the_last_that_is_allowed():
    assert best_on_ray(lambda c: c, 4.0) == 4.0
    assert best_on_ray(lambda c: -c, 4.0) == 0.0
    assert best_on_ray(lambda c: 2.0, 0.0) == 2.0


@pytest.mark.parametrize("distance", [1e-2, 1e-4])
def test_near_a_minimum_a_point_is_not_critical(distance):
    """Its gradient is small beside that of a point far away, but not zero."""
    point = PROBLEM.optimum().point + PROBLEM.random_point(0) * distance
    certificate = PROBLEM.certify(point, tolerance=1e-14)
    assert certificate.verdict == "not a critical point"
    assert 0 < certificate.gap < 1


def test_a_slope_alone_is_no_way_down_from_a_saddle():
    """One side of a step along the gradient is lower; the mean of both is not, where the curvature is positive."""
    point = PROBLEM.optimum().point + PROBLEM.random_point(0) * 1e-3
    gradient = PROBLEM.gradient(point)
    direction = gradient * (1 / gradient.norm())
    value = PROBLEM.value(point)
    assert PROBLEM.value(point - direction * 1e-4) < value
    assert not _descends(PROBLEM, point, direction, value)
