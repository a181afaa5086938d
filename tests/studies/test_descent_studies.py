"""The studies of single features and of the regularised model: each part true and false, numbers by hand."""

import dataclasses
import math

import numpy as np
import pytest

from neuralcollapse.studies import Result, Results, get
from neuralcollapse.studies.geometric.value import dimensions
from neuralcollapse.studies.mse.gradient_field import gradient_field
from neuralcollapse.studies.mse.landscape import landscape
from neuralcollapse.ufm import Trace

pytestmark = pytest.mark.unchecked


def rulings(study, value):
    """The verdicts by part if each planned cell gives ``value(entry)``; at desk size, where parts are decided."""
    results = Results("desk", tuple(Result(entry.labels, value(entry)) for entry in study.planned("smoke")))
    return {part.name: part.verdict for part in study.parts(results)}


# mse/landscape ------------------------------------------------------------------------------------------------------


def test_the_landscape_of_the_paper():
    found = rulings(get("mse/landscape"), lambda entry: landscape(**entry.cell.arguments))
    # Up to s = 2 vanilla MSE is steeper in the angle, up to s = 5 it is not: the paper's figure ends somewhere.
    assert found == {"vanilla": "underpowered", "cross-entropy": "holds", "rescaled": "holds"}


@pytest.mark.parametrize(
    ("loss", "share", "part"),
    [("MSE", 0.5, "vanilla"), ("CE", 0.5, "cross-entropy"), ("MSE (M=5)", 0.4, "rescaled"), (None, None, None)],
)
def test_a_surface_of_another_shape_contradicts_its_part_alone(loss, share, part):
    def value(entry):
        natural = 0.3 if entry.labels["loss"] == "MSE" else 0.8
        found = share if entry.labels["loss"] == loss else natural
        areas = [{"s_max": norm, "steeper_in_theta": found} for norm in (1.0, 1.25, 2.0, 3.0, 5.0)]
        return {"steeper_in_theta": found, "areas": areas}

    found = rulings(get("mse/landscape"), value)
    assert part is None or found.pop(part) == "contradicted"
    assert set(found.values()) == {"holds"}


def test_a_part_says_when_it_depends_on_the_region():
    """Vanilla MSE at K = 10 is steeper in s on the region up to s = 5, and in theta up to s = 2."""
    study = get("mse/landscape")
    found = Results("desk", tuple(Result(e.labels, landscape(**e.cell.arguments)) for e in study.planned("smoke")))
    why = {part.name: part.why for part in study.parts(found)}
    assert "It depends on the region: 52% at s <= 2." in why["vanilla"]
    assert "Regions that end at a smaller s say the same." in why["cross-entropy"]


def test_steepness_by_finite_differences():
    value = landscape("squared-error", 10, 40)
    count = 0
    places = [((i + 0.5) / 40 * 5, (j + 0.5) / 40 * math.pi / 2) for i in range(40) for j in range(40)]
    region = [(s, theta) for s, theta in places if s > 1 and theta < 1.5]

    def loss(s, theta):  # (31) with alpha = M = 1, K = 10
        wrong = (math.sqrt(80) * math.sin(theta) - math.cos(theta)) / 9
        rest = (math.sqrt(10 / 8) * math.sin(theta) + math.cos(theta)) / 9
        return 0.5 * (s * math.cos(theta) - 1) ** 2 + s**2 / 2 * (wrong**2 + 8 * rest**2)

    for s, theta in region:
        by_s = loss(s + 1e-5, theta) - loss(s - 1e-5, theta)
        by_theta = loss(s, theta + 1e-5) - loss(s, theta - 1e-5)
        count += abs(by_theta) > abs(by_s)
    assert value["steeper_in_theta"] == pytest.approx(count / len(region), abs=2 / len(region))


# geometric/bound ----------------------------------------------------------------------------------------------------

CURVE = {
    "local_minima": 1,
    "grid_minimiser": 10.0,
    "closed_form_rho": 10.0,
    "grid_step": 1.01,
    "closed_form_value": 2.0,
    "grid_minimum": 2.0,
    "off_at_zero": 0.0,
    "slope_off_at_infinity": 0.0,
}
CRITICAL_POINT = {"value": 2.0, "bound": 1.9, "gradient_norm": 1e-12, "rho": 3.0}
BOUND_PARTS = {"one-minimum", "minimiser", "value", "at-zero", "at-infinity", "critical-points"}


def bounds(where, **changes):
    """Verdicts on the bound when one entry, the first of its kind, is changed."""
    changed = []

    def value(entry):
        what = entry.labels["what"]
        natural = CURVE if what == "curve" else CRITICAL_POINT
        if what != where or changed:
            return natural
        changed.append(entry)
        return {**natural, **changes}

    return rulings(get("geometric/bound"), value)


def test_a_bound_as_the_paper_has_it():
    assert bounds("nowhere") == dict.fromkeys(BOUND_PARTS, "holds")


