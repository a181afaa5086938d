"""The Lightning callback in real runs of the trainer."""

import json
import logging
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuralcollapse as nc
from neuralcollapse.integrations import JSONLinesLogger

pytest.importorskip("lightning")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lightning.pytorch import LightningModule, Trainer

    from neuralcollapse.integrations import LightningCollapse

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore")


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(callback, epochs=2, tmp_path=None):
    torch.manual_seed(0)
    x, y = torch.randn(90, 5), torch.arange(90) % 3
    train = DataLoader(TensorDataset(x[:60], y[:60]), batch_size=16, shuffle=True)
    validation = DataLoader(TensorDataset(x[60:], y[60:]), batch_size=7)
    trainer = Trainer(
        max_epochs=epochs, callbacks=[callback], logger=False, enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", default_root_dir=tmp_path,
    )  # fmt: skip
    net = Net()
    trainer.fit(net, train, validation)
    return net, trainer, (x, y)


def test_the_validation_loop_is_watched(tmp_path):
    callback = LightningCollapse(loggers=[JSONLinesLogger(tmp_path / "m.jsonl")])
    net, trainer, (x, y) = fit(callback, tmp_path=tmp_path)
    assert [epoch for epoch, _ in callback.history] == [0, 1]
    report = callback.history[-1][1]
    assert report.num_samples == 30
    net.eval()
    with torch.no_grad():
        expected = nc.measure(net.body(x[60:]).double(), y[60:], net.head.weight, net.head.bias)
    for name in ("nc1", "nc2", "nc3", "nc4_bias", "cdnv"):
        assert report[name] == pytest.approx(expected[name], rel=1e-4), name
    assert report.layer == "head"
    assert report.cosine_margin == pytest.approx(expected.cosine_margin, rel=1e-4)
    assert float(trainer.callback_metrics["nc/nc1"]) == pytest.approx(report.nc1, rel=1e-5)
    assert not net.head._forward_hooks
    rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [(row["epoch"], row["split"]) for row in rows] == [(0, "validation"), (1, "validation")]


def test_a_loader_of_ones_own_is_measured_after_the_epoch(tmp_path):
    x, y = torch.randn(30, 5, generator=torch.Generator().manual_seed(1)), torch.arange(30) % 3
    callback = LightningCollapse([(x, y)], layer="head", metrics=["nc1", "cosine_margin"], every=2, prefix="collapse_")
    net, trainer, _ = fit(callback, epochs=4, tmp_path=tmp_path)
    assert [epoch for epoch, _ in callback.history] == [1, 3]
    report = callback.history[-1][1]
    assert report.cosine_margin == pytest.approx(nc.measure_model(net, [(x, y)]).cosine_margin, rel=1e-5)
    assert "collapse_nc1" in trainer.callback_metrics


@pytest.mark.parametrize("memory_limit", [1 << 20, 0])
def test_intervals_are_those_of_measuring_the_model_afterwards(tmp_path, memory_limit):
    options: Any = {"intervals": 0.9, "groups": 5, "memory_limit": memory_limit}
    callback = LightningCollapse(metrics=["nc1_quotient", "nc2"], **options)
    net, _, (x, y) = fit(callback, 1, tmp_path)
    (_, report), *_ = callback.history
    assert set(report.intervals) == {"nc1_quotient"}
    with torch.no_grad():
        hidden = net.eval().body(x[60:])
    # In memory groups are drawn from all samples at once, in a stream batch by batch.
    grouped = nc.metrics.GroupedStatistics(3, 8, groups=5, passes=2)
    for rows, labels in zip(*(part.split(30 if memory_limit else 7) for part in (hidden, y[60:])), strict=True):
        grouped.update(rows, labels)
    truth = grouped.report(level=0.9, metrics=["nc1_quotient"])
    assert report.intervals["nc1_quotient"] == pytest.approx(truth.intervals["nc1_quotient"], rel=1e-6)
    restored = LightningCollapse()
    restored.load_state_dict(callback.state_dict())
    assert restored.history[0][1].intervals["nc1_quotient"] == report.intervals["nc1_quotient"]


def test_bad_arguments():
    with pytest.raises(ValueError, match="every"):
        LightningCollapse(every=0)
    with pytest.raises(ValueError, match="unknown metric"):
        LightningCollapse(metrics="loss")
