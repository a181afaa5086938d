"""How pictures write numbers."""

import pytest

from neuralcollapse.studies.pictures import figure, plain_decimals, styled


def written(low: float, high: float) -> list[str]:
    """The labels of a logarithmic axis from ``low`` to ``high``."""
    with styled():
        picture, axes = figure()
        axes[0, 0].set_yscale("log")
        axes[0, 0].set_ylim(low, high)
        plain_decimals(picture)
        picture.canvas.draw()
        labels = axes[0, 0].yaxis.get_ticklabels(which="both")
        shown = [label for label in labels if low <= label.get_position()[1] <= high]
        return [label.get_text() for label in shown if label.get_text()]


@pytest.mark.parametrize(("low", "high"), [(0.52, 0.63), (0.7, 1.2), (0.4, 2.5), (2.0, 55.0)])
def test_narrow_logarithmic_axes_have_plain_decimals(low: float, high: float) -> None:
    labels = written(low, high)
    assert len(labels) >= 2
    assert all(low <= float(label) <= high for label in labels)


def test_wide_logarithmic_axes_have_powers_of_ten() -> None:
    assert all("10^" in label for label in written(1e-6, 10.0))
