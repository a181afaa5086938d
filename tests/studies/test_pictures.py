"""How pictures write numbers."""

import pytest

from neuralcollapse.studies._common.geometric_and_mse import epochs_on_log_axis
from neuralcollapse.studies.pictures import figure, legend_below, plain_decimals, shades, styled


def written(low: float, high: float) -> list[str]:
    """The labels of a logarithmic axis from ``low`` to ``high``, in a panel as small as the studies have them."""
    with styled():
        picture, axes = figure(1, 5, size=(1.85, 1.85))
        axes[0, 0].set_yscale("log")
        axes[0, 0].set_ylim(low, high)
        plain_decimals(picture)
        picture.canvas.draw()
        labels = axes[0, 0].yaxis.get_ticklabels(which="both")
        shown = [label for label in labels if low <= label.get_position()[1] <= high]
        return [label.get_text() for label in shown if label.get_text()]


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.52, 0.63), (0.21, 0.99), (0.7, 1.2), (0.4, 2.5), (2.0, 55.0), (0.018, 0.45), (0.045, 1.1), (0.006, 0.9)],
)
def test_narrow_logarithmic_axes_have_plain_decimals(low: float, high: float) -> None:
    labels = written(low, high)
    assert 2 <= len(labels) <= 7
    assert all(low <= float(label) <= high for label in labels)


@pytest.mark.parametrize(("low", "high"), [(1e-6, 10.0), (1e-12, 1e-3)])
def test_wide_logarithmic_axes_have_powers_of_ten_and_no_labels_between(low: float, high: float) -> None:
    labels = written(low, high)
    assert len(labels) >= 3
    assert all(label.startswith("$\\mathdefault{10^{") for label in labels)


@pytest.mark.parametrize(
    ("last", "ticks"), [(3, [1, 3]), (30, [1, 10, 30]), (80, [1, 10, 80]), (400, [1, 10, 100, 400])]
)
def test_epochs_on_a_logarithmic_axis_begin_with_one_and_end_with_the_last(last: int, ticks: list[int]) -> None:
    _, axes = figure()
    axes[0, 0].plot([1, last], [1, 2])
    epochs_on_log_axis(axes[0, 0])
    assert list(axes[0, 0].get_xticks()) == ticks


@pytest.mark.parametrize(("width", "entries", "columns"), [(4.7, 4, 2), (9.0, 4, 4), (9.0, 8, 4), (3.4, 5, 2)])
def test_rows_of_a_legend_have_equal_lengths(width: float, entries: int, columns: int) -> None:
    picture, axes = figure(size=(width, 2.0))
    for place in range(entries):
        axes[0, 0].plot([0, 1], [place, place], label=f"line {place}")
    legend_below(picture, axes[0, 0])
    assert picture.legends[0]._ncols == columns


def test_the_brightest_shade_is_seen_on_white() -> None:
    red, green, blue, _ = shades(8)[-1]
    assert 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.8
