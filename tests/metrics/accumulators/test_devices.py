"""Every metric on features that live on another device: the same numbers, and the features stay there."""

import pytest
import torch

import neuralcollapse as nc
from neuralcollapse._support import machine
from neuralcollapse.metrics import METRICS, NeuralCollapse
from twin_device import DEVICE, Twin, TwinDevice

K, D, N = 5, 16, 3000


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def data(dtype=torch.float32, classes=K, dim=D):
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, classes, (N,), generator=generator)
    H = torch.randn(classes, dim, generator=generator)[y] + 0.4 * torch.randn(N, dim, generator=generator) + 2
    W = torch.randn(classes, dim, generator=generator)
    return H.to(dtype), y, W, torch.randn(classes, generator=generator), torch.randn(200, dim, generator=generator) + 1


def same(found, expected, rel=1e-6):
    assert found.keys() == expected.scalars.keys() or set(found) <= set(expected.scalars)
    for name, value in found.items():
        assert float(value) == pytest.approx(expected[name], rel=rel, abs=1e-12), name


def stayed(twin, entries=N * D):
    """No transfer of the size of the features, nor many that add up to it."""
    assert max(twin.transfers, default=0) < entries / 4
    assert sum(twin.transfers) < entries / 2


def test_the_twin_refuses_to_mix_and_counts():
    with TwinDevice() as twin:
        there = torch.ones(3, 4).to(DEVICE)
        assert isinstance(there, Twin)
        assert isinstance(torch.zeros(2, device=DEVICE), Twin)
        assert twin.transfers == [12]
        with pytest.raises(RuntimeError, match="twin device"):
            there + torch.ones(3, 4)
        with pytest.raises(RuntimeError, match="twin device"):
            there.index_select(0, torch.tensor([0]))
        assert float((there * 2).sum()) == 24
        assert twin.syncs == 1
        assert torch.equal((there[1:] + 1).to("cpu"), torch.full((2, 4), 2.0))
        assert twin.transfers == [12, 8]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("labels_there", [True, False])
def test_measure_leaves_features_where_they_are(dtype, labels_there):
    H, y, W, b, other = data(dtype)
    expected = nc.measure(H, y, W, b, metrics="all", out_of_distribution=other)
    assert len(expected.scalars) >= len(METRICS) - 4
    with TwinDevice() as twin:
        there = [value.to(DEVICE) for value in (H, W, b, other)]
        labels = y.to(DEVICE) if labels_there else y
        twin.transfers.clear()
        report = nc.measure(there[0], labels, there[1], there[2], metrics="all", out_of_distribution=there[3])
    same(report.scalars, expected)
    assert report.reasons == expected.reasons
    stayed(twin)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(("classes", "dim"), [(5, 16), (20, 6)])
def test_each_metric_alone(name, classes, dim):
    H, y, W, b, other = data(classes=classes, dim=dim)
    expected = nc.measure(H, y, W, b, metrics=name, out_of_distribution=other)
    with TwinDevice() as twin:
        there = H.to(DEVICE)
        twin.transfers.clear()
        report = nc.measure(there, y, W, b, metrics=name, out_of_distribution=other)
    same(report.scalars, expected)
    stayed(twin, N * dim)


@pytest.mark.parametrize("passes", [1, 2])
def test_streams_leave_features_where_they_are(passes):
    H, y, W, b, _ = data()
    plain = nc.ClassStatistics(K, D, passes=passes)
    plain.update(H, y)
    second = plain.second_pass(W, b, metrics="all")
    second.update(H, y)
    expected = second.report()
    batch = 300
    with TwinDevice() as twin:
        there, labels = H.to(DEVICE), y.to(DEVICE)
        statistics = nc.ClassStatistics(K, D, passes=passes)
        twin.transfers.clear()
        for rows in range(0, N, batch):
            statistics.update(there[rows : rows + batch], labels[rows : rows + batch])
        assert statistics.device == DEVICE
        moved = sum(twin.transfers)
        again = statistics.second_pass(W, b, metrics="all")
        for rows in range(0, N, batch):
            again.update(there[rows : rows + batch], labels[rows : rows + batch])
        report = again.report()
        cpu = nc.ClassStatistics(K, D, passes=passes)
        cpu.merge(statistics)
    # The state goes to the device once; the batches bring nothing back.
    assert moved <= 4 * (K * D + D * D) + 10 * K + 200
    same(report.scalars, expected, rel=1e-9)
    assert max(twin.transfers) < batch * D
    same(cpu.report(W, b).scalars, plain.report(W, b), rel=1e-9)


