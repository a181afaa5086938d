"""Confidence intervals: the jackknife by hand, groups, streams, and how often they hold the truth."""

import math
import os

import numpy as np
import pytest
import torch
from scipy.stats import t as student

import neuralcollapse as nc
from neuralcollapse.metrics import GroupedStatistics
from neuralcollapse.metrics.selection import SampleGroups

K, D, N = 4, 6, 30


def data(seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(K).repeat_interleave(N)[torch.randperm(K * N, generator=generator)]
    means = torch.randn(K, D, generator=generator)
    H = means[y] + 0.7 * torch.randn(K * N, D, generator=generator)
    return H.to(dtype), y, means + 0.3 * torch.randn(K, D, generator=generator), torch.randn(K, generator=generator)


def test_groups_are_stratified_and_the_same_in_any_split():
    y = torch.tensor([0] * 11 + [1] * 7 + [2] * 2)
    for size in (3, 20):
        groups = SampleGroups(5, torch.zeros(3, dtype=torch.int64))
        assigned = torch.cat([groups.assign(part) for part in y.split(size)])
        for k in range(3):
            counts = torch.bincount(assigned[y == k], minlength=5)
            assert int(counts.max() - counts.min()) <= 1
        sizes = torch.bincount(assigned, minlength=5)
        assert int(sizes.max() - sizes.min()) <= 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_intervals_are_those_of_measuring_without_each_group(dtype):
    """The jackknife from G separate calls of measure on the rest of the samples."""
    H, y, W, b = data(dtype=dtype)
    report = nc.measure(H, y, W, b, intervals=0.9, groups=6, metrics="all")
    assigned = SampleGroups(6, torch.zeros(K, dtype=torch.int64)).assign(y)
    without = [nc.measure(H[assigned != g], y[assigned != g], W, b, metrics="all") for g in range(6)]
    for name in ("nc1", "nc1_quotient", "cdnv", "vci", "nc2_means", "nc3", "nc1_debiased", "nc4_bias"):
        logs = np.log([part[name] for part in without])
        width = student.ppf(0.95, 5) * np.sqrt(5 / 6 * ((logs - logs.mean()) ** 2).sum())
        low, high = report.intervals[name]
        assert low == pytest.approx(report[name] * np.exp(-width), rel=1e-5), name
        highest = nc.metrics.METRICS[name].highest
        assert high == pytest.approx(min(report[name] * np.exp(width), highest), rel=1e-5), name
    # What depends on single samples is a mean over them.
    decided = (H.double() @ W.double().T + b).argmax(1)
    nearest = torch.cdist(H.double(), nc.metrics.class_means(H, y)).argmin(1)
    wrong = (decided != nearest).double()
    values = np.array([float(wrong[assigned != g].mean()) for g in range(6)])
    low, high = report.intervals["nc4_mismatch"]
    width = student.ppf(0.95, 5) * np.sqrt(5 / 6 * ((np.log(values) - np.log(values).mean()) ** 2).sum())
    assert (low, high) == pytest.approx((float(wrong.mean()) * np.exp(-width), float(wrong.mean()) * np.exp(width)))
    low, high = report.intervals["cosine_margin"]
    assert low < report.cosine_margin < high
    # The classifier alone is no estimate, and the numerical rank has no groups.
    assert not {"nc2", "equinorm_weight", "nc0", "numerical_rank"} & set(report.intervals)
    assert report.to_dict()["intervals"]["nc1"] == list(report.intervals["nc1"])


def test_streams_and_merges_give_the_intervals_of_their_groups(tmp_path):
    H, y, W, b = data()
    whole = GroupedStatistics(K, D, groups=5)
    whole.update(H, y)
    parts = [GroupedStatistics(K, D, groups=5) for _ in range(2)]
    groups = SampleGroups(5, torch.zeros(K, dtype=torch.int64)).assign(y)
    for number, part in enumerate(parts):
        for mine, rows in zip(
            part.parts, [(groups == g).nonzero().squeeze(1)[number::2] for g in range(5)], strict=True
        ):
            mine.update(H[rows], y[rows])
    parts[0].merge(parts[1])
    first, second = whole.report(W, b), parts[0].report(W, b)
    assert first.nc1 == pytest.approx(nc.measure(H, y, W, b).nc1, rel=1e-12)
    for name, bounds in first.intervals.items():
        assert second.intervals[name] == pytest.approx(bounds, rel=1e-9), name
    again = nc.measure(H, y, W, b, intervals=0.95, groups=5)
    for name, bounds in first.intervals.items():
        assert again.intervals[name] == pytest.approx(bounds, rel=1e-9), name
    again.save(tmp_path / "r.json")
    assert dict(nc.CollapseReport.load(tmp_path / "r.json").intervals) == dict(again.intervals)
    with pytest.raises(ValueError, match="groups must agree"):
        whole.merge(GroupedStatistics(K, D, groups=4))


def test_classes_that_a_group_would_empty_have_no_interval():
    H, y, W, b = data()
    few = torch.cat([(y == k).nonzero().squeeze(1)[: 1 if k == 0 else 20] for k in range(K)])
    report = nc.measure(H[few], y[few], W, b, intervals=0.95)
    assert report.nc1 is not None
    assert "nc1" not in report.intervals
    assert nc.measure(H, y, W, b).intervals == {}


def test_memory_bounds_the_scatter_of_the_groups():
    H, y, W, b = data()
    report = nc.measure(H, y, W, b, intervals=0.95, memory_limit=2000)
    assert "nc1" not in report.intervals
    assert "cdnv" in report.intervals
    assert any("scatter matrices of 20 groups" in note for note in report.notes)


@pytest.mark.parametrize(("options", "message"), [({"intervals": 1.5}, "intervals must be"), ({"groups": 1}, "groups")])
def test_bad_options_are_named(options, message):
    H, y, _, _ = data()
    with pytest.raises(ValueError, match=message):
        nc.measure(H, y, **({"intervals": 0.9} | options))


@pytest.mark.unchecked
def test_intervals_hold_the_truth_as_often_as_they_say():
    """Truth of isotropic classes; NEURALCOLLAPSE_SLOW=1 takes 400 draws in place of 40."""
    draws = 400 if os.environ.get("NEURALCOLLAPSE_SLOW") else 40
    rng = np.random.default_rng(0)
    classes, d, n, sigma = 5, 12, 40, 0.3
    means = rng.normal(size=(classes, d)) / np.sqrt(d)
    centred = means - means.mean(0)
    between = centred.T @ centred / classes
    truth = {
        "nc1_quotient_debiased": sigma**2 * d / np.trace(between),
        "nc1_debiased": sigma**2 * np.trace(np.linalg.pinv(between)) / classes,
    }
    y = np.repeat(np.arange(classes), n)
    held = dict.fromkeys(truth, 0)
    for _ in range(draws):
        H = means[y] + sigma * rng.normal(size=(len(y), d))
        report = nc.measure(H, y, metrics=list(truth), intervals=0.95)
        for name, value in truth.items():
            low, high = report.intervals[name]
            held[name] += low <= value <= high
    # Three standard errors of the share about .95, above and (for 400 draws, where it can be seen) below.
    slack = 3 * np.sqrt(0.95 * 0.05 / draws)
    for name, count in held.items():
        assert count / draws >= 0.95 - slack, name
        assert count / draws <= 0.95 + max(slack, 0.05), name


def by_hand(values, groups, count, level=0.95):
    """The delete-a-group jackknife of a mean over samples, in float64 (on the log scale where all are positive)."""
    values = values.double()
    without = [float(values[groups != g].mean()) for g in range(count)]
    value = float(values.mean())
    logs = value > 0 and min(without) > 0
    points = np.log(without) if logs else np.array(without)
    error = math.sqrt((count - 1) / count * float(((points - points.mean()) ** 2).sum()))
    width = float(student.ppf((1 + level) / 2, count - 1)) * error
    return (value * math.exp(-width), value * math.exp(width)) if logs else (value - width, value + width)


def decisions(H, y, W, b):
    """Per sample: whether classifier and nearest mean disagree, and the cosine margin, from their definitions."""
    H, W = H.double(), W.double()
    means = torch.stack([H[y == k].mean(0) for k in range(len(W))])
    wrong = (H @ W.T + b.double()).argmax(1) != torch.cdist(H, means).argmin(1)
    centred = torch.nn.functional.normalize(H - H.mean(0)) @ torch.nn.functional.normalize(W - W.mean(0)).T
    own = centred.gather(1, y[:, None]).squeeze(1)
    return wrong.double(), own - centred.scatter(1, y[:, None], -9.0).max(1).values


def labelled(seed=3, classes=4, dim=6, size=240):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(size) % classes
    H = torch.randn(classes, dim, generator=generator)[y] + torch.randn(size, dim, generator=generator)
    return H, y, torch.randn(classes, dim, generator=generator), 0.1 * torch.randn(classes, generator=generator)


def shard_groups(shards, count):
    """The groups of samples in shards: each shard's own, turned to where its classes have the fewest so far."""
    found, table = [], np.zeros((count, 4))
    for labels in shards:
        own = SampleGroups(count, torch.zeros(4, dtype=torch.int64)).assign(labels)
        theirs = np.array([[int(((own == g) & (labels == k)).sum()) for k in range(4)] for g in range(count)])
        share = table / table.sum(0).clip(1)
        overlaps = [sum(share[(g + turn) % count] @ theirs[g] for g in range(count)) for turn in range(count)]
        turn = next(n for n in range(count) if overlaps[n] <= min(overlaps) + 1e-12)
        table += np.roll(theirs, turn, 0)
        found.append((own + turn) % count)
    return torch.cat(found)


def test_shards_have_intervals_of_decisions_and_margins(tmp_path):
    H, y, W, b = labelled()
    parts = list(torch.arange(240).split(80))
    for number, rows in enumerate(parts):
        np.savez(tmp_path / f"{number}.npz", features=H[rows].numpy(), labels=y[rows].numpy())
    report = nc.measure_files(tmp_path, W, b, workers=1, intervals=0.95, groups=8, out=tmp_path / "kept")
    groups = shard_groups([y[rows] for rows in parts], 8)
    wrong, margins = decisions(H, y, W, b)
    assert report.intervals["nc4_mismatch"] == pytest.approx(by_hand(wrong, groups, 8), rel=1e-6)
    assert report.intervals["cosine_margin"] == pytest.approx(by_hand(margins, groups, 8), rel=1e-5)
    assert report.nc4_mismatch == pytest.approx(float(wrong.mean()))
    assert {"nc1", "nc1_quotient", "nc2_means"} <= set(report.intervals)
    again = nc.measure_files(tmp_path, W, b, workers=1, intervals=0.95, groups=8, out=tmp_path / "kept")
    assert again.to_dict() == report.to_dict()


@pytest.mark.parametrize("limit", [1 << 30, 5000], ids=["kept", "streamed"])
def test_models_have_intervals(limit):
    H, y, W, b = labelled()
    model = torch.nn.Linear(6, 4)
    with torch.no_grad():
        model.weight.copy_(W)
        model.bias.copy_(b)
    parts = torch.arange(240).split(60)
    report = nc.measure_model(
        model, [(H[rows], y[rows]) for rows in parts], intervals=0.9, groups=6, memory_limit=limit
    )
    wrong, margins = decisions(H, y, W, b)
    whole = nc.measure(H, y, W, b, intervals=0.9, groups=6)
    assert set(report.intervals) == set(whole.intervals)
    if limit > 5000:
        assert report.intervals == whole.intervals
        return
    assigner = SampleGroups(6, torch.zeros(4, dtype=torch.int64))
    groups = torch.cat([assigner.assign(y[rows]) for rows in parts])
    assert report.intervals["nc4_mismatch"] == pytest.approx(by_hand(wrong, groups, 6, 0.9), rel=1e-6)
    assert report.intervals["cosine_margin"] == pytest.approx(by_hand(margins, groups, 6, 0.9), rel=1e-5)
    without = [nc.measure(H[groups != g].double(), y[groups != g], metrics="nc1").nc1 for g in range(6)]
    logs = np.log(without)
    error = math.sqrt(5 / 6 * float(((logs - logs.mean()) ** 2).sum())) * float(student.ppf(0.95, 5))
    expected = report.nc1 * math.exp(-error), report.nc1 * math.exp(error)
    assert report.intervals["nc1"] == pytest.approx(expected, rel=1e-4)


def test_saved_statistics_have_no_intervals(tmp_path):
    H, y, _, _ = labelled()
    statistics = nc.ClassStatistics(4, 6)
    statistics.update(H, y)
    statistics.save(tmp_path / "s.safetensors")
    with pytest.raises(ValueError, match="intervals need the features themselves"):
        nc.measure_files(tmp_path / "s.safetensors", intervals=0.95)


def test_a_class_just_above_min_samples_is_measured_with_every_group(tmp_path):
    """Without one of its samples it used to be left out, with all of its distance: nc1_quotient in .0003 to 16."""
    rng = np.random.default_rng(0)
    means, y = 2 * rng.normal(size=(5, 6)), rng.permutation(np.repeat(np.arange(5), [40, 40, 40, 40, 5]))
    means[4] *= 6
    x = means[y] + rng.normal(size=(165, 6))
    grouped = GroupedStatistics(5, 6, groups=10)
    grouped.update(torch.tensor(x), torch.tensor(y))
    report = grouped.report(metrics=["nc1_quotient", "cdnv"], min_samples=5)

    def quotient(rows: np.ndarray, labels: np.ndarray) -> float:
        centres = np.stack([rows[labels == k].mean(0) for k in range(5)])
        within = ((rows - centres[labels]) ** 2).sum() / len(labels)
        return within / (((centres - rows.mean(0)) ** 2).sum() / 5)

    groups = np.empty(165, dtype=int)
    taken = SampleGroups(10, torch.zeros(5, dtype=torch.int64))
    groups[:] = taken.assign(torch.tensor(y)).numpy()
    logs = np.log([quotient(x[groups != g], y[groups != g]) for g in range(10)])
    width = student.ppf(0.975, 9) * np.sqrt(0.9 * ((logs - logs.mean()) ** 2).sum())
    truth = quotient(x, y) * np.exp([-width, width])
    assert report.intervals["nc1_quotient"] == pytest.approx(tuple(truth), rel=1e-9)

    for part in range(2):
        np.savez(tmp_path / f"{part}.npz", features=x[part::2], labels=y[part::2])
    settings = {"metrics": ["nc1_quotient"], "intervals": 0.95, "groups": 10, "min_samples": 5}
    low, high = nc.measure_files(tmp_path, workers=1, **settings).intervals["nc1_quotient"]
    assert truth[0] / 1.2 < low < truth[0] * 1.2
    assert truth[1] / 1.2 < high < truth[1] * 1.2


@pytest.mark.parametrize("per_shard", [1, 3])
def test_many_small_shards_fill_all_groups(tmp_path, per_shard):
    """Each shard used to start with the same groups: with a sample of each class a shard, a group was a class."""
    rng = np.random.default_rng(0)
    means, weight = rng.normal(size=(4, 6)), rng.normal(size=(4, 6))
    x = means[:, None] + rng.normal(size=(4, 12, 6))
    total = GroupedStatistics(4, 6, groups=4)
    for start in range(0, 12, per_shard):
        rows, labels = x[:, start : start + per_shard].reshape(-1, 6).copy(), np.repeat(np.arange(4), per_shard)
        part = GroupedStatistics(4, 6, groups=4)
        part.update(torch.tensor(rows), torch.tensor(labels))
        total.merge(part)
        np.savez(tmp_path / f"{start:02}.npz", features=rows, labels=labels)
    assert all(2 <= number <= 4 for part in total.parts for number in part.counts.tolist())
    settings = {"metrics": ["nc1_quotient", "nc4_mismatch", "cosine_margin"], "intervals": 0.95, "groups": 4}
    shards = nc.measure_files(tmp_path, weight, workers=1, out=tmp_path / "kept", **settings)
    again = nc.measure_files(tmp_path, weight, workers=1, out=tmp_path / "kept", **settings)
    whole = nc.measure(x.reshape(-1, 6), np.repeat(np.arange(4), 12), weight, **settings)
    for name in settings["metrics"]:
        assert shards.intervals[name] == again.intervals[name]
        wide, narrow = (high - low for low, high in (shards.intervals[name], whole.intervals[name]))
        assert narrow / 4 < wide < 4 * narrow, name


def test_intervals_of_some_decided_samples_are_as_wide_as_those_make_them():
    """The interval about the share of 300 samples used to be that of all 3000: a third as wide, and wrong."""
    rng = np.random.default_rng(0)
    means = 0.8 * rng.normal(size=(K, D))
    W = means - means.mean(0) + 0.3 * rng.normal(size=means.shape)
    labels = rng.integers(0, K, 100_000)
    names = ["nc4_mismatch", "cosine_margin"]
    truth = nc.measure(means[labels] + rng.normal(size=(len(labels), D)), labels, W, metrics=names)
    held = dict.fromkeys(names, 0)
    for _ in range(20):
        y = rng.permutation(np.repeat(np.arange(K), 750))
        part = nc.measure(
            means[y] + rng.normal(size=(len(y), D)), y, W, metrics=names, decision_rows=300, intervals=0.95
        )
        for name in names:
            low, high = part.intervals[name]
            held[name] += low <= truth.values[name] <= high
    assert min(held.values()) >= 16, held


def test_a_stream_of_margins_alone_has_their_interval():
    H, y, W, b = labelled()
    model = torch.nn.Linear(6, 4)
    with torch.no_grad():
        model.weight.copy_(W)
        model.bias.copy_(b)
    batches = [(H[rows], y[rows]) for rows in torch.arange(240).split(60)]
    alone, both = (
        nc.measure_model(model, batches, metrics=names, intervals=0.9, groups=6, memory_limit=5000)
        for names in (["cosine_margin"], ["cosine_margin", "nc4_mismatch"])
    )
    assert alone.intervals["cosine_margin"] == pytest.approx(both.intervals["cosine_margin"], rel=1e-12)
