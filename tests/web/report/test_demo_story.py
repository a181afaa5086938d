"""The sentences of the demo's page, of curves that are made up."""

from types import SimpleNamespace

import pytest

from neuralcollapse.web.report._demo import _story

pytestmark = pytest.mark.unchecked


def a_loss(**curves):
    return SimpleNamespace(run=SimpleNamespace(curve=lambda name: (list(range(1, 6)), curves[name])))


def test_what_is_reached_for_good_counts_from_where_it_is_never_lost_again():
    first = a_loss(
        accuracy=[0.9, 1.0, 0.95, 1.0, 1.0],  # reached at 2, lost at 3, kept from 4 on
        nc1=[8.0, 6.0, 5.0, 4.0, 2.0],
        nc2=[9.0, 9.0, 9.0, 3.0, 1.0],
        nc3=[9.0, 9.0, 9.0, 1.0, 1.0],
        nc4_mismatch=[0.1, 0.0, 0.1, 0.0, 0.0],
    )
    text = _story([first])
    assert "for good from epoch 4 on" in text
    assert "NC1 by a factor of 2 and NC2 by a factor of 3 or more" in text
    assert "NC3 had come to rest" in text
    assert "it is zero for good from epoch 4 on, under every loss no later" in text
    second = a_loss(
        accuracy=[0.9, 0.9, 1.0, 1.0, 1.0],
        nc1=[8.0] * 5,
        nc2=[9.0, 9.0, 8.0, 7.0, 6.0],
        nc3=[9.0] * 5,
        nc4_mismatch=[0.1, 0.1, 0.1, 0.1, 0.0],
    )
    text = _story([first, second])
    assert "for good from epochs 3 to 4 on" in text
    assert "zero for good from epochs 4 to 5 on." in text
    assert _story([second, a_loss(accuracy=[1.0, 1.0, 1.0, 1.0, 0.9])]).startswith("Not every net fits")
