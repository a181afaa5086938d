"""Many trials as one tensor: the same minima as one after another."""

import pytest
import torch

from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, RegularizedUFM, Trace, solve_many

PROBLEMS = [
    RegularizedUFM("ce", 4, 3, 6, 5e-3, 5e-3),
    RegularizedUFM("ls:alpha=0.1", 4, [5, 3, 2, 2], 5, 0.01, 0.02, 0.1),
    RegularizedUFM("focal:gamma=2", 3, 2, 4, 0.01, 0.02, 0.0),
    NormalizedUFM("ce", 4, 3, 6, 2.0),
]


@pytest.mark.unchecked
@pytest.mark.parametrize("method", ["lbfgs", "gradient-descent"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.loss.spec + problem.kind)
def test_values_are_those_of_single_solves(problem, method):
    seeds = range(8)
    single = solve_many(problem, seeds, method, workers=1, tol=1e-8, max_iter=3000)
    batch = solve_many(problem, seeds, method, batched=True, tol=1e-8, max_iter=3000)
    for one, other in zip(single, batch, strict=True):
        assert other.converged
        assert other.seed == one.seed
        assert other.value == pytest.approx(one.value, abs=1e-10)
        assert problem.value(other.point) == pytest.approx(other.value, rel=1e-12)
        assert problem.gradient(other.point).norm() == pytest.approx(other.gradient_norm, abs=1e-11)
        assert other.gradient_norm <= 1e-8
        assert len(other.history["value"]) == other.iterations + 1
        assert other.regime == one.regime


def test_every_trial_starts_at_its_own_seed_and_descends():
    problem = PROBLEMS[0]
    for trace in solve_many(problem, [3, 5], "lbfgs", batched=True, record=("value", "gradient_norm")):
        assert trace.history["value"][0] == pytest.approx(problem.value(problem.random_point(trace.seed)), rel=1e-12)
        values = torch.tensor(trace.history["value"])
        assert (values.diff() <= 1e-12).all()


def test_trials_are_saved_and_resumed(tmp_path):
    problem = PROBLEMS[0]
    first = solve_many(problem, range(3), "lbfgs", batched=True, out=tmp_path / "runs", record=("value",))
    again = solve_many(problem, range(4), "lbfgs", batched=True, out=tmp_path / "runs", record=("value",), resume=True)
    assert [trace.value for trace in again[:3]] == [trace.value for trace in first]
    assert Trace.load(tmp_path / "runs" / "trial-0003").value == again[3].value


@pytest.mark.parametrize(
    ("problem", "options", "words"),
    [
        (PROBLEMS[0], {"method": "trust-region"}, "batched is for lbfgs and gradient-descent"),
        (ContrastiveUFM(3, 2, 4), {}, "not lbfgs on ContrastiveUFM"),
        (PROBLEMS[0], {"record": ("nc1",)}, "record may name value and gradient_norm"),
        (PROBLEMS[0], {"gap": 1e-8}, "gap does not apply to a batched solve"),
    ],
)
def test_what_a_batch_cannot_do_is_refused(problem, options, words):
    with pytest.raises(ValueError, match=words):
        solve_many(problem, range(2), batched=True, **options)
