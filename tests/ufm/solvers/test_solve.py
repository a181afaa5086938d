"""Starts, stopping, recording and traces."""

import dataclasses
import json
import math

import pandas
import pytest
import torch

from neuralcollapse.metrics import measure
from neuralcollapse.ufm import (
    ContrastiveUFM,
    NormalizedUFM,
    Point,
    RegressionUFM,
    RegularizedUFM,
    Trace,
    methods,
    solve,
    solve_many,
)
from neuralcollapse.ufm.solvers.collapse import MEASURES, PointCollapse
from neuralcollapse.ufm.solvers.history import COLUMNS

PROBLEM = NormalizedUFM("ce", 4, 3, 6)


def same(left: Point, right: Point) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left.blocks, right.blocks, strict=True))


def test_the_default_solves_and_says_so():
    trace = solve(PROBLEM)
    assert (trace.method, trace.outcome, trace.converged, trace.seed) == ("lbfgs", "converged", True, 0)
    assert trace.gradient_norm <= 1e-8
    assert trace.value == pytest.approx(PROBLEM.optimum().value, abs=1e-12)
    assert trace.regime == "neural collapse"
    assert trace.message.endswith(".")
    assert list(trace.history) == ["iteration", "seconds", "value", "nc1", "accuracy"]
    assert PROBLEM.certify(trace.point).verdict == "global minimum"


def test_the_start_is_the_seeds_or_the_given_one():
    first, again = solve(PROBLEM, seed=3, max_iter=0), solve(PROBLEM, seed=3, max_iter=0)
    assert same(first.point, again.point)
    assert same(first.point, PROBLEM.random_point(3))
    start = PROBLEM.random_point(8)
    kept = start.map(torch.clone)
    given = solve(PROBLEM, start=start, max_iter=3)
    assert same(start, kept)
    assert given.seed is None
    assert given.history["value"][0] == pytest.approx(PROBLEM.value(start), rel=1e-15)


def test_a_perturbation_is_feasible_seeded_and_of_its_size():
    start = PROBLEM.optimum().point
    moved = solve(PROBLEM, start=start, perturbation=1e-3, seed=5, max_iter=0)
    again = solve(PROBLEM, start=start, perturbation=1e-3, seed=5, max_iter=0)
    other = solve(PROBLEM, start=start, perturbation=1e-3, seed=6, max_iter=0)
    assert same(moved.point, again.point)
    assert not same(moved.point, other.point)
    assert (moved.point - start).norm() == pytest.approx(1e-3, rel=1e-5)
    PROBLEM.check(moved.point)


def test_every_way_to_stop():
    assert solve(PROBLEM, max_iter=2).outcome == "max_iter"
    assert solve(PROBLEM, max_seconds=1e-9).outcome == "max_seconds"
    assert solve(PROBLEM, tol=0.0, max_iter=10_000, record=()).outcome == "stalled"
    near = solve(PROBLEM, gap=1e-3, tol=0.0)
    assert near.outcome == "converged"
    assert near.value - PROBLEM.optimum().value <= 1e-3
    assert "lower bound" in near.message


@pytest.mark.parametrize(
    "problem",
    [
        NormalizedUFM("ce", 4, 3, 8, temperature=20.0),
        RegressionUFM([[1e-4, 2e-4], [3e-4, -1e-4], [0.0, 1e-4]], 3, 1e-7, 1e-7),
    ],
)
def test_a_small_value_is_not_taken_for_a_smaller_one(problem):
    """Both are nearly zero, but one is many times the other: the solve says how far it is, and names no regime."""
    optimum = problem.optimum()
    for seed in range(3):
        trace = solve(problem, "gd", seed=seed, tol=1e-7, max_iter=2000, record=())
        assert trace.value > 1.1 * optimum.value
        assert trace.regime is None
        assert trace.message.endswith(
            f"the value is {trace.value - optimum.value:.3g} above that of the closed form, regime {optimum.regime!r}."
        )


