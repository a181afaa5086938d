"""The codes' phase diagram, against losses of explicit codes and solves that do not know them."""

import numpy as np
import pytest
import torch

from neuralcollapse.frames import orthogonal_simplices
from neuralcollapse.landscape import code_diagram
from neuralcollapse.ufm import NormalizedUFM, solve


def explicit(sizes, temperature):
    rows = orthogonal_simplices(list(sizes))
    return float(torch.nn.functional.cross_entropy(temperature * rows @ rows.T, torch.arange(len(rows))))


@pytest.mark.parametrize(("classes", "dim", "number"), [(6, 4, 2), (8, 6, 3), (9, 6, 3), (8, 4, 1)])
def test_values_are_those_of_explicit_codes(classes, dim, number):
    temperatures = [0.3, 1.0, 4.0]
    diagram = code_diagram(classes, dim, temperatures)
    assert len(set(diagram.codes)) == number
    assert all(sum(code) == classes and len(code) == classes - dim for code in diagram.codes)
    expected = [[explicit(code, temperature) for temperature in temperatures] for code in diagram.codes]
    np.testing.assert_allclose(diagram.values, expected, rtol=1e-12)
    for column, code in enumerate(diagram.best):
        assert explicit(code, temperatures[column]) == pytest.approx(min(row[column] for row in expected), rel=1e-12)


def test_the_change_is_where_solves_change():
    """A little below and above it, the best of many starts has the value of the code named there."""
    diagram = code_diagram(6, 4, np.geomspace(0.3, 5, 9))
    assert (diagram.best[0], diagram.best[-1]) == ((3, 3), (4, 2))
    (change,) = diagram.changes
    assert explicit((3, 3), change) == pytest.approx(explicit((4, 2), change), rel=1e-13)
    for temperature, code in ((change / 2, (3, 3)), (change * 2, (4, 2))):
        model = NormalizedUFM("ce", 6, 1, 4, temperature)
        lowest = min(solve(model, seed=seed).value for seed in range(6))
        assert lowest == pytest.approx(explicit(code, temperature), rel=1e-9)
        other = (4, 2) if code == (3, 3) else (3, 3)
        assert explicit(other, temperature) > lowest * (1 + 1e-5)


def test_the_picture_names_the_winners_and_marks_the_change():
    diagram = code_diagram(8, 6, np.geomspace(0.1, 8, 40))
    (axis,) = diagram.plot().axes
    legend = axis.get_legend()
    assert legend is not None
    names = {text.get_text() for text in legend.get_texts()}
    assert names == {"+".join(map(str, code)) for code in diagram.best}
    dashed = [float(np.asarray(line.get_xdata())[0]) for line in axis.lines if line.get_linestyle() == "--"]
    assert dashed == list(diagram.changes)
    codes = [line for line in axis.lines if line.get_linestyle() == "-"]
    best = [min(explicit(code, temperature) for code in diagram.codes) for temperature in diagram.temperatures]
    for code, line in zip(diagram.codes, codes, strict=True):
        losses = np.array([explicit(code, temperature) for temperature in diagram.temperatures])
        np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), losses / best - 1, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((5, 4, [1.0]), r"num_classes must be in 6\.\.8"),
        ((9, 4, [1.0]), r"num_classes must be in 6\.\.8"),
        ((6, 4, []), "temperatures must be at least one number, rising"),
        ((6, 4, [2.0, 1.0]), "temperatures must be at least one number, rising"),
        ((6, 4, [1.0, -1.0]), r"temperatures\[1\] must be greater than 0"),
        ((150, 100, [1.0]), "more than 2000 partitions"),
    ],
)
def test_what_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        code_diagram(*arguments)
