"""What a report holds besides the metrics, how it is kept, compared and drawn."""

import copy
import csv
import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import naive
import neuralcollapse as nc
from neuralcollapse.metrics import METRICS, NeuralCollapse
from neuralcollapse.metrics.report.attributes import MetricAttributes
from neuralcollapse.metrics.report.gauges import gauges, headline
from neuralcollapse.metrics.report.render import summary

COUNTS = (40, 30, 9, 6)


def data(noise=0.9):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), COUNTS)
    means = rng.normal(size=(4, 7))
    H = means[y] + noise * rng.normal(size=(len(y), 7))
    W, b = means + 0.5 * rng.normal(size=(4, 7)), rng.normal(size=4)
    return H, y, W, b


def report(noise=0.9, **options):
    return nc.measure(*(torch.tensor(part) for part in data(noise)), **options)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_accuracy_and_classes_are_those_of_plain_numpy(dtype):
    H, y, W, b = data()
    H = H.astype(dtype)
    found = nc.measure(H, y, W, b)
    decided = (H @ W.T + b).argmax(1)
    M = naive.class_means(H.astype(np.float64), y, 4)
    nearest = ((H[:, None] - M) ** 2).sum(2).argmin(1)
    assert 0.5 < found.accuracy < 1
    assert found.accuracy == pytest.approx((decided == y).mean(), abs=0)
    assert found.nearest_mean_accuracy == pytest.approx((nearest == y).mean(), abs=0)
    rows = found.per_class
    assert len(rows) == 4
    apart = np.linalg.norm(M[:, None] - M, axis=2) + np.diag([np.inf] * 4)
    for k in range(4):
        row = rows[k]
        assert row["counts"] == COUNTS[k]
        assert row["variances"] == pytest.approx(((H[y == k] - M[k]) ** 2).sum(1).mean(), rel=1e-5)
        assert row["mean_norms"] == pytest.approx(np.linalg.norm(M[k] - H.mean(0)), rel=1e-5)
        assert row["weight_norms"] == pytest.approx(np.linalg.norm(W[k]))
        centred = M[k] - H.mean(0)
        assert row["cosines"] == pytest.approx(
            centred @ W[k] / np.linalg.norm(centred) / np.linalg.norm(W[k]), rel=1e-5
        )
        assert row["nearest"] == str(apart[k].argmin())
        assert row["nearest_distances"] == pytest.approx(apart[k].min(), rel=1e-5)
        assert row["accuracy"] == pytest.approx((decided == y)[y == k].mean())
        assert row["nearest_mean_accuracy"] == pytest.approx((nearest == y)[y == k].mean())
    assert rows["2"] == rows[2]
    assert [row["name"] for row in rows] == ["0", "1", "2", "3"]
    with pytest.raises(KeyError, match="'7'"):
        rows["7"]


def test_streams_count_the_same_decisions():
    H, y, W, b = (torch.tensor(part) for part in data())
    statistics = nc.ClassStatistics(4, 7)
    statistics.update(H, y)
    parts = [statistics.second_pass(W, b) for _ in range(2)]
    for number, index in enumerate(torch.arange(len(y)).split(11)):
        parts[number % 2].update(H[index], y[index])
    parts[0].merge(parts[1])
    streamed, whole = parts[0].report(), report()
    assert streamed.accuracy == whole.accuracy
    assert streamed.per_class.accuracy.tolist() == whole.per_class.accuracy.tolist()
    assert streamed.nearest_mean_accuracy == whole.nearest_mean_accuracy
    alone = statistics.report(W, b)
    assert alone.accuracy is None
    assert alone.per_class.accuracy is None


def test_large_classes_against_small_ones():
    H, y, W, b = data()
    groups = report().groups
    assert (groups["majority"]["classes"], groups["minority"]["classes"]) == (2, 2)
    assert groups["minority"]["samples"] == 15
    U = W[2:] / np.linalg.norm(W[2:], axis=1, keepdims=True)
    assert groups["minority"]["weight_cosine"] == pytest.approx(U[0] @ U[1])
    right = (H @ W.T + b).argmax(1) == y
    assert groups["majority"]["accuracy"] == pytest.approx((right[y == 0].mean() + right[y == 1].mean()) / 2)
    balanced = nc.measure(torch.eye(4).repeat(2, 1), torch.arange(4).repeat(2))
    assert balanced.groups == {}


def test_present_classes_keep_their_numbers_as_names():
    H, y, _, _ = (torch.tensor(part) for part in data())
    statistics = nc.ClassStatistics(9, 7)
    statistics.update(H, y * 2)
    found = statistics.report(present_only=True)
    assert found.per_class.names == ("0", "2", "4", "6")


