"""The normalized paper's studies without nets: each claim on results in which it is true, and in which it is false."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch

from made_up import ended, results, verdicts
from neuralcollapse.studies import Planned, Solve, get
from neuralcollapse.studies.normalized._sweeps import CONTRASTIVE, collapse_value, solves
from neuralcollapse.studies.normalized.losses import FOCAL, SMOOTHED, SMOOTHING, critical_of, measured_temperature
from neuralcollapse.studies.normalized.low_dimension import misalignment, polygon_value, variation
from neuralcollapse.studies.normalized.speed import GD, METHODS, NORMALISED, STARTS, TR, iterations_to
from neuralcollapse.ufm import NormalizedUFM, Point, RegularizedUFM, Trace, critical_temperature

pytestmark = pytest.mark.unchecked  # results are stand-ins


# value --------------------------------------------------------------------------------------------------------------


def test_value_holds_at_the_closed_form_only():
    study = get("normalized/value")
    planned = study.planned("paper")
    assert len(planned) == (16 + 20) * 10
    assert {(e.cell.problem.dim, e.cell.problem.per_class) for e in planned} == {(16, 3)}
    planned = study.planned("smoke")
    assert set(verdicts(study, results(planned, ended)).values()) == {"holds"}
    best = {entry.name: entry.cell.problem.optimum().value for entry in planned}
    worse = results(planned, lambda e: ended(e, value=best[e.name] + 1e-6))
    assert verdicts(study, worse) == {"value": "contradicted", "same-values": "holds", "collapse": "holds"}
    once = results(planned, lambda e: ended(e, value=best[e.name] + 1e-6 * e.labels["seed"]))
    assert verdicts(study, once)["same-values"] == "contradicted"
    loose = results(planned, lambda e: ended(e, history={"iteration": [0], "nc1": [0.1]}))
    assert verdicts(study, loose)["collapse"] == "contradicted"


# losses -------------------------------------------------------------------------------------------------------------


def moved(planned: Planned, wrong: str, by: float, beyond: bool | None = None) -> Trace:
    labels = planned.labels
    is_beyond = wrong == SMOOTHED and labels["tau"] > critical_temperature(SMOOTHING, labels["K"])
    if labels["loss"] != wrong or (beyond is not None and is_beyond != beyond):
        return ended(planned)
    return ended(planned, value=planned.cell.problem.optimum().value + by)


@pytest.mark.parametrize(
    ("wrong", "beyond", "parts"),
    [
        (FOCAL, None, {"focal"}),
        (CONTRASTIVE, None, {"contrastive"}),
        (SMOOTHED, False, {"smoothing-small-tau"}),
        (SMOOTHED, True, {"smoothing-minimum"}),
    ],
)
def test_losses_whose_values_are_missed(wrong, beyond, parts):
    study = get("normalized/losses")
    planned = study.planned("smoke")
    assert set(verdicts(study, results(planned, ended)).values()) == {"holds"}
    found = verdicts(study, results(planned, lambda e: moved(e, wrong, 1e-3, beyond)))
    assert {name for name, verdict in found.items() if verdict == "contradicted"} == parts


def test_smoothing_that_always_collapses_contradicts_the_figure():
    study = get("normalized/losses")
    planned = study.planned("smoke")

    def collapsed(entry: Planned) -> Trace:
        return ended(entry, value=collapse_value(entry.labels["loss"], entry.labels["K"], entry.labels["tau"]))

    found = verdicts(study, results(planned, collapsed))
    assert found["smoothing-large-tau"] == "contradicted"
    spread = results(planned, lambda e: ended(e, history={"iteration": [0], "nc1": [0.1]}))
    assert verdicts(study, spread)["collapse"] == "contradicted"
    assert {entry.cell.problem.kind for entry in planned if entry.labels["loss"] == CONTRASTIVE} == {"contrastive"}


@pytest.mark.parametrize(("method", "verdict"), [("gradient-descent", "holds"), ("trust-region", "contradicted")])
def test_contrastive_collapse_is_read_off_the_solves_that_come_to_rest(method, verdict):
    study = get("normalized/losses")
    loose = {"iteration": [0], "nc1": [0.1]}
    found = results(
        study.planned("smoke"),
        lambda e: ended(e, history=loose) if e.labels["loss"] == CONTRASTIVE and e.cell.method == method else ended(e),
    )
    assert verdicts(study, found)["collapse"] == verdict


def test_losses_whose_starts_disagree_or_whose_margins_are_off():
    study = get("normalized/losses")
    planned = study.planned("smoke")
    uneven = results(planned, lambda e: moved(e, CONTRASTIVE, 1e-3 * e.labels["seed"]))
    assert verdicts(study, uneven)["same-values"] == "contradicted"

    def short(entry: Planned) -> Trace:
        point = ended(entry).point
        return ended(entry, point=Point(point.W, 0.9 * point.H, None) if entry.labels["loss"] == SMOOTHED else point)

    assert verdicts(study, results(planned, short))["critical-temperature"] == "contradicted"


def test_margins_measure_the_critical_temperature():
    planned = get("normalized/losses").planned("smoke")
    for one in solves(results(planned, ended).where(loss=SMOOTHED)):
        assert measured_temperature(one) == pytest.approx(min(one.temperature, critical_of(one)), rel=1e-6)


# speed --------------------------------------------------------------------------------------------------------------


def curve(accurate: int, collapsed: tuple[int, int, int], length: int = 60) -> SimpleNamespace:
    """A trace that fits all samples from one iteration on, and has NC1 below .1, .01 and .001 from three others on."""
    nc1 = [1.0 if i < collapsed[0] else 0.05 if i < collapsed[1] else 5e-3 if i < collapsed[2] else 1e-5
           for i in range(length)]  # fmt: skip
    history = {"accuracy": [float(i >= accurate) for i in range(length)], "nc1": nc1, "iteration": list(range(length))}
    return SimpleNamespace(history=history, iterations=length - 1)


def test_iterations_count_from_where_a_target_is_met_for_good():
    trace = SimpleNamespace(history={"accuracy": [0.1, 1.0, 0.9, 1.0], "nc1": [1.0, 1e-4, 1e-4, 0.05]})
    assert iterations_to(trace, "accuracy") == 3
    assert iterations_to(trace, 0.1) == 1
    assert iterations_to(trace, 0.001) == math.inf


def speed(fast, slow, slow_trust=None):
    """Verdicts when the normalised model goes as ``fast`` and the others as ``slow``, in the trust region otherwise."""
    study = get("normalized/speed")

    def value(entry: Planned) -> SimpleNamespace:
        trust = entry.labels["method"].startswith("trust")
        if entry.labels["model"] == NORMALISED:
            return curve(2, (3, 4, 5)) if trust else fast
        return (slow_trust or curve(20, (22, 24, 26))) if trust else slow

    return verdicts(study, results(study.planned("smoke"), value))


def test_speed_as_the_paper_has_it():
    found = speed(curve(6, (10, 12, 14)), curve(20, (30, 36, 42)))
    assert set(found.values()) == {"holds"}


def test_speed_where_the_regularised_model_leads():
    found = speed(curve(20, (30, 36, 42)), curve(6, (10, 12, 14)), curve(1, (1, 1, 1)))
    wrong = {f"{what}, {method}" for what in ("accuracy", "nc1") for method in METHODS} | {"any-start"}
    assert {name for name, verdict in found.items() if verdict == "contradicted"} >= wrong
    assert speed(curve(6, (10, 12, 14)), curve(20, (30, 36, 42)), curve(3, (4, 5, 6)))["greater-gap"] == "contradicted"
    assert speed(curve(2, (2, 2, 2)), curve(20, (30, 36, 42)))["second-order"] == "contradicted"


def test_every_part_says_whether_it_depends_on_the_start():
    study = get("normalized/speed")

    def value(entry: Planned) -> SimpleNamespace:
        if entry.labels["model"] == NORMALISED:
            return curve(6, (10, 12, 14))
        short = entry.labels["model"] == "rows of norm .1" and entry.labels["method"] == GD
        return curve(3, (8, 36, 42)) if short else curve(20, (30, 36, 42))

    why = {part.name: part.why for part in study.parts(results(study.planned("smoke"), value))}
    said = (
        "It depends on the start: normalised against regularised: 6 against 3 (rows of norm .1 start) to full accuracy."
    )
    assert said in why[f"accuracy, {GD}"]
    assert "It depends on the start" in why[f"nc1, {GD}"]  # for one of the three targets
    for part in (f"nc1, {TR}", f"accuracy, {TR}"):
        assert "From the other starts it is behind as well." in why[part]


def test_a_lead_that_depends_on_the_target_is_not_decided():
    found = speed(curve(6, (10, 12, 50)), curve(20, (30, 36, 42)))
    assert found[f"nc1, {GD}"] == "underpowered"
    assert found[f"nc1, {TR}"] == "holds"


def test_conjugate_gradients_unlike_gradient_descent():
    study = get("normalized/speed")

    def value(entry: Planned) -> SimpleNamespace:
        if entry.labels["model"] == NORMALISED:
            return curve(5, (6, 7, 8))
        return curve(50 if entry.labels["method"].startswith("conjugate") else 10, (12, 13, 14))

    assert verdicts(study, results(study.planned("smoke"), value))["similar"] == "contradicted"


def test_speed_is_planned_as_in_the_paper():
    planned = get("normalized/speed").planned("paper")
    assert len(planned) == 6 * 4 * 10
    for entry in planned:
        problem = entry.cell.problem
        assert (problem.num_classes, problem.per_class, problem.has_bias) == (100, 30, False)
        assert entry.cell.options["every"] == 1
        if entry.labels["model"] == NORMALISED:
            assert problem.temperature == 1
        else:
            assert (problem.weight_decay, problem.feature_decay) == (1e-4, 1e-4)


def test_the_models_of_a_trial_start_from_the_same_directions():
    starts = {}
    for entry in get("normalized/speed").planned("smoke"):
        if entry.labels["method"] == GD and entry.labels["seed"] == 1:
            cell = dataclasses.replace(entry.cell, options={"max_iter": 0})
            starts[entry.labels["model"]] = cell._solve(max_iter=0).point
    unit = torch.nn.functional.normalize
    for name, norm in (("Gaussian", 4.0), ("rows of norm 1", 1.0), ("rows of norm .1", 0.1)):
        torch.testing.assert_close(unit(starts[name].H), starts[NORMALISED].H)
        assert float(starts[name].H.square().sum(1).mean()) ** 0.5 == pytest.approx(norm, rel=0.1)
    assert set(starts) == {NORMALISED, *STARTS}


def test_a_scale_of_one_does_not_change_a_cells_key():
    problem = RegularizedUFM("ce", 3, 2, 4, 0.01, 0.01)
    assert (
        Solve(problem, "gd", 1).key == Solve(problem, "gd", 1, scale=1.0).key != Solve(problem, "gd", 1, scale=2.0).key
    )


# temperature-ufm ----------------------------------------------------------------------------------------------------


def temperature(**facts):
    """Verdicts on trials of tau = .1, 1, 5, 10 and 100 with the facts by tau that differ from the paper's figure."""
    study = get("normalized/temperature-ufm")
    planned = [e for e in study.planned("paper") if e.labels["tau"] in (0.1, 1, 5, 10, 100) and e.labels["seed"] < 3]

    def value(entry: Planned) -> Trace:
        def fact(name: str, usual: float) -> float:
            return facts.get(name, {}).get(entry.labels["tau"], usual)

        accurate, late = int(fact("accurate", 3)), int(fact("late", 8))
        smallest = 1e-9 if entry.labels["tau"] == 5 else 1e-3
        history = {
            "iteration": list(range(40)),
            "accuracy": [float(i >= accurate) for i in range(40)],
            "nc1": [1.0 if i < late else fact("nc1", 1e-9) for i in range(40)],
            **{name: [1.0] * 38 + [smallest, fact(name, smallest)] for name in ("nc2", "nc3")},
        }
        best = entry.cell.problem.optimum().value
        return ended(entry, history=history, value=best + fact("left", 0.0) * (math.log(10) - best))

    return verdicts(study, results(planned, value))


