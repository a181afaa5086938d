"""Many trials as one tensor: the minima, histories and ends of single solves."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neuralcollapse import losses
from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, RegularizedUFM, Trace, solve, solve_many
from neuralcollapse.ufm.solvers.batched.lbfgs import Pairs
from neuralcollapse.ufm.solvers.batched.model import Survivors

METHODS = ["gradient-descent", "conjugate-gradient", "lbfgs"]
PROBLEMS = [
    RegularizedUFM("ce", 4, 3, 6, 5e-3, 5e-3),
    RegularizedUFM(losses.CrossEntropy(class_weights=[2.0, 1.0, 0.5]), 3, [4, 3, 2], 5, 0.01, 0.02),
    RegularizedUFM("ls:alpha=0.1", 4, [5, 3, 2, 2], 5, 0.01, 0.02, 0.1),
    RegularizedUFM("focal:gamma=2", 3, 2, 4, 0.01, 0.02, 0.0),
    RegularizedUFM("mse:alpha=3,target=2", 4, 3, 6, 0.01, 0.03, 0.5),
    RegularizedUFM("mse", 5, 2, 3, 0.02, 0.01),
    NormalizedUFM("ce", 4, 3, 6, 2.0),
    NormalizedUFM("ls:alpha=0.2", 3, 2, 4, 5.0),
    NormalizedUFM("focal:gamma=3", 4, 2, 5, 3.0),
]


def label(problem):
    return f"{problem.kind}-{problem.loss.spec}"


@pytest.mark.unchecked
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=label)
def test_trials_of_a_batch_are_single_solves(problem, method):
    seeds = range(9)
    single = solve_many(problem, seeds, method, workers=1, max_iter=3000)
    batch = solve_many(problem, seeds, method, batched=True, max_iter=3000)
    for one, other in zip(single, batch, strict=True):
        assert other.outcome == one.outcome == "converged"
        assert (other.seed, other.regime) == (one.seed, one.regime)
        assert other.value == pytest.approx(one.value, abs=1e-10)
        assert problem.value(other.point) == pytest.approx(other.value, rel=1e-12)
        assert problem.gradient(other.point).norm() == pytest.approx(other.gradient_norm, abs=1e-11)
        assert other.gradient_norm <= 1e-8
        assert other.history["iteration"][-1] == other.iterations
        first, expected = (trace.rows()[0] for trace in (other, one))
        assert {**first, "seconds": 0} == pytest.approx({**expected, "seconds": 0}, rel=1e-9)


@pytest.mark.parametrize("spec", ["ce", "ls:alpha=0.3", "focal:gamma=2.5", "mse:alpha=0.2,target=3"])
def test_a_loss_for_many_trials_is_the_loss_of_each(spec):
    loss, labels = losses.logit_loss(spec), torch.tensor([0, 0, 1, 2, 2, 2])
    generator = torch.Generator().manual_seed(1)
    logits, direction = torch.randn(2, 4, 6, 3, dtype=torch.float64, generator=generator)
    logits[3] *= 500  # p_y of some samples is no number
    made = loss.stack(labels, 3)
    assert made is not None
    stack = made.at(logits.mT.contiguous())
    curvatures = stack.curvature(direction.mT.contiguous())
    for trial in range(4):
        single = loss.linearize(logits[trial], labels)
        assert stack.values[trial].item() == pytest.approx(single.value, rel=1e-12)
        torch.testing.assert_close(stack.gradient[trial].T, single.gradient, rtol=1e-11, atol=1e-15)
        expected = (direction[trial] * single.hessian_vector(direction[trial].clone())).sum().item()
        assert curvatures[trial].item() == pytest.approx(expected, rel=1e-10, abs=1e-14)


def two_loops(pairs, gradient):
    """B g as Nocedal and Wright write it (algorithm 7.4), from the plain metric scaled by the last pair."""
    weights, result = [], gradient.copy()
    for change, turn in reversed(pairs):
        weights.append(change @ result / (change @ turn))
        result -= weights[-1] * turn
    change, turn = pairs[-1]
    result *= change @ turn / (turn @ turn)
    for (change, turn), weight in zip(pairs, reversed(weights), strict=True):
        result += (weight - turn @ result / (change @ turn)) * change
    return result


@pytest.mark.parametrize("memory", [1, 3, 8])
def test_the_direction_in_coefficients_is_that_of_the_two_loops(memory):
    """On a walk along a quadratic function: long steps, short ones that hardly turn the gradient, and a bad pair."""
    trials, size = 3, 40
    generator = np.random.default_rng(memory)
    factors = generator.standard_normal((trials, size, size)) / size**0.5
    hessians = factors @ factors.mT + 0.1 * np.eye(size)
    x = generator.standard_normal((trials, size))
    gradient = np.vecdot(hessians, x[:, None])
    pairs, kept = Pairs(trials, size, memory), [[] for _ in range(trials)]
    for step in range(12):
        change = generator.standard_normal((trials, size)) * (1e-3 if step in (4, 9) else 1.0)
        turn = np.vecdot(hessians, change[:, None])
        if step == 6:
            turn[1] = -turn[1]
        gradient = gradient + turn
        pairs.add(change, turn, gradient, np.linalg.norm(gradient, axis=1))
        for trial in range(trials):
            kept[trial].append((change[trial], turn[trial]))
        direction, slope = pairs.direction()
        for trial in range(trials):
            usable = [pair for pair in kept[trial][-memory:] if pair[0] @ pair[1] > 0]
            if usable:
                expected = -two_loops(usable, gradient[trial])
                assert np.linalg.norm(direction[trial] - expected) < 1e-4 * np.linalg.norm(expected)
                assert slope[trial] == pytest.approx(gradient[trial] @ expected, rel=1e-4)
    pairs.forget(np.array([0]))
    direction, _ = pairs.direction()
    np.testing.assert_allclose(direction[0], -gradient[0], rtol=1e-6)
    pairs.keep(Survivors(np.array([False, True, True])))
    np.testing.assert_array_equal(pairs.direction()[0], direction[[2, 1]])


@pytest.mark.parametrize("going", [[1, 1, 1], [0, 0, 0], [0, 1, 1], [1, 0, 0, 1, 0, 1], [0, 1, 0, 1, 1]])
def test_survivors_move_to_the_front(going):
    mask = np.array(going, dtype=bool)
    survivors = Survivors(mask)
    ids, squares = survivors.of(np.arange(len(mask))), survivors.of(np.arange(len(mask)) ** 2)
    assert sorted(ids.tolist()) == np.flatnonzero(mask).tolist()
    np.testing.assert_array_equal(squares, ids**2)


@pytest.mark.parametrize(
    "problem", [PROBLEMS[2], PROBLEMS[5], PROBLEMS[6], RegularizedUFM("ce", 9, 3, 3, 0.01, 0.01)], ids=label
)
def test_histories_of_a_batch_are_those_of_the_points(problem):
    """Few iterations, so that rounding has not led the trials apart: the same rows as those of single solves."""
    record = ("value", "gradient_norm", "gap", "nc1", "nc2", "accuracy")
    batch = solve_many(problem, range(9), "gd", batched=True, record=record, every=2, max_iter=5)
    for seed, trace in enumerate(batch):
        single = solve(problem, "gd", seed=seed, record=record, every=2, max_iter=5)
        assert trace.history["iteration"] == single.history["iteration"] == [0, 2, 4, 5]
        for name in record:
            found, expected = (np.array(history[name], dtype=float) for history in (trace.history, single.history))
            np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_a_trial_does_not_depend_on_its_company():
    problem = PROBLEMS[6]
    for method in METHODS:
        many = solve_many(problem, range(12), method, batched=True)
        few = solve_many(problem, [7, 2], method, batched=True)
        for trace, same in ((few[0], many[7]), (few[1], many[2])):
            assert trace.iterations == same.iterations
            assert (trace.point - same.point).norm() < 1e-9


def test_every_trial_starts_at_its_own_seed_and_descends():
    problem = PROBLEMS[0]
    for trace in solve_many(problem, [3, 5], "lbfgs", batched=True, record=("value", "gradient_norm")):
        assert trace.history["value"][0] == pytest.approx(problem.value(problem.random_point(trace.seed)), rel=1e-12)
        values = torch.tensor(trace.history["value"])
        assert len(values) == trace.iterations + 1
        assert (values.diff() <= 1e-12).all()


def test_ends_at_the_last_iteration_and_where_rounding_stops_it():
    problem = PROBLEMS[0]
    for trace in solve_many(problem, range(3), "cg", batched=True, max_iter=4):
        assert (trace.outcome, trace.iterations) == ("max_iter", 4)
    for trace in solve_many(problem, range(3), "gradient-descent", batched=True, tol=0.0, max_iter=5000):
        assert trace.outcome == "stalled"
        assert trace.value == pytest.approx(problem.optimum().value, abs=1e-12)


def test_a_trial_that_diverges_ends_as_a_single_solve_does():
    """The values of such points overflow."""
    problem, record = PROBLEMS[0], ("value", "gradient_norm", "gap", "nc1", "nc2", "accuracy")
    far = problem.random_point(0) * 1e200
    (trace,) = solve_many(problem, [0], "lbfgs", start=far, batched=True, record=record)
    single = solve(problem, "lbfgs", far, record=record)
    assert trace.outcome == single.outcome == "diverged"
    for name in record:
        assert list(trace.history[name]) == list(single.history[name]) == [None], name


def test_a_strict_saddle_is_left_to_a_single_solve():
    problem = RegularizedUFM("ce", 3, 2, 4, 1e-2, 1e-2)
    saddle = problem.random_point(0).map(torch.zeros_like)
    batch = solve_many(problem, [0], "lbfgs", start=saddle, batched=True)
    assert batch[0].outcome == solve(problem, "lbfgs", saddle).outcome == "saddle"


def test_small_trials_are_a_batch_unless_they_are_asked_for_apart(monkeypatch):
    problem, lines = PROBLEMS[0], []
    assert "in a batch" in solve_many(problem, range(8))[0].message
    assert "in a batch" not in solve_many(problem, range(8), batched=False, workers=1)[0].message
    assert "in a batch" not in solve_many(problem, range(8), workers=1)[0].message
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    solve_many(problem, range(2), "adam", max_iter=2, message=lines.append)
    assert lines == ["one solve a trial: a batch is for gradient-descent, conjugate-gradient and lbfgs, not adam"]


def test_trials_are_saved_and_resumed(tmp_path):
    problem = PROBLEMS[0]
    first = solve_many(problem, range(3), "lbfgs", batched=True, out=tmp_path / "runs")
    again = solve_many(problem, range(4), "lbfgs", batched=True, out=tmp_path / "runs", resume=True)
    assert [trace.value for trace in again[:3]] == [trace.value for trace in first]
    assert Trace.load(tmp_path / "runs" / "trial-0003").value == again[3].value


@pytest.mark.parametrize(
    ("problem", "options", "words"),
    [
        (PROBLEMS[0], {"method": "trust-region"}, "batched=True: a batch is for gradient-descent"),
        (ContrastiveUFM(3, 2, 4), {}, "not ContrastiveUFM"),
        (RegularizedUFM("ce", 3, 2, 4, 0.1, 0.1, features="nonnegative"), {}, "non-negative"),
        (RegularizedUFM("logit-adjusted:loss='ce',prior=(0.5,0.3,0.2)", 3, 2, 4, 0.1, 0.1), {}, "not written for"),
        (PROBLEMS[0], {"record": ("points",)}, "does not record points"),
        (PROBLEMS[0], {"gap": 1e-8}, "gap does not apply"),
    ],
)
def test_what_a_batch_cannot_do_is_refused(problem, options, words):
    with pytest.raises(ValueError, match=words):
        solve_many(problem, range(2), batched=True, **options)


class Operations(TorchDispatchMode):
    """Counts what PyTorch is asked to do: the overhead of small solves, without a clock."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.unchecked
@pytest.mark.parametrize("method", ["gd", "cg", "lbfgs"])
def test_a_batch_takes_a_fraction_of_the_operations(method):
    problem = NormalizedUFM("ce", 4, 3, 8)
    with Operations() as apart:
        solve_many(problem, range(12), method, workers=1, batched=False)
    with Operations() as together:
        solve_many(problem, range(12), method, batched=True)
    assert 0 < together.count < apart.count / 3