def test_a_saved_report_is_the_same(tmp_path):
    first = report(metrics="all")
    first.save(tmp_path / "deep" / "r.json")
    again = nc.CollapseReport.load(tmp_path / "deep" / "r.json")
    assert again.to_dict() == first.to_dict()
    assert again.nc1 == first.nc1
    assert torch.equal(again.cosine_margins, first.cosine_margins)
    assert again.per_class.to_dict() == first.per_class.to_dict()
    assert str(again) == str(first)
    assert pickle.loads(pickle.dumps(again)).to_dict() == copy.deepcopy(first).to_dict()
    content = first.to_content()
    assert nc.CollapseReport.from_content(json.loads(json.dumps(content))).to_content() == content
    with pytest.raises(ValueError, match="content does not hold a saved report: expected format"):
        nc.CollapseReport.from_content(first.to_dict())


@pytest.mark.parametrize("change", ["cut", "format", "text", "missing"])
def test_damaged_reports_are_refused_in_one_line(tmp_path, change):
    file = tmp_path / "r.json"
    report().save(file)
    content = json.loads(file.read_text())
    if change == "cut":
        file.write_text(file.read_text()[:200])
    elif change == "format":
        file.write_text(json.dumps({"nc1": 1}))
    elif change == "text":
        content["report"]["nc1"] = "many"
        file.write_text(json.dumps(content))
    else:
        del content["report"]["num_samples"]
        file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"r\.json does not hold a saved report") as error:
        nc.CollapseReport.load(file)
    assert "\n" not in str(error.value)


def test_many_reports_side_by_side():
    first, second, third = report(0.9), report(0.1), report(0.4)
    many = first.compare(second, third, names=["a", "b", "c"])
    rows = many.to_dict()
    assert rows["nc1"]["b"] == second.nc1
    assert rows["nc1"]["change"] == pytest.approx(third.nc1 - first.nc1)
    assert many.most_collapsed["nc1"] == "b"
    assert many.most_collapsed["cosine_margin"] == "b"
    assert many.most_collapsed["nc2"] is None
    assert "b" in str(many)
    with pytest.raises(ValueError, match="3 different names"):
        first.compare(second, third, names=["a", "b"])
    with pytest.raises(ValueError, match="at least one other"):
        first.compare()


def test_higher_margins_are_more_collapsed_and_a_lone_value_beats_nobody():
    pair = report(0.9).compare(report(0.1))
    assert pair.more_collapsed["nc1"] is True
    assert pair.more_collapsed["cosine_margin"] is True
    assert report(0.1).compare(report(0.9)).more_collapsed["cosine_margin"] is False
    features, labels = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    lone = nc.measure(features, labels, metrics=["nc1", "cdnv"]).compare(nc.measure(features, labels, metrics=["nc1"]))
    assert lone.most_collapsed["cdnv"] is None
    assert "cdnv" not in lone.changes


def test_a_report_is_short_in_a_shell_and_completes():
    text = repr(report())
    assert text.startswith("CollapseReport(85 samples, 4 classes, 7 dimensions: nc1 ")
    assert len(text) < 130
    source = Path(sys.modules[MetricAttributes.__module__].__file__).read_text()
    listed = {line.split(":")[0].strip() for line in source.splitlines() if line.endswith(": float | None")}
    assert listed == set(METRICS), "list the metric in metrics/report/attributes.py, so that editors complete it"


@pytest.mark.parametrize("width", [80, 50])
def test_the_summary_fits_and_says_where_one_stands(width):
    found = report()
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(summary(found, width))
    lines = capture.get().rstrip("\n").split("\n")
    assert len(lines) <= 12
    assert max(len(line) for line in lines) <= width
    assert lines[0].startswith("Neural collapse: ")
    assert [line[:3] for line in lines if line.startswith("NC")] == ["NC1", "NC2", "NC3", "NC4"]
    assert "accuracy" in lines[-1]


def test_gauges_go_from_random_to_collapsed():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(5).repeat_interleave(40)
    W = torch.randn(5, 30, generator=generator, dtype=torch.float64)
    random = nc.measure(torch.randn(200, 30, generator=generator), y, W)
    assert headline(gauges(random)) == "far from collapse"
    assert all(gauge.position < 0.15 for gauge in gauges(random))
    frame = nc.frames.simplex_etf(5, 30)
    collapsed = nc.measure(frame[y], y, frame)
    assert headline(gauges(collapsed)) == "collapsed"
    assert all(gauge.position == 1 for gauge in gauges(collapsed))
    without = gauges(nc.measure(frame[y], y))
    assert [gauge.metric for gauge in without[:2]] == ["nc1", "nc2_means"]
    assert without[2].position is None
    assert "classifier" in without[3].words