def test_a_value_below_an_unproved_closed_form_is_said_to_be_below():
    problem = NormalizedUFM("ce", 7, 1, 4, temperature=0.5)
    optimum = problem.optimum()
    best = min((solve(problem, "trust-region", seed=seed, record=()) for seed in range(6)), key=lambda one: one.value)
    assert not optimum.proved
    assert best.value < optimum.value - 1e-6
    assert best.regime is None
    assert " below that of the closed form" in best.message


def test_a_gap_is_certified_where_no_closed_form_is_known():
    imbalanced = RegularizedUFM("ce", 4, [5, 2, 3, 1], 6, 0.01, 0.02, 0.1)
    trace = solve(imbalanced, gap=1e-6, tol=0.0, record=("value", "gap", "certified_gap"), every=5)
    assert trace.converged
    assert trace.regime is None
    assert set(trace.history["gap"]) == {None}
    assert 0 <= trace.history["certified_gap"][-1] <= 1e-6
    assert all(gap >= 0 for gap in trace.history["certified_gap"])


def test_every_column_is_what_it_says():
    record = tuple(COLUMNS)
    trace = solve(PROBLEM, "gd", max_iter=7, record=record, every=2)
    assert trace.history["iteration"] == [0, 2, 4, 6, 7]
    last = trace.rows()[-1]
    point = trace.point
    assert last["value"] == pytest.approx(PROBLEM.value(point), rel=1e-14)
    assert last["gradient_norm"] == pytest.approx(PROBLEM.gradient(point).norm(), rel=1e-9)
    assert last["gap"] == pytest.approx(PROBLEM.value(point) - PROBLEM.optimum().value, rel=1e-9)
    assert last["certified_gap"] == pytest.approx(PROBLEM.certify(point).gap, rel=1e-6)
    predicted = (point.H @ point.W.T).argmax(1)
    assert last["accuracy"] == float((predicted == PROBLEM.labels).double().mean())
    assert trace.history["seconds"] == sorted(trace.history["seconds"])


def test_columns_that_do_not_apply_are_none():
    contrastive = solve(ContrastiveUFM(3, 2, 4), record=("nc1", "nc2", "nc2_means", "nc3", "accuracy"), max_iter=3)
    last = contrastive.rows()[-1]
    assert last["nc3"] is None
    assert last["accuracy"] is None
    assert last["nc2"] is None
    assert last["nc2_means"] >= 0
    zero = RegularizedUFM("ce", 3, 2, 4, 0.1, 0.1)
    trace = solve(zero, start=zero.random_point(0) * 0.0, max_iter=0, record=("nc1", "nc2", "nc3"))
    assert trace.rows()[0] == {
        "iteration": 0,
        "seconds": trace.history["seconds"][0],
        "nc1": None,
        "nc2": None,
        "nc3": None,
    }


@pytest.mark.parametrize("counts", [(4, 4, 4), (2, 5, 1)])
@pytest.mark.parametrize("dim", [2, 3, 7])
def test_collapse_measures_against_their_definitions(counts, dim):
    generator = torch.Generator().manual_seed(0)
    classes, total = len(counts), sum(counts)
    features = torch.randn(total, dim, dtype=torch.float64, generator=generator)
    weight = torch.randn(classes, dim, dtype=torch.float64, generator=generator)
    labels = torch.repeat_interleave(torch.arange(classes), torch.tensor(counts))
    means = torch.stack([features[labels == k].mean(0) for k in range(classes)])
    centred = means - features.mean(0)
    residual = features - means[labels]
    within, between = residual.T @ residual / total, centred.T @ centred / classes
    found = PointCollapse(Point(weight, features, None), counts)
    expected = float(torch.trace(within @ torch.linalg.pinv(between, hermitian=True))) / classes
    assert found.measure("nc1") == pytest.approx(expected, rel=1e-8)
    target = (torch.eye(classes, dtype=torch.float64) - 1 / classes) / math.sqrt(classes - 1)
    for name, array in (("nc2", weight @ weight.T), ("nc3", weight @ centred.T)):
        assert found.measure(name) == pytest.approx(float((array / array.norm() - target).norm()), rel=1e-12)