def test_temperature_as_the_paper_has_it():
    assert set(temperature().values()) == {"holds"}


@pytest.mark.parametrize(
    ("facts", "part", "verdict"),
    [
        ({"accurate": {10: 9}}, "accuracy", "contradicted"),
        ({"accurate": {100: 9}}, "accuracy", "underpowered"),  # the paper may not have tried 100
        ({"late": {0.1: 1, 1: 2, 10: 20, 100: 30}}, "nc1-rate", "contradicted"),
        ({"late": {100: 30}}, "nc1-rate", "holds"),
        ({"nc1": {0.1: 0.1, 1: 0.1, 100: 0.1}}, "nc1", "contradicted"),
        ({"nc2": {0.1: 1e-11}}, "nc2", "contradicted"),
        ({"nc3": {100: 1e-11}}, "nc3", "contradicted"),
        ({"nc3": {10: 1e-11}}, "nc3", "holds"),
        ({"nc2": {100: 1e-15}}, "nc2", "holds"),  # rounding: the iterations before decide
        ({"left": {5: 0.01}}, "solution", "contradicted"),
    ],
)
def test_temperature_otherwise(facts, part, verdict):
    assert temperature(**facts)[part] == verdict


def test_temperature_is_planned_as_in_the_paper():
    planned = get("normalized/temperature-ufm").planned("paper")
    assert len({entry.labels["seed"] for entry in planned}) == 20
    sizes = {(e.cell.problem.num_classes, e.cell.problem.per_class, e.cell.problem.dim) for e in planned}
    assert sizes == {(10, 5, 32)}


