"""What models do between their last layer and their output, each against float64 truths made by hand.

A shift of the classes belongs to the classifier also where a softmax or a sigmoid follows; what a function hides is an
error or a note. Samples and time may be exchanged on the way, and products may be as many as a sequence is long.
"""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, TensorDataset

import naive
import neuralcollapse as nc

K, D, N = 4, 7, 96
METRICS = ["nc1", "nc2", "nc3", "nc4_bias", "nc4_mismatch", "cdnv"]
PRIOR = torch.tensor([0.6, -0.7, 0.4, 0.1])
MAPPED = "scales or shifts"
RISING = "would not be seen"
FUNCTIONS = {
    "softmax": lambda z: F.softmax(z, 1),
    "log-softmax": lambda z: F.log_softmax(z, 1),
    "sigmoid": torch.sigmoid,
    "normalised": lambda z: 5 * F.normalize(z),
    "standardised": lambda z: F.layer_norm(z, (K,)),
    "soft-cap": lambda z: 30 * torch.tanh(z / 30),
}


def data(classes=K):
    return torch.randn(N, 5, generator=torch.Generator().manual_seed(3)), torch.arange(N) % classes


class Net(nn.Module):
    head: Any

    def __init__(self, way=None, outputs=K):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(5, D), nn.Tanh())
        self.head = nn.Linear(D, outputs)
        self.way = way

    def forward(self, x, *further):
        hidden = self.body(x)
        return self.head(hidden) if self.way is None else self.way(self, hidden, *further)


def check(report, features, labels, weight, bias, metrics=METRICS, rel=2e-4):
    """Every metric and both accuracies, from features, labels, weight and bias alone."""
    h, w, b = (part.detach().double().numpy() for part in (features, weight, bias))
    y = labels.numpy()
    truth = naive.all_metrics(h, y, w, b)
    for name in metrics:
        assert report[name] == pytest.approx(truth[name], rel=rel, abs=1e-6), name
    assert report.accuracy == pytest.approx(np.mean((h @ w.T + b).argmax(1) == y), abs=1e-9)


def measured(net, batch=16, classes=K, **options):
    x, y = data(classes)
    return nc.measure_model(net, DataLoader(TensorDataset(x, y), batch), metrics=METRICS, **options)


def told(report, words):
    return any(words in note for note in report.notes)


# functions of the logits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1.0, 0.02])
@pytest.mark.parametrize("function", ["softmax", "log-softmax", "sigmoid"])
def test_a_prior_before_a_softmax_or_a_sigmoid_belongs_to_the_classifier(function, size):
    """A prior too small to change the order of the logits in any row changes decisions all the same."""
    net = Net(lambda net, h: FUNCTIONS[function](3 * net.head(h) + size * PRIOR))
    report = measured(net)
    # A softmax hides what all shifts share.
    shift = size * (PRIOR if function == "sigmoid" else PRIOR - PRIOR.mean())
    x, y = data()
    check(report, net.body(x), y, 3 * net.head.weight, 3 * net.head.bias + shift)
    assert told(report, MAPPED)
    assert told(report, "mean zero") == (function != "sigmoid")


@pytest.mark.parametrize("batch", [1, 2, 16])
@pytest.mark.parametrize("function", ["softmax", "log-softmax", "sigmoid", "normalised", "standardised"])
def test_functions_without_a_shift_change_nothing_and_need_no_note(function, batch):
    net = Net(lambda net, h: FUNCTIONS[function](net.head(h)))
    report = measured(net, batch)
    x, y = data()
    check(report, net.body(x), y, net.head.weight, net.head.bias)
    assert not report.notes


@pytest.mark.parametrize("scale", [200.0, 1000.0])
def test_a_softmax_that_is_saturated(scale):
    net = Net(lambda net, h: F.softmax(scale * net.head(h), 1))
    x, y = data()
    check(measured(net), net.body(x), y, net.head.weight, net.head.bias)


@pytest.mark.parametrize("function", ["normalised", "standardised", "soft-cap"])
def test_a_shift_that_a_function_hides_is_no_layers_output(function):
    net = Net(lambda net, h: FUNCTIONS[function](net.head(h) + 0.02 * PRIOR))
    with pytest.raises(ValueError, match=r"cannot be told.*layer="):
        measured(net)
    x, y = data()
    report = measured(net, layer="head")
    check(report, net.body(x), y, net.head.weight, net.head.bias)
    assert told(report, "those of the layer alone")


def test_an_unknown_increasing_function_is_noted():
    net = Net(lambda net, h: FUNCTIONS["soft-cap"](net.head(h)))
    report = measured(net)
    x, y = data()
    check(report, net.body(x), y, net.head.weight, net.head.bias)
    assert told(report, RISING)