@pytest.mark.parametrize(
    "problem",
    [
        RegularizedUFM("ce", 6, 4, 3, 0.01, 0.01),
        RegularizedUFM("ce", 3, [4, 2, 1], 7, 0.01, 0.01, bias_decay=0.0),
        RegularizedUFM("ce", 3, 1, 7, 0.01, 0.01),
        ContrastiveUFM(4, 3, 5),
        ContrastiveUFM(6, 3, 3),
    ],
    ids=str,
)
def test_a_name_means_the_same_number_in_a_history_and_in_a_report(problem):
    trace = solve(problem, "gd", max_iter=3, record=MEASURES, every=1)
    point = trace.point
    report = measure(point.H, problem.labels, point.W, point.b, num_classes=problem.num_classes, metrics=list(MEASURES))
    assert report.values.keys() == set(MEASURES)
    for name, value in report.values.items():
        assert trace.history[name][-1] == (None if value is None else pytest.approx(value, rel=1e-9)), name
    assert (report.nc2 is None) == (point.W is None or problem.dim < problem.num_classes - 1)


def test_a_history_makes_a_data_frame():
    trace = solve(PROBLEM, record=("value", "gap"), every=1)
    frame = pandas.DataFrame(trace.history)
    assert list(frame.columns) == ["iteration", "seconds", "value", "gap"]
    assert len(frame) == trace.iterations + 1
    assert frame["value"].iloc[-1] == trace.value


def test_recording_is_sparing_and_does_not_depend_on_the_clock():
    large = NormalizedUFM("ce", 30, 20, 40)
    first, again = (solve(large, "gd", max_iter=60) for _ in range(2))
    assert first.history["iteration"] == again.history["iteration"]
    assert len(first.history["iteration"]) < first.iterations / 3
    cheap = solve(large, "gd", max_iter=60, record=("value", "gap"))
    assert len(cheap.history["value"]) == cheap.iterations + 1


def test_rows_are_reported_as_they_come():
    seen = []
    trace = solve(PROBLEM, on_record=seen.append)
    assert seen == trace.rows()


@pytest.mark.parametrize("method", methods(PROBLEM))
def test_a_trace_survives_its_files(tmp_path, method):
    trace = solve(PROBLEM, method, record=tuple(COLUMNS), every=3, max_iter=20)
    trace.save(tmp_path / "run")
    names = {file.name for file in (tmp_path / "run").iterdir()}
    assert names == {"point.safetensors", "history.jsonl", "seconds.json", "trace.json"}
    loaded = Trace.load(tmp_path / "run")
    assert same(loaded.point, trace.point)
    for field in dataclasses.fields(Trace):
        if field.name not in ("point", "history"):
            assert getattr(loaded, field.name) == getattr(trace, field.name), field.name
    assert {name: list(column) for name, column in loaded.history.items()} == trace.history
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == trace.history["iteration"]


def test_a_broken_trace_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"point\.safetensors is missing"):
        Trace.load(tmp_path)
    solve(PROBLEM, max_iter=1).save(tmp_path)
    (tmp_path / "trace.json").write_text("{}")
    with pytest.raises(ValueError, match="not a saved trace"):
        Trace.load(tmp_path)


def test_points_are_ordinary_tensors():
    problem = NormalizedUFM("ce", 3, 2, 4)
    trace = solve(problem, max_iter=2, on_record=lambda row: torch.ones(1, requires_grad=True).sum().backward())
    weight = trace.point.W.requires_grad_()
    problem.loss(trace.point.H @ weight.T, problem.labels).backward()
    assert weight.grad is not None


