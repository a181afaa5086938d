"""losses/focal-curves and losses/focal-starts: each claim on results in which it is true, and in which it is false."""

import numpy as np
import pytest

from made_up import ended, results, verdicts
from neuralcollapse.studies import get
from neuralcollapse.studies.losses.focal_curves import count_minima, focal_curves
from neuralcollapse.studies.losses.focal_starts import levels

pytestmark = pytest.mark.unchecked  # results are stand-ins


def test_minima_are_counted_with_both_ends():
    assert count_minima(np.array([3.0, 2.0, 1.0])) == 1
    assert count_minima(np.array([3.0, 1.0, 2.0])) == 1
    assert count_minima(np.array([3.0, 1.0, 2.0, 0.0])) == 2
    assert count_minima(np.array([0.0, 1.0, 2.0])) == 1


def test_the_grid_finds_the_jump_of_the_theory_sheet():
    value = focal_curves(100, 3.0, 20_001)
    assert value["zero_stable_above"] == pytest.approx(0.0110570481898, rel=1e-5)
    assert value["exchange"] == pytest.approx(0.0117521155915, rel=1e-6)
    assert value["collapse_exists_below"] == pytest.approx(0.0121368966802, rel=1e-5)


def test_curves():
    study = get("losses/focal-curves")
    planned = study.planned("smoke")
    true = {count: focal_curves(count, 3.0, 20_001) for count in (10, 100)}

    def changed(count, **changes):
        values = {**true, count: {**true[count], **changes}}
        return verdicts(study, results(planned, lambda e: values[e.labels["K"]]))

    assert set(changed(10).values()) == {"holds"}
    assert changed(100, exchange=true[100]["exchange"] * 1.01)["thresholds"] == "contradicted"
    assert changed(10, minima=[2] * len(true[10]["minima"]))["one-kind"] == "contradicted"
    assert changed(100, minima=[1] * len(true[100]["minima"]))["three-kinds"] == "contradicted"
    assert changed(100, minimisers=[-5.0] * len(true[100]["minimisers"]))["unique"] == "contradicted"


def starts(stuck):
    """Verdicts when the starts for which ``stuck`` is true end above the minimum."""
    study = get("losses/focal-starts")
    planned = study.planned("smoke")
    best = {entry.name: entry.cell.problem.optimum().value for entry in planned}
    above = results(planned, lambda e: ended(e, value=best[e.name] * (1.01 if stuck(e.labels) else 1)))
    return verdicts(study, above)


def test_starts():
    assert set(starts(lambda _: False).values()) == {"holds"}
    found = starts(lambda labels: labels["where"] == "above" and labels["scale"] < 1)
    assert found == {"weak-decay": "holds", "strong-decay": "contradicted"}
    assert starts(lambda labels: labels["where"] == "below")["weak-decay"] == "contradicted"


def test_levels_lie_around_the_sheets_thresholds():
    places = list(levels(100))
    assert [where for where, _, _ in places] == ["below"] * 3 + ["above"] * 3
    assert all(s < 0.01106 for where, _, s in places if where == "below")
    assert all(0.01105 < s < 0.01176 for where, _, s in places if where == "above")
    assert {where for where, _, _ in levels(10)} == {"below"}  # a transition of second order


def test_the_erratum_is_named():
    claims = {claim.name: claim.erratum for claim in get("losses/focal-starts").claims}
    assert claims == {"weak-decay": None, "strong-decay": 9}
