"""Labels of every integer type, and models whose buffers move while they are looked at."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import naive
import neuralcollapse as nc

K, D, N = 4, 7, 96
METRICS = ["nc1", "nc2", "nc3", "nc4_bias", "nc4_mismatch", "cdnv"]


def data():
    return torch.randn(N, 5, generator=torch.Generator().manual_seed(3)), torch.arange(N) % K


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(5, D), nn.Tanh())
        self.head = nn.Linear(D, K)

    def forward(self, x):
        return self.head(self.body(x))


def check(report, features, labels, weight, bias):
    h, w, b = (part.detach().double().numpy() for part in (features, weight, bias))
    truth = naive.all_metrics(h, labels.numpy(), w, b)
    for name in METRICS:
        assert report[name] == pytest.approx(truth[name], rel=2e-4, abs=1e-6), name


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_labels_as_numpy_arrays_are_collated(dtype):
    net = Net()
    x, y = data()
    report = nc.measure_model(net, [(x, y.to(dtype))], metrics=METRICS)
    check(report, net.body(x), y, net.head.weight, net.head.bias)
    layers = nc.metrics.measure_layers(net, [(x, y.to(dtype))], ["body"], metrics=["nc1"])
    assert layers["body"].nc1 == pytest.approx(report.nc1, rel=1e-6)


class Moving(Net):
    """Buffers that every forward pass moves, in place and anew; features depend on one of them."""

    count: torch.Tensor
    queue: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("queue", torch.zeros(3))

    def forward(self, x):
        self.count += 1
        self.queue = torch.cat([self.queue[1:], x[:1, 0]])
        return self.head(self.body(x) + 0.1 * self.count)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("memory_limit", [1 << 30, 0])
def test_buffers_that_move_in_evaluation_are_as_before(memory_limit, fails):
    net, (x, y) = Moving(), data()
    queue = net.queue
    loader = DataLoader(TensorDataset(x, y + K if fails else y), 16)
    if fails:
        with pytest.raises(ValueError, match="labels must lie"):
            nc.measure_model(net, loader, metrics=METRICS, memory_limit=memory_limit, passes=2)
    else:
        report = nc.measure_model(net, loader, metrics=METRICS, memory_limit=memory_limit, passes=2)
        steps = 0.1 * (1 + torch.arange(N) // 16)[:, None]
        check(report, net.body(x) + steps, y, net.head.weight, net.head.bias)
    assert float(net.count) == 0
    assert net.queue is queue
    assert torch.equal(queue, torch.zeros(3))


class OwnNoise:
    """Batches with noise from a generator of their own, which nobody can put back."""

    def __init__(self, scale):
        self.scale, self.own = scale, torch.Generator().manual_seed(5)

    def __iter__(self):
        x, y = data()
        noise = self.scale * torch.randn(x.shape, generator=self.own)
        return iter([*zip((x + noise).split(16), y.split(16), strict=True)])


def test_a_second_run_that_sees_other_features_is_an_error():
    for memory_limit in (0, 600):
        with pytest.raises(ValueError, match=r"saw other features than the first.*memory_limit="):
            nc.measure_model(Net(), OwnNoise(0.01), metrics=METRICS, memory_limit=memory_limit, passes=2)
    net, (x, y) = Net(), data()
    labels = torch.where(torch.arange(N) < 20, -100, y)
    batches = [*zip(x.split(16), labels.split(16), strict=True)]
    report = nc.measure_model(net, batches, metrics=METRICS, memory_limit=0, passes=2)
    check(report, net.body(x)[20:], y[20:], net.head.weight, net.head.bias)


class Again(Net):
    """Asks its head once for the loss and once for the logits."""

    def forward(self, x):
        hidden = self.body(x)
        return {"loss": self.head(hidden).logsumexp(1).mean(), "shares": self.head(hidden).softmax(1)}


def test_a_head_that_is_called_again_with_the_same_features():
    net, (x, y) = Again(), data()
    report = nc.measure_model(net, DataLoader(TensorDataset(x, y), 16), metrics=METRICS)
    check(report, net.body(x), y, net.head.weight, net.head.bias)
