"""Points along the way, and the methods that theorems speak of, against plain loops written here."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from neuralcollapse._support.files import sealed, unsealed, write_json
from neuralcollapse.ufm import NormalizedUFM, RegularizedUFM, Trace, solve

PROBLEM = RegularizedUFM("ce", 3, 2, 4, 0.02, 0.05, 0.01)
SPHERE = NormalizedUFM("ce", 3, 2, 4, 1.5)


def same(left, right, tolerance=1e-12):
    return all(torch.allclose(a, b, rtol=0, atol=tolerance) for a, b in zip(left.blocks, right.blocks, strict=True))


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_fixed_steps_are_the_textbook_loop(momentum):
    method = "fixed-step:rate=0.3" if momentum == 0 else "momentum:rate=0.3,momentum=0.8"
    trace = solve(PROBLEM, method, seed=1, tol=0.0, max_iter=7, record=("value", "points"), every=1)
    point = PROBLEM.random_point(1)
    velocity = point * 0.0
    for seen in trace.points:
        assert same(seen, point, 1e-11)
        velocity = momentum * velocity + PROBLEM.gradient(point)
        point = point + (-0.3) * velocity
    assert len(trace.points) == 8


def test_fixed_steps_on_spheres_are_retracted():
    trace = solve(SPHERE, "fixed-step:rate=0.5", seed=0, tol=0.0, max_iter=3, record=("points",), every=1)
    point = SPHERE.random_point(0)
    for seen in trace.points:
        assert same(seen, point)
        point = SPHERE.retract(point, -0.5 * SPHERE.gradient(point))


def test_gradient_flow_follows_the_equation():
    trace = solve(PROBLEM, "gradient-flow:step=2,growth=1", seed=0, tol=0.0, max_iter=3, record=("points",), every=1)
    start = PROBLEM.random_point(0)

    def downhill(_, x):
        return -PROBLEM.gradient(start.like(torch.from_numpy(x.copy()))).flatten().numpy()

    found = solve_ivp(downhill, (0, 6.0), start.flatten().numpy(), rtol=1e-10, atol=1e-12, t_eval=[2.0, 4.0, 6.0])
    for seen, wanted in zip(trace.points[1:], found.y.T, strict=True):
        np.testing.assert_allclose(seen.flatten(), wanted, atol=1e-6)
    assert solve(PROBLEM, "gradient-flow", tol=1e-6, max_iter=200).value == pytest.approx(
        PROBLEM.optimum().value, rel=1e-8
    )


def test_a_batch_of_everything_is_gradient_descent():
    """Features move by N/batch = 1 times their gradient, so a whole batch is one plain step."""
    trace = solve(
        PROBLEM, "sgd:rate=0.2,batch=100,halving=1e30", seed=2, tol=0.0, max_iter=4, record=("points",), every=1
    )
    point = PROBLEM.random_point(2)
    for seen in trace.points:
        assert same(seen, point, 1e-11)
        point = point + (-0.2) * PROBLEM.gradient(point)


def test_stochastic_steps_are_unbiased():
    """The mean change of one batch over all batches is the gradient's: a pass with a tiny rate is N/batch of them."""
    rate = 1e-6
    for problem in (PROBLEM, SPHERE):
        trace = solve(problem, f"sgd:rate={rate},batch=2", seed=0, tol=0.0, max_iter=1, record=("points",), every=1)
        moved = (trace.points[1] - trace.points[0]) * (-1 / rate)
        slope = problem.gradient(problem.random_point(0))
        for change, gradient in zip(moved.blocks, slope.blocks, strict=True):
            torch.testing.assert_close(change, 3 * gradient, rtol=1e-3, atol=1e-4)


def test_sgd_gets_near_the_minimum():
    trace = solve(SPHERE, "sgd:rate=0.5,batch=2", max_iter=300, tol=0.0)
    assert trace.value <= SPHERE.optimum().value + 1e-2


@pytest.mark.parametrize("method", ["lbfgs", "reduced", "trust-region"])
def test_the_hook_sees_every_iteration(method):
    problem = RegularizedUFM("ce", 3, 4, 4, 0.02, 0.05)
    seen = []
    trace = solve(problem, method, seed=0, on_iteration=seen.append)
    assert [one.iteration for one in seen] == list(range(trace.iterations + 1))
    for one in seen:
        assert problem.value(one.point) == pytest.approx(one.value, rel=1e-10)
        assert not one.point.H.is_inference()
    assert seen[-1].gradient_norm == trace.gradient_norm


def test_recorded_points_are_kept_with_the_trace_and_in_its_files(tmp_path):
    trace = solve(PROBLEM, "lbfgs", record="points", every=3)
    assert set(trace.history) == {"iteration", "seconds", "value", "nc1", "accuracy"}
    assert len(trace.points) == len(trace.history["iteration"])
    for value, point in zip(trace.history["value"], trace.points, strict=True):
        assert PROBLEM.value(point) == pytest.approx(value, rel=1e-12)
    assert same(trace.points[-1], trace.point)
    trace.save(tmp_path / "run")
    loaded = Trace.load(tmp_path / "run")
    assert all(same(a, b, 0.0) for a, b in zip(loaded.points, trace.points, strict=True))

    facts = unsealed(json.loads((tmp_path / "run" / "trace.json").read_text()))
    assert facts.pop("points") is True
    facts["files"].pop("points.safetensors")
    write_json(tmp_path / "run" / "trace.json", sealed(facts))  # as old files are
    assert len(Trace.load(tmp_path / "run").points) == len(trace.points)


def test_recorded_points_go_with_the_trace_that_they_belong_to(tmp_path):
    trace = solve(PROBLEM, "lbfgs", record="points", every=3)
    trace.save(tmp_path)
    content = (tmp_path / "points.safetensors").read_bytes()
    solve(PROBLEM, "lbfgs", max_iter=2).save(tmp_path)
    assert not (tmp_path / "points.safetensors").exists()
    (tmp_path / "points.safetensors").write_bytes(content)
    assert Trace.load(tmp_path).points is None
    trace.save(tmp_path)
    solve(PROBLEM, "lbfgs", record="points", max_iter=2).save(tmp_path / "other")
    (tmp_path / "other" / "points.safetensors").replace(tmp_path / "points.safetensors")
    with pytest.raises(ValueError, match=r"points\.safetensors does not match its checksum"):
        Trace.load(tmp_path)


def test_a_trace_is_drawn_and_tabled_and_short():
    trace = solve(PROBLEM, "lbfgs", record=("value", "nc1", "gradient_norm"), every=1)
    assert len(trace.plot().axes) == 3
    table = trace.to_dataframe()
    assert list(table["iteration"]) == list(trace.history["iteration"])
    assert len(repr(trace)) < 160
    assert math.isclose(table["value"].iloc[-1], trace.value)