def test_torchmetrics_on_the_device():
    H, y, W, b, _ = data()
    statistics = nc.ClassStatistics(K, D)
    statistics.update(H, y)
    with TwinDevice() as twin:
        metric = NeuralCollapse(K, D).to(DEVICE)
        metric.use_classifier(W, b)
        there, labels = H.to(DEVICE), y.to(DEVICE)
        twin.transfers.clear()
        for rows in range(0, N, 500):
            metric.update(there[rows : rows + 500], labels[rows : rows + 500])
        stayed(twin)
        values = {name: float(value) for name, value in metric.compute().items()}
    same(values, statistics.report(W, b), rel=1e-9)


def test_selections_and_ignored_labels_on_the_device():
    H, y, W, b, _ = data()
    y = torch.where(torch.arange(N) % 7 == 0, -100, y)
    y = torch.where((y == 4) & (torch.arange(N) > 60), 3, y)
    expected = nc.measure(H, y, W, b, min_samples=50)
    with TwinDevice() as twin:
        there, labels = H.to(DEVICE), y.to(DEVICE)
        twin.transfers.clear()
        same(nc.measure(there, labels, W, b, min_samples=50).scalars, expected)
        stayed(twin)
        bad = there.clone()
        bad[17, 3] = torch.nan
        with pytest.raises(ValueError, match=r"features must be finite.*row 17"):
            nc.measure(bad, labels, W, b)
        with pytest.raises(ValueError, match="label 9"):
            nc.measure(there, torch.full((N,), 9, device=DEVICE), W, b)


@pytest.mark.parametrize("limit", [1 << 30, 40_000])
def test_the_recorder_of_a_layer_keeps_features_where_they_are(limit):
    from neuralcollapse.metrics.recorder import Recorder
    from neuralcollapse.metrics.settings import Settings

    H, y, W, b, _ = data()
    expected = nc.measure(H, y, W, b, metrics="all")
    with TwinDevice() as twin:
        there, labels = H.to(DEVICE), y.to(DEVICE)
        twin.transfers.clear()
        recorder = Recorder(Settings("all", None, "samples", -100, limit), K, W, b)
        for rows in range(0, N, 300):
            recorder.add(there[rows : rows + 300], labels[rows : rows + 300])
        if recorder.finish_first_pass():
            for rows in range(0, N, 300):
                recorder.add_again(there[rows : rows + 300], labels[rows : rows + 300])
        report = recorder.report()
    same(report.scalars, expected, rel=1e-5)
    assert {"nc1", "nc4_mismatch", "cosine_margin"} <= set(report.scalars)
    assert max(twin.transfers) < 300 * D


# devices without float64 ------------------------------------------------------------------------------------


@pytest.fixture
def single(monkeypatch):
    """The twin device as one without float64, as MPS is."""
    monkeypatch.setattr(machine, "WITHOUT_FLOAT64", {DEVICE.type})
    with TwinDevice(double=False) as twin:
        yield twin


def test_the_twin_without_float64_refuses_it(single):
    there = torch.ones(3, 4).to(DEVICE)
    for attempt in (
        lambda: there.to(torch.float64),
        lambda: there.to("cpu", torch.float64),
        lambda: there.sum(0, dtype=torch.float64),
        lambda: torch.zeros(2, dtype=torch.float64, device=DEVICE),
        lambda: torch.ones(2, dtype=torch.float64).to(DEVICE),
    ):
        with pytest.raises(TypeError, match="no float64"):
            attempt()
    assert there.to("cpu").to(torch.float64).sum() == 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("spread", [0.4, 1e-4])
def test_core_without_float64_leaves_features_where_they_are(single, dtype, spread):
    H, y, W, b, other = data(dtype, dim=128)
    centre = torch.stack([H[y == k].float().mean(0) for k in range(K)])[y]
    H = (centre + spread / 0.4 * (H.float() - centre)).to(dtype)
    expected = nc.measure(H, y, W, b, out_of_distribution=other)
    there = [value.to(DEVICE) for value in (H, W, b, other)]
    single.transfers.clear()
    report = nc.measure(*there[:1], y, *there[1:3], out_of_distribution=there[3])
    same(report.scalars, expected)
    assert report.reasons == expected.reasons
    assert report.rank == expected.rank
    stayed(single, N * 128)


