"""Many trials as one tensor: the minima, histories and ends of single solves."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neuralcollapse import losses
from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, RegularizedUFM, Trace, solve, solve_many

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