@pytest.mark.parametrize(
    ("way", "scale", "shift"),
    [
        (lambda net, h: net.head(h) + 1.5, 1.0, 1.5),
        (lambda net, h: net.head(h).squeeze(1) + 1.5, 1.0, 1.5),
        (lambda net, h: torch.sigmoid(2 * net.head(h) + 1.5).squeeze(1), 2.0, 1.5),
        (lambda net, h: -net.head(h), -1.0, 0.0),
    ],
    ids=["odds", "squeezed", "sigmoid", "negative"],
)
def test_the_log_odds_that_are_added_to_one_output(way, scale, shift):
    net = Net(way, outputs=1)
    report = measured(net, classes=2)
    x, y = data(2)
    half = torch.tensor([[-0.5], [0.5]])
    bias = half[:, 0] * (scale * net.head.bias + shift)
    check(report, net.body(x), y, half * scale * net.head.weight, bias)
    assert told(report, MAPPED)


@pytest.mark.parametrize("mean", [lambda z: torch.stack(z).mean(0), lambda z: torch.stack(z).softmax(-1).mean(0)])
def test_an_ensemble_of_two_classes_is_none_of_its_members(mean):
    """Members that agree decide as their mean does: with two classes all of them rise with it."""
    net = Net(lambda net, h: mean([net.head(h), net.second(h)]), outputs=2)
    net.second = nn.Linear(D, 2)
    with torch.no_grad():
        for mine, other in zip(net.second.parameters(), net.head.parameters(), strict=True):
            mine.copy_(other + 0.01 * torch.randn_like(other))
    with pytest.raises(ValueError, match=r"cannot be told.*'head'.*'second'"):
        measured(net, classes=2)


def test_a_saturated_output_that_several_layers_agree_with_is_not_decided():
    net = Net(lambda net, h: (100 * torch.stack([net.head(h), net.second(h)])).softmax(-1).mean(0).round(), outputs=2)
    net.second = nn.Linear(D, 2)
    net.second.load_state_dict({name: 1.01 * tensor for name, tensor in net.head.state_dict().items()})
    with pytest.raises(ValueError, match=r"several layers agree.*'head'.*'second'|'second'.*'head'"):
        measured(net, classes=2)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_first_batch_of_few_rows_tells_no_shift(batch):
    net = Net(lambda net, h: net.head(h) + PRIOR)
    with pytest.raises(ValueError, match=r"too few rows to tell; give it at least 5"):
        measured(net, batch)
    report = measured(net, batch, layer="head")
    assert told(report, "those of the layer alone")
    assert told(report, "too few rows")


# what the layer itself does besides its product -----------------------------------------------------------------


def test_a_hook_of_ones_own_on_the_head():
    net = Net()
    net.head.register_forward_hook(lambda module, inputs, output: 2 * output + PRIOR)
    report = measured(net)
    x, y = data()
    check(report, net.body(x), y, 2 * net.head.weight, 2 * net.head.bias + PRIOR)
    assert told(report, MAPPED)
    assert len(net.head._forward_hooks) == 1


class Probabilities(nn.Linear):
    def forward(self, input):
        return super().forward(input).softmax(-1)


def test_a_head_that_makes_its_probabilities_itself():
    net = Net()
    net.head = Probabilities(D, K)
    report = measured(net)
    x, y = data()
    check(report, net.body(x), y, net.head.weight, net.head.bias)
    assert not report.notes