@pytest.mark.parametrize("options", [{"metrics": "all"}, {"passes": 1}, {"intervals": 0.9, "groups": 5}], ids=str)
@pytest.mark.parametrize(("classes", "dim"), [(5, 16), (20, 6)])
def test_everything_without_float64(single, options, classes, dim):
    """What takes products of float64 is measured on the CPU."""
    H, y, W, b, other = data(classes=classes, dim=dim)
    expected = nc.measure(H, y, W, b, out_of_distribution=other, **options)
    report = nc.measure(H.to(DEVICE), y.to(DEVICE), W.to(DEVICE), b, out_of_distribution=other.to(DEVICE), **options)
    same(report.scalars, expected)
    assert report.intervals.keys() == expected.intervals.keys()
    for name, bounds in expected.intervals.items():
        assert report.intervals[name] == pytest.approx(bounds, rel=1e-5), name


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("metrics", ["core", "all"])
def test_streams_without_float64(single, passes, metrics):
    H, y, W, b, _ = data()
    truth = nc.measure(H.double(), y, W.double(), b.double(), metrics=metrics)
    statistics = nc.ClassStatistics(K, D, passes=passes, device=DEVICE)
    batch = 300
    single.transfers.clear()
    for rows in range(0, N, batch):
        statistics.update(H.to(DEVICE)[rows : rows + batch], y[rows : rows + batch])
    means = torch.stack([H.double()[y == k].mean(0) for k in range(K)])
    assert statistics.means.dtype == torch.float64
    torch.testing.assert_close(statistics.means, means, rtol=0, atol=1e-9)
    again = statistics.second_pass(W, b, metrics=metrics)
    for rows in range(0, N, batch):
        again.update(H.to(DEVICE)[rows : rows + batch], y[rows : rows + batch])
    found = again.report().scalars
    expected = {name: truth[name] for name in found}
    assert len(found) > 20
    for name, value in found.items():
        assert value == pytest.approx(expected[name], rel=1e-6, abs=1e-9), name


def test_streams_from_several_devices_without_float64_add_up(single):
    H, y, *_ = data()
    statistics = nc.ClassStatistics(K, D, passes=2)
    statistics.update(H[:1000].to(DEVICE), y[:1000])
    statistics.update(H[1000:2000], y[1000:2000])
    other = nc.ClassStatistics(K, D, passes=2)
    other.update(H[2000:].to(DEVICE), y[2000:])
    statistics.merge(other)
    assert statistics.counts.tolist() == y.bincount().tolist()
    torch.testing.assert_close(
        statistics.means, torch.stack([H.double()[y == k].mean(0) for k in range(K)]), rtol=0, atol=1e-9
    )
    variances = torch.stack([H.double()[y == k].var(0, correction=0).sum() for k in range(K)])
    torch.testing.assert_close(statistics.class_variances, variances, rtol=1e-6, atol=0)


def test_many_batches_far_from_the_origin_lose_no_digit_without_float64(single):
    """One float32 word for the sums of such deviations leaves errors of 1e-5 in the means."""
    generator = torch.Generator().manual_seed(0)
    H = 1000 + 1e-2 * torch.randn(200_000, 2, generator=generator)
    y = torch.arange(len(H)) % 2
    H[:2] = 1100  # what the others are summed as deviations from
    statistics = nc.ClassStatistics(2, 2, passes=2)
    for rows in range(0, len(H), 20_000):
        statistics.update(H[rows : rows + 20_000].to(DEVICE), y[rows : rows + 20_000])
    exact = torch.stack([H.double()[y == k].mean(0) for k in range(2)])
    assert float((statistics.means - exact).abs().max()) < 1e-9


def test_a_model_on_a_device_without_float64(single):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, D), torch.nn.ReLU(), torch.nn.Linear(D, K))
    x, y = torch.randn(N, 8), torch.arange(N) % K
    loader = [(x[rows : rows + 500], y[rows : rows + 500]) for rows in range(0, N, 500)]
    expected = nc.measure_model(model, loader)
    for name, parameter in list(model.named_parameters()):
        module, _, last = name.rpartition(".")
        model.get_submodule(module)._parameters[last] = parameter.detach().to(DEVICE)
    there = [(rows.to(DEVICE), labels) for rows, labels in loader]
    found = nc.measure_model(model, there, ignore_label=None)
    assert found.layer == expected.layer
    same(found.scalars, expected)


def test_torchmetrics_stays_on_the_cpu_where_there_is_no_float64(single):
    H, y, *_ = data()
    expected = NeuralCollapse(K, D)
    expected.update(H, y)
    metric = NeuralCollapse(K, D).to(DEVICE)
    metric.update(H.to(DEVICE), y.to(DEVICE))
    found, truth = metric.compute(), expected.compute()
    assert {name: float(value) for name, value in found.items()} == pytest.approx(
        {name: float(value) for name, value in truth.items()}, rel=1e-9
    )
