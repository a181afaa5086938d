"""Low-rank features that were rounded to bfloat16 on the way and handed on in float32, by every way to a report."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcollapse as nc
from low_rank import CLASSES, DIM, INNER, Net, check, inputs, truth
from neuralcollapse.metrics import NeuralCollapse, measure_layers


def autocast_forward(model, batch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(batch[0])
    return batch[1]


def batches(x, y, size=450):
    return list(zip(x.split(size), y.split(size), strict=True))


def test_the_case_needs_the_cut():
    x, y = inputs()
    net = Net()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = net.trunk(x).float()
    assert nc.measure(rounded, y, metrics="nc1").nc1 > 2 * truth(net, x, y)


@pytest.mark.parametrize("ending", ["float", "outside", "function"])
@pytest.mark.parametrize("limit", [1 << 30, 0], ids=["kept", "streamed"])
def test_a_model_under_autocast(ending, limit):
    x, y = inputs()
    net = Net(ending)
    report = nc.measure_model(net, batches(x, y), forward=autocast_forward, metrics="nc1", memory_limit=limit)
    check(report, truth(net, x, y))


def test_a_trunk_in_half_precision_before_a_head_in_single():
    x, y = inputs()
    net = Net()
    expected = truth(net, x, y)
    net.trunk.bfloat16()
    check(nc.measure_model(net, batches(x.bfloat16(), y), metrics="nc1"), expected)


def test_a_float64_model_is_not_taken_for_a_rounded_one():
    x, y = inputs()
    net = Net().double()
    net.forward = lambda x: net.head(net.trunk(x))
    report = nc.measure_model(net, batches(x.double(), y), forward=autocast_forward, metrics="nc1")
    assert report.rank == INNER
    assert report.nc1 == pytest.approx(truth(net, x, y), rel=1e-9)


def test_layers_under_autocast():
    x, y = inputs()
    net = nn.Sequential(Net().trunk, nn.LayerNorm(DIM, elementwise_affine=False), nn.Linear(DIM, CLASSES))
    found = measure_layers(net, batches(x, y), ["0", "1"], CLASSES, forward=autocast_forward, metrics="nc1")
    check(found["0"], truth(Net(), x, y))
    # LayerNorm hands on float32.
    check(found["1"], truth(Net(), x, y, normalised=True), INNER + 1)


@pytest.mark.parametrize("dtype", [None, torch.float32])
@pytest.mark.parametrize("shard_bytes", [1 << 28, 1 << 15], ids=["one shard", "shards"])
def test_files_keep_the_precision_of_the_model(tmp_path, dtype, shard_bytes):
    x, y = inputs()
    net = Net("outside")
    nc.extract(net, batches(x, y, 150), tmp_path / "f", forward=autocast_forward, dtype=dtype, shard_bytes=shard_bytes)
    check(nc.measure_files(tmp_path / "f", metrics="nc1", workers=1), truth(net, x, y))


def test_files_of_other_programs_can_be_told(tmp_path):
    x, y = inputs()
    net = Net()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = net.trunk(x).float()
    for number, (features, labels) in enumerate(batches(rounded, y)):
        np.savez(tmp_path / f"{number}.npz", features=features.numpy(), labels=labels.numpy())
    expected = truth(net, x, y)
    assert nc.measure_files(tmp_path, metrics="nc1", workers=1).nc1 > 2 * expected
    check(nc.measure_files(tmp_path, metrics="nc1", workers=1, precision=torch.bfloat16), expected)
    with pytest.raises(TypeError, match="precision must be None or one of"):
        nc.measure_files(tmp_path, precision=torch.int8)


def test_torchmetrics_can_be_told():
    x, y = inputs()
    net = Net()
    metric = NeuralCollapse(CLASSES, DIM, "nc1", precision=torch.bfloat16)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for part, labels in batches(x, y):
            metric.update(net.trunk(part).float(), labels)
    check(metric.report(), truth(net, x, y))
    with pytest.raises(TypeError, match="precision must be None or one of"):
        NeuralCollapse(CLASSES, DIM, precision=torch.int8)
