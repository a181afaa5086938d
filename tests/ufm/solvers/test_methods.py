"""Every registered method on every model: the closed form from many starts, unit norms, escape."""

import json
import subprocess
import sys
from itertools import pairwise

import pytest
import torch

import solver_problems
from neuralcollapse import frames
from neuralcollapse.ufm import (
    ContrastiveUFM,
    NormalizedUFM,
    Point,
    RegularizedUFM,
    critical_temperature,
    methods,
    solve,
)
from neuralcollapse.ufm.objectives import logits
from neuralcollapse.ufm.solvers import solver_methods
from solver_problems import PROBLEMS

NAMES = list(solver_methods)

PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_the_closed_form_is_reached_from_a_hundred_random_starts(part):
    """In a process of its own, without the annotation checker, which would take most of the time."""
    command = [sys.executable, solver_problems.__file__, str(part), str(PARTS)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=280)
    for case, found in json.loads(answer.stdout).items():
        assert found["lowest"] >= -1e-12, case
        assert found["highest"] <= 1e-8, case
        assert found["regimes"] == [PROBLEMS[case.split(";")[0]].optimum().regime], case


def test_label_smoothing_on_spheres_changes_regime_at_the_critical_temperature():
    classes = 4
    loss = PROBLEMS["normalised label smoothing, below"].loss
    critical = critical_temperature(loss, classes)
    below = solve(NormalizedUFM(loss, classes, 3, 6, 0.8 * critical), "trust-region")
    above = solve(NormalizedUFM(loss, classes, 3, 6, 1.5 * critical), "trust-region")
    assert (below.regime, above.regime) == ("neural collapse", "spread")
    assert "spread" in above.message
    assert below.history["nc1"][-1] < 1e-12
    assert above.history["nc1"][-1] > 1e-3


@pytest.mark.unchecked
@pytest.mark.parametrize("name", NAMES)
def test_rows_keep_unit_norm_after_any_number_of_steps(name):
    for problem in (NormalizedUFM("ce", 5, 3, 6, temperature=3.0), ContrastiveUFM(4, 3, 5)):
        if name not in methods(problem):
            continue
        trace = solve(problem, name, tol=0.0, max_iter=150, record=())
        for block in trace.point.blocks:
            assert float((block.norm(dim=1) - 1).abs().max()) <= 1e-12


def padded(point, dim):
    """A point of lower dimension, with columns of zeros: critical again."""
    blocks = (None if block is None else torch.nn.functional.pad(block, (0, dim - block.shape[1]))
              for block in (point.W, point.H))  # fmt: skip
    return Point(*blocks, point.b)


def lifted(problem, dim, scale=1.0):
    """A minimiser in ``dim`` dimensions (of the bias alone for scale 0), as a point of ``problem``."""
    small = type(problem)(**{**problem.parameters(), "dim": dim})
    start = small.random_point(5)
    if scale != 1.0:
        start = Point(start.W * scale, start.H * scale, start.b)
    return padded(solve(small, "lbfgs", start, tol=1e-13, max_iter=5000, record=()).point, problem.dim)


REGULARIZED = RegularizedUFM("ce", 4, 3, 6, 0.01, 0.02)
BIASED = RegularizedUFM("mse", 4, 3, 6, 0.01, 0.02, 0.1)
NORMALIZED = NormalizedUFM("ce", 4, 3, 6, temperature=2.0)
CONTRASTIVE = ContrastiveUFM(3, 3, 5)
UNIT = torch.eye(6, dtype=torch.float64)[:1]
SIMPLEX = frames.simplex_etf(4, 6)

SADDLES = {
    "zero": (REGULARIZED, lambda: REGULARIZED.random_point(0) * 0.0),
    "zero with a bias": (BIASED, lambda: lifted(BIASED, 1, scale=0.0)),
    "rank 1": (REGULARIZED, lambda: lifted(REGULARIZED, 1)),
    "rank 2": (REGULARIZED, lambda: lifted(REGULARIZED, 2)),
    "equal classifiers": (NORMALIZED, lambda: Point(UNIT.repeat(4, 1), -UNIT.repeat(12, 1))),
    "antipodal": (NORMALIZED, lambda: Point(SIMPLEX, -SIMPLEX[NORMALIZED.labels])),
    "on a circle": (NORMALIZED, lambda: lifted(NORMALIZED, 2)),
    "equal features": (CONTRASTIVE, lambda: Point(None, UNIT[:, :5].repeat(9, 1))),
    "features on a line": (CONTRASTIVE, lambda: lifted(CONTRASTIVE, 1)),
}
ESCAPES = [
    (label, name)
    for label, (problem, _) in SADDLES.items()
    for name in methods(problem)
    if solver_methods[name].reliable
]