class Distances(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Parameter(torch.randn(K, D))

    def forward(self, hidden):
        return -torch.cdist(hidden, self.points)


def test_a_head_that_decides_otherwise_than_its_weight_says_so():
    net = Net()
    net.head = Distances()
    report = measured(net, N)
    x, _ = data()
    with torch.no_grad():
        chosen = torch.linspace(0, N - 1, 64).long()
        hidden = net.body(x)[chosen]
        other = int((net.head(hidden).argmax(1) != (hidden @ net.head.points.T).argmax(1)).sum())
    assert other > 0
    assert told(report, f"decides otherwise than the layer for {other} of 64 samples")


# sequences ------------------------------------------------------------------------------------------------------


class TimeFirst(nn.Module):
    """A recurrent net that has time first inside and takes and returns samples first."""

    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.cells, self.head, self.way = nn.GRU(5, D), nn.Linear(D, K), way

    def features(self, x):
        return self.cells(x.transpose(0, 1))[0].transpose(0, 1)

    def forward(self, x):
        hidden = self.cells(x.transpose(0, 1))[0]
        return self.way(self, hidden)


def flat(net, hidden):
    return net.head(hidden.reshape(-1, D)).reshape(*hidden.shape[:2], K).transpose(0, 1)


def packed(net, hidden):
    lengths = torch.full((hidden.shape[1],), hidden.shape[0])
    sequences = pack_padded_sequence(hidden, lengths)
    return pad_packed_sequence(sequences._replace(data=net.head(sequences.data)), batch_first=True)[0]


@pytest.mark.parametrize("layer", [None, "head"])
@pytest.mark.parametrize("times", [6, 9])
@pytest.mark.parametrize(
    "way",
    [
        lambda net, hidden: net.head(hidden).transpose(0, 1),
        lambda net, hidden: net.head(hidden).permute(1, 2, 0),
        lambda net, hidden: net.head(hidden).transpose(0, 1).log_softmax(-1),
        lambda net, hidden: F.linear(hidden, net.head.weight, net.head.bias).transpose(0, 1),
        flat,
        packed,
    ],
    ids=["samples-first", "classes-in-the-middle", "log-softmax", "functional", "flat", "packed"],
)
def test_a_head_that_sees_time_first(way, times, layer):
    """As many samples as steps: the shapes fit either way, and only the output tells."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(6, times, 5, generator=generator), torch.randint(0, K, (6, times), generator=generator)
    net = TimeFirst(way)
    report = nc.measure_model(net, [(x, y), (x.flip(0), y.flip(0))], layer=layer, metrics=METRICS)
    features = torch.cat([net.features(part).reshape(-1, D) for part in (x, x.flip(0))])
    labels = torch.cat([y.reshape(-1), y.flip(0).reshape(-1)])
    check(report, features, labels, net.head.weight, net.head.bias)


@pytest.mark.parametrize("sizes", [[1] * 13, [1, 6, 6], [6, 6, 1]])
def test_a_head_that_sees_time_first_and_single_samples(sizes):
    """A single sample's rows are in the same order either way: its shape tells."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(13, 6, 5, generator=generator), torch.randint(0, K, (13, 6), generator=generator)
    net = TimeFirst(lambda net, hidden: net.head(hidden).transpose(0, 1))
    report = nc.measure_model(net, [*zip(x.split(sizes), y.split(sizes), strict=True)], metrics=METRICS)
    check(report, net.features(x).reshape(-1, D), y.reshape(-1), net.head.weight, net.head.bias)


class Unrolled(nn.Module):
    """Steps that are products, as many as a sequence is long, before a product with a weight that is made anew."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.step, self.take = nn.Parameter(torch.randn(D, D) / 3), nn.Parameter(torch.randn(D, D))
        self.points = nn.Parameter(torch.randn(K, D))

    def features(self, x):
        hidden = torch.zeros(len(x), D)
        for time in range(x.shape[1]):
            hidden = torch.tanh(x[:, time] @ self.take + hidden @ self.step)
        return F.normalize(hidden)

    def forward(self, x):
        return self.features(x) @ F.normalize(self.points).T


def test_the_classifiers_product_is_found_in_sequences_of_any_length():
    generator = torch.Generator().manual_seed(1)
    batches = [(torch.randn(16, times, D, generator=generator), torch.arange(16) % K) for times in (3, 5, 2, 4)]
    net = Unrolled()
    report = nc.measure_model(net, batches, metrics=METRICS)
    features = torch.cat([net.features(x) for x, _ in batches])
    check(report, features, torch.cat([y for _, y in batches]), F.normalize(net.points), torch.zeros(K))


class Trailing(Unrolled):
    """Further products after the classifier's, as many as a sequence is long."""

    def forward(self, x):
        logits = super().forward(x)
        for _ in range(x.shape[1]):
            _ = torch.randn(len(x), D) @ torch.randn(D, K)
        return logits


def test_a_product_that_is_another_one_in_every_batch_is_an_error():
    generator = torch.Generator().manual_seed(1)
    batches = [(torch.randn(16, times, D, generator=generator), torch.arange(16) % K) for times in (3, 5)]
    with pytest.raises(ValueError, match=r"changes from batch to batch.*forward="):
        nc.measure_model(Trailing(), batches)


# batches after the first --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way",
    [
        lambda net, h, domain: net.head(h) + domain * PRIOR,
        lambda net, h, domain: torch.where(domain > 0, net.second(h), net.head(h)),
        lambda net, h, domain: F.log_softmax(net.head(h) + domain * PRIOR, 1),
    ],
    ids=["bias", "head", "log-softmax"],
)
@pytest.mark.parametrize("domains", [1, 2])
def test_a_bias_or_a_head_of_another_domain_that_comes_later_is_noted(way, domains):
    """A loader that is sorted by domains shows the first batch only one of them."""
    net = Net(way)
    net.second = nn.Linear(D, K)
    x, y = data()
    domain = (torch.arange(N) // (N // domains)).float()[:, None]
    batches = [*zip(x.split(16), domain.split(16), y.split(16), strict=True)]
    report = nc.measure_model(net, batches, "head", metrics=METRICS)
    check(report, net.body(x), y, net.head.weight, net.head.bias)
    assert told(report, "in some batches the model makes something else") == (domains == 2)


def test_the_mean_of_views_needs_no_note():
    net = Net(lambda net, h: (net.head(h) + net.head(h.flip(1))) / 2)
    report = measured(net)
    x, y = data()
    hidden = net.body(x)
    check(report, (hidden + hidden.flip(1)) / 2, y, net.head.weight, net.head.bias)
    assert not report.notes
