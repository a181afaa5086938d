"""Pictures of landscapes show the numbers they stand for."""

import math

import numpy as np
import pytest

from neuralcollapse.landscape import FeatureSlice, phase_diagram
from neuralcollapse.losses import SquaredError


def test_a_phase_diagram_colours_each_cell_by_its_regime():
    decays = [1e-4, 1e-2, 1.0]
    diagram = phase_diagram("ce", 3, 2, 4, decays, decays[1:])
    figure = diagram.plot()
    (mesh,) = figure.axes[0].collections
    names = sorted(set(diagram.regimes.ravel().tolist()))
    shown = np.array(names, dtype=object)[np.asarray(mesh.get_array()).astype(int)].reshape(3, 2)
    assert (shown == diagram.regimes).all()
    assert {"zero", "neural collapse"} <= set(names)
    low, high = figure.axes[0].get_ylim()
    assert (low, high) == pytest.approx((1e-5, 10.0))
    one = phase_diagram("ce", 3, 2, 4, [0.01], [0.01]).plot()
    assert [text.get_text() for text in one.axes[0].texts] == ["neural collapse"]
    assert one.axes[0].get_xlim() == pytest.approx((0.01 / math.e**0.5, 0.01 * math.e**0.5)), "a cell by itself"
    one.canvas.draw()


def test_a_feature_slice_draws_its_values():
    slice_ = FeatureSlice(SquaredError(), 4)
    figure = slice_.plot(largest=3.0)
    (drawn,) = figure.axes[0].collections
    low, high = drawn.get_clim()
    norms, angles = np.meshgrid(np.linspace(0, 3, 400), np.linspace(-np.pi, np.pi, 400))
    values = slice_.value(norms, angles)
    assert low <= values.min() + 0.5
    assert abs(high - values.max()) < 0.5
    assert figure.axes[0].get_xlim() == pytest.approx((0.0, 3.0))
    with pytest.raises(ValueError, match="largest must be greater than 0"):
        slice_.plot(largest=0.0)


def test_a_regime_is_named_in_its_region_and_has_its_colour_from_the_theme():
    decays = [10 ** (-3 + step / 5) for step in range(16)]
    figure = phase_diagram("ce", 4, 10, 6, decays, decays).plot()
    (axis,) = figure.axes
    assert {text.get_text() for text in axis.texts} == {"neural collapse", "zero"}
    assert not figure.legends
    spots = {text.get_text(): text.xy for text in axis.texts}
    assert math.prod(spots["neural collapse"]) < math.prod(spots["zero"])