def saddle(label):
    problem, build = SADDLES[label]
    return problem, build()


@pytest.mark.parametrize("label", SADDLES)
def test_the_saddles_are_critical_and_not_minimal(label):
    problem, point = saddle(label)
    assert problem.gradient(point).norm() < 1e-11
    assert problem.value(point) > problem.optimum().value + 1e-3
    assert problem.certify(point).verdict == "strict saddle"


@pytest.mark.unchecked
@pytest.mark.parametrize(("label", "name"), ESCAPES, ids=[f"{label}-{name}" for label, name in ESCAPES])
def test_every_method_escapes_from_a_perturbed_saddle(label, name):
    problem, point = saddle(label)
    for seed in range(3):
        trace = solve(problem, name, point, seed, perturbation=1e-6, max_iter=5000, record=())
        assert trace.converged, trace.message
        assert trace.value - problem.optimum().value <= 1e-8, trace.message


@pytest.mark.parametrize("label", SADDLES)
def test_trust_regions_leave_an_unperturbed_saddle_through_the_certificate(label):
    problem, point = saddle(label)
    trace = solve(problem, "trust-region", point)
    assert trace.converged
    assert "saddle" in trace.message
    assert trace.value - problem.optimum().value <= 1e-8


@pytest.mark.parametrize("name", ["gradient-descent", "conjugate-gradient", "lbfgs", "adam"])
def test_first_order_methods_say_that_they_stay_at_a_saddle(name):
    problem, point = saddle("zero")
    trace = solve(problem, name, point)
    assert (trace.outcome, trace.converged) == ("saddle", False)
    assert "saddle" in trace.message


def test_reduced_is_for_balanced_models_on_logits():
    assert "reduced" not in methods(ContrastiveUFM(3, 2, 4))
    imbalanced = NormalizedUFM("ce", 3, [2, 2, 3], 4)
    assert "reduced" not in methods(imbalanced)
    with pytest.raises(ValueError, match="reduced"):
        solve(imbalanced, "reduced")


def test_reduced_never_raises_the_value():
    problem = RegularizedUFM("ce", 4, 5, 6, 0.01, 0.02, 0.3)
    start = problem.random_point(2)
    trace = solve(problem, "reduced", start, record=("value",))
    assert trace.history["value"][0] <= problem.value(start)
    assert trace.value == pytest.approx(problem.value(trace.point), abs=1e-14)
    assert problem.gradient(trace.point).norm() <= trace.gradient_norm + 1e-15


def test_trust_regions_in_single_precision_find_the_same_minimum(monkeypatch):
    from neuralcollapse.ufm.solvers.methods import trust_region

    monkeypatch.setattr(trust_region, "SINGLE_FROM", 0.0)
    for problem in PROBLEMS.values():
        if isinstance(problem, ContrastiveUFM):
            continue
        trace = solve(problem, "trust-region", tol=1e-11, record=())
        assert trace.converged, trace.message
        assert trace.value == pytest.approx(problem.optimum().value, abs=1e-13)


def test_gradient_descent_with_a_window_of_one_is_monotone():
    trace = solve(NormalizedUFM("ce", 6, 3, 8), "gd:window=1", record=("value",), every=1)
    values = trace.history["value"]
    assert trace.converged
    assert all(after <= before + 1e-14 for before, after in pairwise(values))


@pytest.mark.unchecked
@pytest.mark.parametrize("name", NAMES)
def test_a_problem_in_many_parts_has_the_same_path(name, monkeypatch):
    """Large problems are worked on in parts of some rows; parts of two rows show it on small ones."""
    for problem in (REGULARIZED, BIASED, NORMALIZED):
        whole = solve(problem, name, max_iter=6)
        monkeypatch.setattr(logits, "WHOLE", 0)
        monkeypatch.setattr(logits, "PART_ENTRIES", 8)
        monkeypatch.setattr(logits, "PART_ROWS", 2)
        parts = solve(problem, name, max_iter=6)
        monkeypatch.undo()
        assert parts.iterations == whole.iterations
        assert parts.value == pytest.approx(whole.value, rel=1e-12)
        assert (parts.point - whole.point).norm() <= 1e-9 * whole.point.norm()
