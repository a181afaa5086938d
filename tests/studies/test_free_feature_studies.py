"""Studies that need no nets: their checks on constructed results, and their plans against the papers."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from neuralcollapse.studies import Planned, Result, Results, Solve, get
from neuralcollapse.studies.losses.focal_curves import count_minima, focal_curves
from neuralcollapse.studies.normalized._sweeps import CONTRASTIVE, collapse_value, solves
from neuralcollapse.studies.normalized.losses import SMOOTHED, critical_of, measured_temperature
from neuralcollapse.studies.normalized.speed import GAUSSIAN, NORMALISED, REGULARISED, iterations_to
from neuralcollapse.ufm import RegularizedUFM, Trace

pytestmark = pytest.mark.unchecked  # results are stand-ins


def results_of(planned: list[Planned], value) -> Results:
    return Results("smoke", tuple(Result(entry.labels, value(entry)) for entry in planned))


def at_optimum(entry: Planned, **changes) -> Trace:
    """What a solve leaves that ends exactly at the closed form."""
    assert isinstance(entry.cell, Solve)
    optimum = entry.cell.problem.optimum()
    history = {"iteration": [0], "nc1": [0.0], "value": [optimum.value]}
    trace = Trace(optimum.point, history, True, "", "", "converged", entry.cell.problem, optimum.value, 0.0, 0, 0.0)
    return dataclasses.replace(trace, **changes)


# normalized/speed ---------------------------------------------------------------------------------------------------


def curve(accuracy: list[float], nc1: list[float]):
    return SimpleNamespace(history={"accuracy": accuracy, "nc1": nc1, "iteration": list(range(len(nc1)))}, iterations=9)


def test_iterations_count_from_where_a_target_is_met_for_good():
    trace = curve([0.1, 1.0, 0.9, 1.0, 1.0], [1.0, 1e-4, 1e-4, 1e-4, 1.0])
    assert iterations_to(trace, "accuracy") == 3
    assert iterations_to(trace, "nc1") == math.inf
    assert iterations_to(curve([1.0], [0.0]), "nc1") == 0


@pytest.mark.parametrize(("slow", "outcome"), [(REGULARISED, "holds"), (NORMALISED, "does not hold")])
def test_speed_compares_the_models(slow, outcome):
    study = get("normalized/speed")
    fast, late = curve([0, 1, 1, 1], [1, 1, 1e-5, 1e-5]), curve([0, 0, 1, 1], [1, 1, 1, 1e-5])
    verdict = study.check(results_of(study.planned("smoke"), lambda e: late if e.labels["model"] == slow else fast))
    assert verdict.outcome == outcome
    assert verdict.figure == pytest.approx(1.5 if slow == REGULARISED else 0.5)


def test_speed_is_planned_as_in_the_paper():
    planned = get("normalized/speed").planned("paper")
    assert len(planned) == 3 * 3 * 10
    for entry in planned:
        problem = entry.cell.problem
        assert (problem.num_classes, problem.per_class, problem.has_bias) == (100, 30, False)
        assert entry.cell.options["every"] == 1
        if entry.labels["model"] == NORMALISED:
            assert problem.temperature == 1
        else:
            assert (problem.weight_decay, problem.feature_decay) == (1e-4, 1e-4)


def test_the_models_of_a_trial_start_from_the_same_directions():
    planned = get("normalized/speed").planned("smoke")
    starts = {}
    for entry in planned:
        if entry.labels["method"] == "gradient-descent" and entry.labels["trial"] == 1:
            trace = dataclasses.replace(entry.cell, options={"max_iter": 0})._solve(max_iter=0)
            starts[entry.labels["model"]] = trace.point
    unit = torch.nn.functional.normalize
    for name in (REGULARISED, GAUSSIAN):
        torch.testing.assert_close(unit(starts[name].W), starts[NORMALISED].W)
        torch.testing.assert_close(unit(starts[name].H), starts[NORMALISED].H)
    assert float(starts[REGULARISED].H.square().mean()) == pytest.approx(1 / 16, rel=0.1)
    assert float(starts[GAUSSIAN].H.square().mean()) == pytest.approx(1, rel=0.1)


def test_a_scale_of_one_does_not_change_a_cells_key():
    problem = RegularizedUFM("ce", 3, 2, 4, 0.01, 0.01)
    assert (
        Solve(problem, "gd", 1).key == Solve(problem, "gd", 1, scale=1.0).key != Solve(problem, "gd", 1, scale=2.0).key
    )


# normalized/value and normalized/losses -----------------------------------------------------------------------------


def test_value_holds_at_the_closed_form_only():
    study = get("normalized/value")
    planned = study.planned("paper")
    assert len(planned) == (16 + 20) * 10
    assert {(e.cell.problem.dim, e.cell.problem.per_class) for e in planned} == {(16, 3)}
    planned = study.planned("smoke")
    assert study.check(results_of(planned, at_optimum)).outcome == "holds"
    worse = results_of(planned, lambda e: at_optimum(e, value=e.cell.problem.optimum().value + 1e-6))
    assert study.check(worse).outcome == "does not hold"


def test_losses_part_at_the_critical_temperature():
    study = get("normalized/losses")
    planned = study.planned("smoke")
    assert study.check(results_of(planned, at_optimum)).outcome == "holds"

    def always_collapsed(entry: Planned) -> Trace:
        labels = entry.labels
        return at_optimum(entry, value=collapse_value(labels["loss"], labels["K"], labels["tau"]))

    assert study.check(results_of(planned, always_collapsed)).outcome == "does not hold"
    assert {entry.cell.problem.kind for entry in planned if entry.labels["loss"] == CONTRASTIVE} == {"contrastive"}


def test_margins_measure_the_critical_temperature():
    planned = get("normalized/losses").planned("smoke")
    for one in solves(results_of(planned, at_optimum).where(loss=SMOOTHED)):
        expected = min(one.temperature, critical_of(one))
        assert measured_temperature(one) == pytest.approx(expected, rel=1e-6)


# normalized/temperature-ufm -----------------------------------------------------------------------------------------


def test_temperature_needs_the_same_solution_at_different_speeds():
    study = get("normalized/temperature-ufm")
    planned = study.planned("paper")
    assert len({entry.labels["trial"] for entry in planned}) == 20
    assert {(e.cell.problem.num_classes, e.cell.problem.per_class, e.cell.problem.dim) for e in planned} == {
        (10, 5, 32)
    }
    planned = study.planned("smoke")

    def ended(entry: Planned, *, slow: bool, share: float) -> Trace:
        late = slow and entry.labels["tau"] == 100
        nc1 = [1.0, 1.0, 1.0, 1e-9] if late else [1.0, 1e-9, 1e-9, 1e-9]
        nc2 = [1.0, 1.0, 1.0, 0.5 if late else 1e-9]
        history = {"iteration": range(4), "nc1": nc1, "nc2": nc2, "accuracy": [1.0] * 4}
        best = entry.cell.problem.optimum().value
        return at_optimum(entry, history=history, value=best + share * (math.log(10) - best))

    def outcome(**facts) -> str:
        return study.check(results_of(planned, lambda entry: ended(entry, **facts))).outcome

    assert outcome(slow=True, share=0.0) == "holds"
    assert outcome(slow=False, share=0.0) == "does not hold"
    assert outcome(slow=True, share=0.01) == "does not hold"


# losses/focal-curves ------------------------------------------------------------------------------------------------


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
    study = get("losses/focal-curves")
    planned = study.planned("smoke")
    true = {count: focal_curves(count, 3.0, 20_001) for count in (10, 100)}
    assert study.check(results_of(planned, lambda e: true[e.labels["K"]])).outcome == "holds"
    moved = {count: {**value, "exchange": value["exchange"] * 1.01} for count, value in true.items()}
    assert study.check(results_of(planned, lambda e: moved[e.labels["K"]])).outcome == "does not hold"