def drawn(figure, tmp_path):
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000
    return [axes for axes in figure.axes if axes.get_visible()]


def test_pictures_show_the_numbers(tmp_path):
    found = report()
    gauge, margins, classes = drawn(found.plot(), tmp_path)
    assert f"nc1 = {found.nc1:.4g}" in [text.get_text() for text in gauge.texts]
    assert margins.get_lines()[0].get_ydata()[0] == pytest.approx(float(found.cosine_margins[0]))
    assert [bar.get_height() ** 2 for bar in classes.patches] == pytest.approx(found.per_class.variances.tolist())
    assert len(drawn(nc.measure(*data()[:2], metrics="nc2_means").plot(), tmp_path)) == 1


def test_histories_of_every_kind_are_drawn(tmp_path):
    rows = [
        {"epoch": epoch, "split": split, "loss": 2.0**-epoch, "nc1": 10.0**-epoch, "nc2": None if epoch == 0 else 0.5}
        for epoch in range(4)
        for split in ("train", "test")
    ]
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    table = tmp_path / "m.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
    pandas = pytest.importorskip("pandas")
    for source in (rows, run, str(run / "metrics.jsonl"), table, pandas.DataFrame(rows)):
        panels = drawn(nc.plot_history(source), tmp_path)
        assert [panel.get_title() for panel in panels] == ["loss", "nc1", "nc2"]
        train, test = panels[1].get_lines()
        assert list(train.get_xdata()) == [0, 1, 2, 3]
        assert list(train.get_ydata()) == pytest.approx([1, 0.1, 0.01, 0.001])
        assert list(test.get_ydata()) == list(train.get_ydata())
        assert panels[1].get_yscale() == "log"
        assert len(panels[2].get_lines()[0].get_xdata()) == 3
    (only,) = drawn(nc.plot_history(rows, ["nc1"], split="train"), tmp_path)
    assert len(only.get_lines()) == 1
    pairs = [(3, report(0.9)), (7, report(0.1))]
    panels = drawn(nc.plot_history(pairs), tmp_path)
    assert list(panels[0].get_lines()[0].get_xdata()) == [3, 7]
    assert panels[0].get_title() == "accuracy"
    assert drawn(nc.plot_history([pair[1] for pair in pairs], "cdnv"), tmp_path)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ([], {}, "no rows"),
        ([{"epoch": 1}], {}, "no metrics"),
        ([3], {}, "row 0 must be a dict"),
        (3, {}, "rows_or_path must be a path"),
        ([{"epoch": 1, "nc1": 1.0}], {"metrics": ["nc2"]}, "no row has a value of 'nc2'"),
        ([{"epoch": 1, "nc1": 1.0, "split": "train"}], {"split": "test"}, "split 'test' .*train"),
    ],
)
@pytest.mark.unchecked
def test_bad_histories_are_named(source, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        nc.plot_history(source, **options)


def test_bad_history_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"no metrics\.jsonl"):
        nc.plot_history(tmp_path)
    with pytest.raises(FileNotFoundError):
        nc.plot_history(tmp_path / "none.jsonl")
    (tmp_path / "a.jsonl").write_text("{")
    with pytest.raises(ValueError, match=r"a\.jsonl: not a readable history"):
        nc.plot_history(tmp_path / "a.jsonl")


def test_the_torchmetrics_metric_draws_itself(tmp_path):
    H, y, W, _ = (torch.tensor(part) for part in data())
    metric = NeuralCollapse(4, 7)
    metric.use_classifier(W)
    metric.update(H, y)
    figure, axes = metric.plot()
    assert drawn(figure, tmp_path) == axes
    figure, _ = metric.plot([metric.compute(), metric.compute()])
    assert drawn(figure, tmp_path)
    with pytest.raises(ValueError, match="ax must be None"):
        metric.plot(ax=axes[0])


def test_names_at_the_ends_of_equal_curves_stand_one_above_the_other():
    rows = [
        {"epoch": epoch, "split": part, **dict.fromkeys(("nc1", "nc2", "nc3", "loss"), 1 / epoch)}
        for epoch in (1, 2, 3)
        for part in ("train", "test")
    ]
    figure = nc.plot_history(rows, ["nc1", "nc2", "nc3", "loss"])
    places = sorted(text.xyann[1] for text in figure.axes[0].texts)
    assert len(places) == 2
    assert places[1] - places[0] >= 8
    assert len({axis.get_subplotspec().colspan.start for axis in figure.axes}) == 2