# low-dimension ------------------------------------------------------------------------------------------------------


def on_circle(entry: Planned, jitter: float, turn: float, converged: bool = True) -> Trace:
    """Classes at the corners of a regular polygon (in a plane of R^d), some moved, classifiers turned by an angle."""
    problem = entry.cell.problem
    count = problem.num_classes

    def rows(extra: float) -> torch.Tensor:
        angles = 2 * math.pi * torch.arange(count).double() / count + jitter * (torch.arange(count) % 3 == 0) + extra
        flat = torch.stack([torch.cos(angles), torch.sin(angles)], 1)
        return torch.nn.functional.pad(flat, (0, problem.dim - 2)).double()

    point = Point(rows(turn), rows(0.0)[problem.labels], None)
    value = polygon_value(count) if problem.dim == 2 else 1.0
    history = {"iteration": [0]}
    return Trace(point, history, converged, "", "", "converged", problem, value, 0.0, 0, 0.0)


def low_dimension(normalised, free, decayed=(0.0, 0.0), converged=True):
    study = get("normalized/low-dimension")
    shapes = {"normalised": normalised, "free": free, "decayed": decayed}
    return verdicts(
        study, results(study.planned("smoke"), lambda e: on_circle(e, *shapes[e.labels["model"]], converged=converged))
    )


