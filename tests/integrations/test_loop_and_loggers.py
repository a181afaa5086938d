"""The function for a hand-written loop, and the JSON lines, CSV and TensorBoard loggers read back."""

import csv
import json

import pytest
import torch
from torch import nn

import neuralcollapse as nc
from neuralcollapse.integrations import CSVLogger, JSONLinesLogger, TensorBoardLogger, record_collapse
from neuralcollapse.metrics.inputs import NonFiniteError
from neuralcollapse.metrics.processes import MeasuringTeam


def setting():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    x, y = torch.randn(60, 4), torch.arange(60) % 3
    return model, [(x[:40], y[:40]), (x[40:], y[40:])]


def test_a_hand_written_loop(tmp_path):
    model, batches = setting()
    lines, table = JSONLinesLogger(tmp_path / "run" / "metrics.jsonl"), CSVLogger(tmp_path / "metrics.csv")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reports = []
    for epoch in range(3):
        model.train()
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        extra = {"loss": float(loss.detach())}
        reports.append(
            record_collapse(model, batches, epoch, [lines, table], extra=extra, metrics=["nc1", "nc2", "nc5_ood"])
        )
        assert model.training
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert rows[2]["nc1"] == reports[2].nc1
    assert rows[2]["nc5_ood"] is None
    assert rows[0]["split"] == "train"
    assert list(rows[0])[:3] == ["epoch", "split", "loss"]
    with (tmp_path / "metrics.csv").open() as file:
        cells = list(csv.DictReader(file))
    assert float(cells[1]["nc2"]) == reports[1].nc2
    assert cells[1]["nc5_ood"] == ""


def test_an_existing_csv_is_continued_and_takes_new_columns(tmp_path):
    model, batches = setting()
    path = tmp_path / "metrics.csv"
    record_collapse(model, batches, 0, [CSVLogger(path)], metrics=["nc1", "nc2"])
    record_collapse(model, batches, 1, [CSVLogger(path)], metrics=["nc2"], split="test")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert rows[1]["nc1"] == ""
    logger = CSVLogger(path)
    third = record_collapse(model, batches, 2, [logger], metrics=["nc3"], extra={"loss": torch.tensor(0.5)})
    record_collapse(model, batches, 3, [logger], metrics=["nc1"], extra={"loss": float("nan")})
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["nc3"] for row in rows] == ["", "", str(third.nc3), ""]
    assert [row["loss"] for row in rows] == ["", "", "0.5", ""]
    assert rows[0]["nc1"] != ""
    with pytest.raises(ValueError, match="must not use"):
        record_collapse(model, batches, 2, [CSVLogger(path)], metrics=["nc1"], extra={"nc1": 1.0})
    with pytest.raises(TypeError, match="extra"):
        record_collapse(model, batches, 2, [CSVLogger(path)], metrics=["nc1"], extra={"loss": "low"})


def test_a_diverged_model_or_loss_ends_no_training(tmp_path, caplog):
    model, batches = setting()
    loggers = [JSONLinesLogger(tmp_path / "m.jsonl"), CSVLogger(tmp_path / "m.csv")]
    for epoch in range(4):
        if epoch == 2:
            with torch.no_grad():
                next(model.parameters()).fill_(torch.nan)
        loss = torch.tensor(float("nan") if epoch == 1 else 1.0)
        report = record_collapse(model, batches, epoch, loggers, extra={"loss": loss}, metrics=["nc1", "nc2"])
        if epoch >= 2:
            assert report.nc1 is None
            assert "finite" in report.reasons["nc1"]
            assert "nc1" in str(report)
            assert (report.num_classes, report.dim, report.num_samples) == (3, 8, 0)
    rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1]
    assert [row["loss"] for row in rows] == [1.0, None]
    assert "must be finite" in caplog.text


class Distances(nn.Module):
    """A head without a weight."""

    def forward(self, x):
        return -torch.cdist(x, torch.eye(5, 8))


@pytest.mark.parametrize(("options", "classes"), [({}, 3), ({"num_classes": 5}, 5)])
def test_a_diverged_model_has_the_sizes_that_are_known(options, classes):
    model, batches = setting()
    weight = model[2].weight
    with torch.no_grad():
        weight[0, 0] = torch.nan  # of the classifier alone
    report = record_collapse(model, batches, 0)
    assert (report.num_classes, report.dim) == (3, 8)
    custom = nn.Sequential(model[0], model[1], Distances())
    with torch.no_grad():
        custom[0].weight.fill_(torch.nan)
    report = record_collapse(custom, batches, 0, layer="2", **options)
    assert (report.num_classes, report.dim) == (classes, 8)


def test_sizes_reach_processes_without_data():
    class Second(MeasuringTeam):
        """The second of two processes; the first has failed."""

        def gather(self, value):
            return [(True, "features must be finite", (3, 8)), value]

    told = "in process 0: features must be finite"
    with pytest.raises(NonFiniteError, match=told) as error, Second().failing_together():
        pass
    assert error.value.sizes == (3, 8)


def test_a_line_that_a_killed_process_left_spoils_no_other(tmp_path):
    model, batches = setting()
    loggers = [JSONLinesLogger(tmp_path / "m.jsonl"), CSVLogger(tmp_path / "m.csv")]
    record_collapse(model, batches, 0, loggers, extra={"steps": 10**400}, metrics=["nc1"])
    for name, torn in (("m.jsonl", '{"epoch": 1, "spl'), ("m.csv", "1,tr")):
        with (tmp_path / name).open("a") as file:
            file.write(torn)
    report = record_collapse(model, batches, 1, loggers, extra={"steps": 2}, metrics=["nc1"])
    first, torn, last = (tmp_path / "m.jsonl").read_text().splitlines()
    assert json.loads(first)["steps"] == 10**400
    assert torn == '{"epoch": 1, "spl'
    assert json.loads(last) == {"epoch": 1, "split": "train", "steps": 2, "nc1": report.nc1}
    with (tmp_path / "m.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[2] == {"epoch": "1", "split": "train", "steps": "2", "nc1": str(report.nc1)}


def test_tensorboard_reads_back_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model, batches = setting()
    logger = TensorBoardLogger(tmp_path)
    reports = [record_collapse(model, batches, epoch, [logger], split="validation") for epoch in range(2)]
    logger.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    scalars = events.Scalars("validation/nc1")
    assert [event.step for event in scalars] == [0, 1]
    assert scalars[1].value == pytest.approx(reports[1].nc1, rel=1e-6)
    assert "validation/nc5_ood" not in events.Tags()["scalars"]
    assert "validation/cosine_margins" in events.Tags()["histograms"]


def test_reached_from_the_top():
    assert nc.integrations.record_collapse is record_collapse
    with pytest.raises(AttributeError):
        _ = nc.integrations.nothing