def test_threads_are_as_before_afterwards():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        solve(PROBLEM, max_iter=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"method": "newton"}, ValueError, "unknown method 'newton'"),
        ({"method": "lbfgs:memory=0"}, ValueError, "memory must be at least 1"),
        ({"method": "adam:rate=1"}, ValueError, "no parameter 'rate'"),
        ({"method": 3}, TypeError, "method"),
        ({"start": 3}, TypeError, "point must be a Point"),
        ({"start": PROBLEM.random_point(0) * 2.0}, ValueError, "unit norm"),
        ({"tol": -1}, ValueError, "tol must be at least 0"),
        ({"max_iter": 1.5}, TypeError, "max_iter must be an integer"),
        ({"record": "value"}, TypeError, "record must be a sequence"),
        ({"record": ("nc4",)}, ValueError, "unknown measure to record 'nc4'"),
        ({"gap": math.nan}, ValueError, "gap must be finite"),
        ({"every": 0}, ValueError, "every must be at least 1"),
        ({"max_seconds": 0}, ValueError, "max_seconds must be greater"),
        ({"perturbation": -1.0}, ValueError, "perturbation"),
        ({"seed": "a"}, TypeError, "seed must be an integer"),
    ],
)
def test_bad_arguments_are_named(arguments, error, match):
    with pytest.raises(error, match=match):
        solve(PROBLEM, **arguments)


@pytest.mark.unchecked
def test_bad_problems_are_named():
    with pytest.raises(TypeError, match="problem must be an unconstrained feature model"):
        solve("ce")


def test_many_trials_do_not_depend_on_the_number_of_workers(tmp_path):
    one = solve_many(PROBLEM, range(4), "cg", workers=1, max_iter=50)
    two = solve_many(PROBLEM, range(4), "cg", workers=2, max_iter=50, out=tmp_path / "out")
    assert [trace.seed for trace in two] == [0, 1, 2, 3]
    for left, right in zip(one, two, strict=True):
        assert same(left.point, right.point)
        assert left.history["value"] == right.history["value"]
    assert same(Trace.load(tmp_path / "out" / "trial-0002").point, one[2].point)


def test_trials_are_kept_and_completed(tmp_path):
    seen = []
    solve_many(PROBLEM, range(2), workers=1, out=tmp_path, record=("value",))
    with pytest.raises(ValueError, match="already holds trials"):
        solve_many(PROBLEM, range(2), workers=1, out=tmp_path, record=("value",))
    with pytest.raises(ValueError, match="another problem, method, start or options"):
        solve_many(PROBLEM, range(2), "cg", workers=1, out=tmp_path, resume=True, record=("value",))
    assert "start" not in json.loads((tmp_path / "plan.json").read_text())
    before = (tmp_path / "trial-0001" / "trace.json").stat().st_mtime_ns
    (tmp_path / "trial-0000" / "trace.json").unlink()
    traces = solve_many(
        PROBLEM, range(3), workers=1, out=tmp_path, resume=True, record=("value",), on_trial=seen.append
    )
    assert (tmp_path / "trial-0001" / "trace.json").stat().st_mtime_ns == before
    assert sorted(trace.seed for trace in seen) == [trace.seed for trace in traces] == [0, 1, 2]


def test_trials_of_another_start_are_not_taken_for_these(tmp_path):
    first, second = PROBLEM.random_point(1), PROBLEM.random_point(2)

    def trials(start):
        kept = {"workers": 1, "out": tmp_path, "resume": True}
        return solve_many(PROBLEM, range(2), start=start, perturbation=0.1, max_iter=1, **kept)

    again = (trials(first), trials(first))
    assert [trace.value for trace in again[0]] == [trace.value for trace in again[1]]
    for other in (second, None):
        with pytest.raises(ValueError, match="another problem, method, start or options"):
            trials(other)


@pytest.mark.unchecked
def test_bad_seeds_are_named():
    with pytest.raises(ValueError, match="different numbers"):
        solve_many(PROBLEM, [1, 1])
    with pytest.raises(ValueError, match="one or more"):
        solve_many(PROBLEM, [])
    with pytest.raises(TypeError, match="seeds must be integers"):
        solve_many(PROBLEM, ["a"])
    with pytest.raises(TypeError):
        solve_many(PROBLEM, [1], tolerance=3)