def test_low_dimension():
    assert set(low_dimension((0.0, 0.0), (0.2, 0.3)).values()) == {"holds"}
    found = low_dimension((0.2, 0.3), (0.0, 0.0))
    assert (found["spread"], found["alignment"]) == ("contradicted", "contradicted")
    found = low_dimension((0.2, 0.3), (0.0, 0.0), converged=False)
    assert (found["spread"], found["alignment"]) == ("underpowered", "underpowered")
    assert low_dimension((0.0, 0.0), (0.2, 0.3), (0.2, 0.0))["decay-spreads"] == "contradicted"
    study = get("normalized/low-dimension")
    higher = results(study.planned("smoke"), lambda e: dataclasses.replace(on_circle(e, 0.0, 0.0), value=9.0))
    assert verdicts(study, higher)["polygon"] == "contradicted"


def test_angles_by_hand():
    entry = Planned(Solve(NormalizedUFM("ce", 4, 1, 2)), {})
    assert variation(on_circle(entry, 0.0, 0.0)) == pytest.approx(0.0, abs=1e-12)
    # Corners 0 and 3 of a square moved by .2: gaps .5 pi - .2, .5 pi, .5 pi + .2 and .5 pi.
    assert variation(on_circle(entry, 0.2, 0.0)) == pytest.approx(0.2 / math.sqrt(2) / (math.pi / 2))
    assert misalignment(on_circle(entry, 0.0, 0.3)) == pytest.approx(1 - math.cos(0.3))


def test_the_polygon_is_what_descent_finds_in_the_plane():
    from neuralcollapse.ufm import solve

    problem = NormalizedUFM("ce", 5, 1, 2, temperature=2.0)
    best = min(solve(problem, "lbfgs", seed=seed).value for seed in range(5))
    assert best == pytest.approx(polygon_value(5, 2.0), abs=1e-9)
