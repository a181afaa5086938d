"""The torchmetrics adapter against the real library: update, forward, clone, pickle, merge, state dict."""

import pickle

import pytest
import torch
from torchmetrics import Metric, MetricCollection

import neuralcollapse as nc
from neuralcollapse.metrics import NeuralCollapse


def data():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 4, (120,), generator=generator)
    H = torch.randn(4, 5, generator=generator)[y] + 0.2 * torch.randn(120, 5, generator=generator)
    return H, y, torch.randn(4, 5, generator=generator)


def same(values, report):
    assert values
    for name, value in values.items():
        assert float(value) == pytest.approx(report[name], rel=1e-10), name


def test_update_forward_reset_clone_and_pickle():
    H, y, W = data()
    statistics = nc.ClassStatistics(4, 5)
    statistics.update(H, y)
    expected = statistics.report(W)
    metric = NeuralCollapse(4, 5)
    assert isinstance(metric, Metric)
    metric.use_classifier(W)
    for index in torch.arange(120).split(13):
        metric.update(H[index], y[index])
    same(metric.compute(), expected)
    assert metric.report().reasons == expected.reasons
    same(metric.clone().compute(), expected)
    same(pickle.loads(pickle.dumps(metric)).compute(), expected)
    metric.persistent(True)
    other = NeuralCollapse(4, 5)
    other.persistent(True)
    other.load_state_dict(metric.state_dict())
    other.use_classifier(W)
    other.update(H[:0], y[:0])
    same(other.compute(), expected)

    metric.reset()
    assert metric.statistics().total == 0
    for index in torch.arange(120).split(40):
        batch = metric(H[index], y[index])
        same(batch, nc.measure(H[index].double(), y[index], W, metrics=list(batch), num_classes=4))
    same(metric.compute(), expected)
    metric.half()
    same(metric.compute(), expected)


def test_merge_state_and_chosen_metrics():
    H, y, W = data()
    expected = nc.measure(H.double(), y, W)
    first, second = NeuralCollapse(4, 5, ["nc1", "nc2_means"]), NeuralCollapse(4, 5, ["nc1", "nc2_means"])
    first.update(H[:50], y[:50])
    second.update(H[50:], y[50:])
    first.merge_state(second)
    assert set(first.compute()) == {"nc1", "nc2_means"}
    same(first.compute(), expected)
    cheap = NeuralCollapse(4, 5, "nc2_means")
    assert cheap.passes == 2
    collection = MetricCollection({"features": cheap})
    collection.update(H, y)
    assert float(collection.compute()["nc2_means"]) == pytest.approx(expected.nc2_means)


def test_bad_input():
    H, y, _ = data()
    metric = NeuralCollapse(4, 5)
    with pytest.raises(ValueError, match="label 9"):
        metric.update(H, torch.full_like(y, 9))
    with pytest.raises(ValueError, match="unknown metric"):
        NeuralCollapse(4, 5, "accuracy")
    with pytest.raises(ValueError, match="weight"):
        metric.use_classifier(torch.zeros(3, 5))


@pytest.mark.parametrize("seen", [True, False])
def test_a_module_in_half_precision_keeps_the_sums_of_its_metrics(seen):
    features, labels = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    metric = NeuralCollapse(3, 5)
    if seen:
        metric.update(features[:30], labels[:30])
    torch.nn.ModuleDict({"collapse": metric}).to(torch.bfloat16)
    for rows in (slice(30, 60),) if seen else (slice(0, 30), slice(30, 60)):
        metric.update(features[rows], labels[rows])
    rows = features.double()
    means = torch.stack([rows[labels == k].mean(0) for k in range(3)])
    spread, between = (rows - means[labels]).square().sum() / 60, (means - rows.mean(0)).square().sum() / 3
    assert float(metric.compute()["nc1_quotient"]) == pytest.approx(float(spread / between), rel=1e-6)