@pytest.mark.parametrize(
    ("part", "where", "changes"),
    [
        ("one-minimum", "curve", {"local_minima": 2}),
        ("minimiser", "curve", {"grid_minimiser": 10 * 1.01**1.5}),
        ("value", "curve", {"grid_minimum": 2 - 1e-11}),
        ("at-zero", "curve", {"off_at_zero": 1e-8}),
        ("at-infinity", "curve", {"slope_off_at_infinity": 1e-8}),
        ("critical-points", "critical point", {"bound": 2 + 1e-9}),
    ],
)
def test_one_curve_or_point_contradicts_its_part_of_the_bound_alone(part, where, changes):
    assert bounds(where, **changes) == {**dict.fromkeys(BOUND_PARTS, "holds"), part: "contradicted"}


# mse/gradient-field -------------------------------------------------------------------------------------------------


def test_the_gradient_field_of_the_paper_and_what_areas_say():
    found = rulings(get("mse/gradient-field"), lambda entry: gradient_field(**entry.cell.arguments))
    assert found == {
        "right-angle": "holds",
        "aligned": "holds",
        "near-boundary": "holds",
        "areas": "contradicted",
        "turned-away": "holds",
    }


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("right-angle", {"right_angle_error": 1e-3}),
        ("aligned", {"least_alignment_at_right_angle": 0.1}),
        ("near-boundary", {"alignment_near_boundary": -0.5}),
        ("turned-away", {"predicted_wrongly": 0.01}),
    ],
)
def test_each_part_of_the_gradient_field_can_fail(part, changes):
    def value(entry):
        true = gradient_field(**entry.cell.arguments)
        return {**true, **changes} if entry.labels["loss"] == "MSE (alpha=5)" else true

    assert rulings(get("mse/gradient-field"), value)[part] == "contradicted"


def test_areas_hold_where_every_area_gains():
    def value(entry):
        flat = [{"s_max": row, "mean_cosine": float(entry.labels["loss"] != "MSE")} for row in (1.0, 5.0)]
        return {**gradient_field(**entry.cell.arguments), "areas": flat}

    assert rulings(get("mse/gradient-field"), value)["areas"] == "holds"


def test_alpha_alone_turns_descent_away_where_the_formula_says():
    value = gradient_field("squared-error:alpha=5,target=1", None, 400)
    middles = (np.arange(400) + 0.5) / 400
    beyond = 5 * middles * np.cos(np.pi / 2 * middles)[:, None] > 5 / 4
    assert value["turned_away"] == pytest.approx(float(beyond.mean()), abs=1e-12)
    assert value["alignment_at_right_angle"] == pytest.approx(5 / math.sqrt(26))  # of (s, 5 s)
    means = {row["s_max"]: row["mean_cosine"] for row in value["areas"]}
    assert means[5.0] == pytest.approx(0.044, abs=2e-3)
    assert means[1.0] == pytest.approx(0.516, abs=2e-3)


# geometric/value ----------------------------------------------------------------------------------------------------


def ended(entry, factor=1.0, nc1=0.0) -> Trace:
    """A descent that ends at ``factor`` times the global minimum."""
    optimum = entry.cell.problem.optimum()
    history = {"iteration": [0], "nc1": [nc1], "value": [optimum.value]}
    trace = Trace(optimum.point, history, True, "", "", "converged", entry.cell.problem, optimum.value, 0.0, 0, 0.0)
    return dataclasses.replace(trace, value=factor * optimum.value)


def test_descents_that_end_at_the_closed_form():
    assert set(rulings(get("geometric/value"), ended).values()) == {"holds"}


@pytest.mark.parametrize("loss", ["cross-entropy", "label-smoothing", "focal", "squared-error"])
def test_one_descent_that_ends_elsewhere_contradicts_its_loss(loss):
    def value(entry):
        labels = entry.labels
        away = labels["loss"] == loss and labels["d"] == 2 * labels["K"] and labels["bias"]
        return ended(entry, 1.001 if away else 1.0)

    found = rulings(get("geometric/value"), value)
    assert {name for name, verdict in found.items() if verdict == "contradicted"} == {loss}


def test_the_conjectured_case_and_collapse_are_parts_of_their_own():
    def value(entry):
        return ended(entry, 1.01 if entry.labels["d"] < entry.labels["K"] - 1 and entry.labels["bias"] else 1.0)

    found = rulings(get("geometric/value"), value)
    assert {name for name, verdict in found.items() if verdict == "contradicted"} == {"narrow-bias"}
    assert rulings(get("geometric/value"), lambda entry: ended(entry, nc1=1e-3))["collapse"] == "contradicted"


def test_real_descents_reach_the_closed_form():
    for entry in get("geometric/value").planned("smoke")[::9]:
        trace = entry.cell._solve(**entry.cell.options)
        assert trace.value == pytest.approx(entry.cell.problem.optimum().value, rel=1e-8)


def test_only_the_squared_error_has_a_closed_form_below_k_minus_one():
    assert dimensions("cross-entropy", 10) == (9, 10, 20)
    assert dimensions("squared-error", 10) == (1, 5, 9, 10, 20)
    assert dimensions("squared-error", 3) == (1, 2, 3, 6)
