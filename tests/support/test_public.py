"""Public calls with arguments of the wrong kind say which one, and what it takes."""

import pickle

import pytest
import torch

import neuralcollapse as nc
from neuralcollapse._support.public import matches, words

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
        (
            lambda: nc.measure(DENSE, LABELS, intervals=0.9, groups=2**31),
            "groups must be at most 10000, got 2147483648",
        ),
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
    assert matches(torch.ones(2), torch.Tensor)
    assert not matches(True, int)
    assert matches(2, float)
    assert not matches("ab", list[str])
    assert words(torch.Tensor | None) == "Tensor or None"


DENSE = torch.arange(12, dtype=torch.float64).reshape(6, 2)
LABELS = torch.arange(6) % 2
KINDS = {
    "sparse coo": lambda tensor: tensor.to_sparse(),
    "sparse csr": lambda tensor: (tensor if tensor.ndim == 2 else tensor[:, None]).to_sparse_csr(),
    "meta device": lambda tensor: tensor.to("meta"),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "mkldnn": lambda tensor: tensor.float().to_mkldnn(),
    "nested": lambda tensor: torch.nested.nested_tensor([row.clone() for row in tensor]),
    "quantized": lambda tensor: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
}
TAKERS = {
    "features": lambda value: nc.measure(value, LABELS),
    "features of a batch": lambda value: nc.ClassStatistics(2, 2).update(value, LABELS),
    "labels": lambda value: nc.measure(DENSE, value),
    "weight": lambda value: nc.measure(DENSE, LABELS, value),
    "logits": lambda value: nc.losses.CrossEntropy()(value, LABELS),
    "logits of a linearization": lambda value: nc.losses.SquaredError().linearize(value, LABELS).gradient,
    "labels of a loss": lambda value: nc.losses.Focal(2.0)(DENSE, value),
    "features of a loss": lambda value: nc.losses.SupervisedContrastive()(value, LABELS),
    "point": lambda value: nc.ufm.RegularizedUFM("ce", 2, 3, 2, 0.1, 0.1).value(nc.ufm.Point(DENSE[:2], value)),
    "weight of a frame": lambda value: nc.frames.nearest_etf(value),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.filterwarnings("ignore")  # of layouts that PyTorch calls experimental
def test_tensors_that_are_not_numbers_in_memory_are_refused_by_name(kind, taker):
    if taker == "logits of a linearization" and kind in ("meta device", "complex"):
        return  # it takes checked arguments and refuses only what PyTorch cannot compute
    with pytest.raises((ValueError, TypeError)) as caught:
        TAKERS[taker](KINDS[kind](LABELS if "labels" in taker else DENSE))
    said = str(caught.value)
    assert "\n" not in said
    assert taker.split()[0] in said


def test_tensors_that_do_not_match_are_told_with_their_shapes():
    with pytest.raises(
        ValueError, match=r"logits = a float64 tensor of shape \(5, 2\), labels = an int64 tensor"
    ) as caught:
        nc.losses.SquaredError().linearize(DENSE[:5], LABELS)
    assert "\n" not in str(caught.value)


def test_an_error_of_a_callers_own_loss_is_the_callers():
    class Own(nc.losses.LogitLoss):
        name = "own"

        def _values(self, logits, labels):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine$"):
        Own()(DENSE, LABELS)


@pytest.mark.parametrize(
    "call",
    [
        lambda: nc.web.report.write(["no\nsuch"], "page.html"),
        lambda: nc.ufm.load_point("no\nsuch"),
        lambda: nc.training.Run.open("no\nsuch"),
        lambda: nc.ClassStatistics.load("no\nsuch"),
    ],
)
def test_a_name_with_a_line_break_is_told_in_one_line(call):
    with pytest.raises((ValueError, OSError), match="such") as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1
