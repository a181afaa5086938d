"""Slices of the objective, against objectives written out here."""

import math

import numpy as np
import pytest
import torch

from neuralcollapse.landscape import objective_plane, objective_slice
from neuralcollapse.ufm import NormalizedUFM, RegularizedUFM


def by_hand(model, point):
    value = torch.nn.functional.cross_entropy(point.H @ point.W.T, model.labels)
    value += model.weight_decay / 2 * point.W.square().sum() + model.feature_decay / 2 * point.H.square().sum()
    return float(value)


def test_a_line_and_its_continuation():
    model = RegularizedUFM("ce", 3, [2, 1, 4], 4, 0.02, 0.05)
    start, end = model.random_point(0), model.random_point(1)
    positions, values = objective_slice(model, start, end, steps=5, reach=(-1.0, 3.0))
    assert positions.tolist() == [-1.0, 0.0, 1.0, 2.0, 3.0]
    expected = [by_hand(model, (1 - t) * start + t * end) for t in positions.tolist()]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert objective_slice(model, start, end).positions.shape == (51,)


def test_a_line_on_spheres_keeps_unit_rows():
    model = NormalizedUFM("ce", 3, 2, 4, temperature=2.0)
    start, end = model.random_point(0), model.random_point(1)
    found = objective_slice(model, start, end, steps=4)
    unit = torch.nn.functional.normalize
    for t, value in zip([0, 1 / 3, 2 / 3, 1], found.values, strict=True):
        classifier, features = (
            unit((1 - t) * start.classifier + t * end.classifier),
            unit((1 - t) * start.H + t * end.H),
        )
        expected = torch.nn.functional.cross_entropy(2 * features @ classifier.T, model.labels)
        assert value == pytest.approx(float(expected), rel=1e-12)


def test_a_plane():
    model = RegularizedUFM("ce", 3, [2, 1, 4], 4, 0.02, 0.05)
    point, first, second = (model.random_point(seed) for seed in range(3))
    plane = objective_plane(model, point, first, second, [-1.0, 0.5], np.array([0.0, 1.0, 2.0]))
    assert plane.values.shape == (2, 3)
    for row, s in enumerate([-1.0, 0.5]):
        for column, t in enumerate([0.0, 1.0, 2.0]):
            assert plane.values[row, column] == pytest.approx(by_hand(model, point + s * first + t * second), rel=1e-12)


def test_the_curvature_of_a_plane_is_the_hessian():
    """Second differences on spheres, of directions that are not tangent."""
    model = NormalizedUFM("ce", 3, 2, 4, temperature=2.0)
    point, first, second = (model.random_point(seed) for seed in range(3))
    h = 1e-3
    values = objective_plane(model, point, first, second, [-h, 0, h], [-h, 0, h]).values
    mixed = (values[2, 2] - values[0, 2] - values[2, 0] + values[0, 0]) / (4 * h * h)
    expected = model.project(point, second).dot(model.hessian_vector(point, first))
    assert mixed == pytest.approx(expected, abs=1e-5)
    assert abs(expected) > 1e-3


def test_what_is_refused():
    model = RegularizedUFM("ce", 3, 2, 4, 0.02, 0.05)
    point, other = model.random_point(0), RegularizedUFM("ce", 3, 2, 5, 0.02, 0.05).random_point(0)
    with pytest.raises(ValueError, match=r"point\.W"):
        objective_slice(model, point, other)
    with pytest.raises(ValueError, match="steps must be at least 2, got 1"):
        objective_slice(model, point, point, steps=1)
    with pytest.raises(ValueError, match=r"reach\[1\] must be finite"):
        objective_slice(model, point, point, reach=(0.0, math.inf))
    with pytest.raises(ValueError, match=r"direction\.W"):
        objective_plane(model, point, other, point, [0.0], [0.0])
    with pytest.raises(ValueError, match="second_steps must name at least one step"):
        objective_plane(model, point, point, point, [0.0], [])
