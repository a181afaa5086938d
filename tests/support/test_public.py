"""Public calls with arguments of the wrong kind say which one, and what it takes."""

import pickle

import pytest
import torch

import neuralcollapse as nc
from neuralcollapse._support.public import fits, words

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: nc.data.balanced_subset(0, 2), "split must be Split, got 0"),
        (lambda: nc.landscape.objective_slice("x", None, None), "problem must be Problem, got 'x'"),
        (lambda: nc.studies.judge("claim", None), "claim must be Claim, got 'claim'"),
        (lambda: nc.training.measured_epochs(3), "plan must be Plan, got 3"),
        (lambda: nc.metrics.summary([], 80), r"report must be CollapseReport, got \[\]"),
        (lambda: nc.ufm.Point(None, torch.ones(2, 2)).dot("x"), "other must be Point, got 'x'"),
        (lambda: nc.losses.CrossEntropy().optimal_margin(2.0, 0), "num_classes = 0: it cannot be computed"),
        (lambda: nc.frames.simplex_basis(2**31), "num_classes = 2147483648 .* more than is free"),
        (lambda: nc.ClassStatistics(3, 2, device="nowhere"), "device must be a device such as 'cpu'"),
    ],
)
def test_the_argument_is_named(call, line):
    with pytest.raises((ValueError, TypeError), match=line) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_errors_of_a_function_that_was_given_come_through_as_they_are():
    """What fails inside a caller's own function is the caller's, when the arguments are right."""

    def forward(model, batch):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        nc.measure_model(torch.nn.Linear(2, 2), [(torch.ones(2, 2), torch.arange(2))], forward=forward)


def test_what_behaves_like_an_argument_is_taken():
    class Like:
        num_classes, labels = 2, torch.arange(4) % 2

        def select(self, positions):
            return positions

    assert len(nc.data.balanced_subset(Like(), 1)) == 2


def test_public_functions_are_found_again_by_pickle():
    for function in (nc.ufm.solve, nc.frames.simplex_etf, nc.measure, nc.data.load):
        assert pickle.loads(pickle.dumps(function)) is function


def test_types_are_told_apart():
    assert fits(torch.ones(2), torch.Tensor)
    assert not fits(True, int)
    assert fits(2, float)
    assert not fits("ab", list[str])
    assert words(torch.Tensor | None) == "Tensor or None"
