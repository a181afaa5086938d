"""Models that run more than once in a pass, and layers that do or that have time first: told, not guessed."""

from typing import Any

import pytest
import torch
from torch import nn

import naive
import neuralcollapse as nc

K, D, N = 4, 7, 48
METRICS = ["nc1", "nc2", "nc3", "nc4_mismatch"]


def data():
    return torch.randn(N, 5, generator=torch.Generator().manual_seed(3)), torch.arange(N) % K


def perceptron(seed, hidden=D):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, K))


class Teacher(nn.Module):
    """A student and the average of its past, as semi-supervised training has them."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = perceptron(0), perceptron(1)

    def forward(self, x):
        return self.student(x)


def check(report, net):
    x, y = data()
    with torch.no_grad():
        h, w, b = net[:2](x).double().numpy(), net[2].weight.double().numpy(), net[2].bias.double().numpy()
    truth = naive.all_metrics(h, y.numpy(), w, b)
    for name in METRICS:
        assert report[name] == pytest.approx(truth[name], rel=2e-4, abs=1e-6), name


@pytest.mark.parametrize(
    "run",
    [
        lambda model, x: (model(x), model.teacher(x)),
        lambda model, x: (model.student(x), model.teacher(x)),
        lambda model, x: (model(x), model(x + 5)),
    ],
    ids=["beside-a-teacher", "parts", "another-view"],
)
def test_of_several_runs_in_a_pass_none_is_chosen(run):
    x, y = data()

    def forward(model, batch):
        run(model, batch[0])
        return batch[1]

    with pytest.raises(ValueError, match=r"runs 2 times in a pass.*layer=.*student.2"):
        nc.measure_model(Teacher(), [(x, y)], forward=forward)


def test_a_layer_that_is_named_is_measured_beside_another_model():
    model, (x, y) = Teacher(), data()

    def forward(model, batch):
        model(batch[0])
        model.teacher(batch[0])
        return batch[1]

    for name in ("student", "teacher"):
        report = nc.measure_model(model, [(x, y)], f"{name}.2", forward=forward, metrics=METRICS)
        check(report, getattr(model, name))


@pytest.mark.parametrize("hidden", [D, K])
def test_parts_that_run_one_after_the_other_are_one_run(hidden):
    """A pass through an encoder and then its head; also where both have as many outputs."""
    model: Any = nn.Module()
    model.net = perceptron(0, hidden)
    x, y = data()

    def forward(model, batch):
        model.net[2](model.net[1](model.net[0](batch[0])))
        return batch[1]

    check(nc.measure_model(model, [(x, y)], forward=forward, metrics=METRICS), model.net)


class Shared(nn.Module):
    """One activation in two places."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.act, self.head = nn.Linear(5, D), nn.Linear(D, D), nn.Tanh(), nn.Linear(D, K)

    def forward(self, x):
        return self.head(self.act(self.second(self.act(self.first(x)))))


def test_a_layer_that_is_called_in_two_places_is_noted():
    model, (x, y) = Shared(), data()
    reports = nc.metrics.measure_layers(model, [(x, y)], ["act", "second"], metrics=["nc1"])
    with torch.no_grad():
        hidden = torch.tanh(model.second(torch.tanh(model.first(x)))).double().numpy()
    truth = naive.all_metrics(hidden, y.numpy(), torch.randn(K, D).numpy(), torch.zeros(K).numpy())
    assert reports["act"].nc1 == pytest.approx(truth["nc1"], rel=2e-4)
    assert any("'act' is called more than once" in note for note in reports["act"].notes)
    assert not any("more than once" in note for note in reports["second"].notes)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = perceptron(0)

    def forward(self, x, labels=None):
        return self.net(x)


def test_a_batch_that_is_run_again_to_look_at_its_labels_is_no_second_call():
    x = torch.randn(6, 8, 5, generator=torch.Generator().manual_seed(3))
    y = torch.arange(48).reshape(6, 8) % K
    reports = nc.metrics.measure_layers(Tokens(), [(x, y)], ["net"], metrics=["nc1"])
    assert not any("more than once" in note for note in reports["net"].notes)


@pytest.mark.parametrize("samples", [6, 9])
@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.GRU(4, 4),
        lambda: nn.TransformerEncoderLayer(4, 1, 8),
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 1, 8), 1, enable_nested_tensor=False),
    ],
    ids=["recurrent", "encoder-layer", "encoder"],
)
def test_layers_that_have_time_first(layer, samples):
    """Of six steps: with six samples the shapes fit either way."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(layer()).eval()
    x = torch.randn(6, samples, 4, generator=torch.Generator().manual_seed(1))
    y = torch.arange(samples) % 2
    with torch.no_grad():
        out = model[0](x)
        out = (out[0] if isinstance(out, tuple) else out).mean(0).double().numpy()
    report = nc.metrics.measure_layers(model, [(x, y)], ["0"], pool="average", metrics=["nc1", "cdnv"])["0"]
    truth = naive.all_metrics(out, y.numpy(), torch.randn(2, 4).numpy(), torch.zeros(2).numpy())
    assert report.num_samples == samples
    for name in ("nc1", "cdnv"):
        assert report[name] == pytest.approx(truth[name], rel=2e-4), name
