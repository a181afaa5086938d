"""Features in files of every kind, whole or in shards, against features in memory."""

import io
import json
import pickle
import struct
import zipfile

import duckdb
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import neuralcollapse as nc
from neuralcollapse.metrics.files import arrays as _files
from neuralcollapse.metrics.files.arrays import open_arrays

K, D, N = 4, 6, 96
NAMES = ["bird", "cat", "dog", "fish"]


def data(dtype=np.float32):
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, N)
    means = rng.normal(size=(K, D))
    H = (means[y] + 0.5 * rng.normal(size=(N, D))).astype(dtype)
    return H, y, (means + 0.2 * rng.normal(size=(K, D))), rng.normal(size=K)


def write(folder, kind, H, y, stem, names=("features", "labels"), text=False):
    labels = np.array(NAMES)[y] if text else y
    features, targets = names
    if kind == "npz":
        np.savez(folder / f"{stem}.npz", **{features: H, targets: labels})
    elif kind == "packed":
        np.savez_compressed(folder / f"{stem}.npz", **{features: H, targets: labels})
    elif kind == "npy":
        np.save(folder / f"{features}_{stem}.npy", H)
        np.save(folder / f"{targets}_{stem}.npy", labels)
    elif kind == "safetensors":
        save_file({features: torch.tensor(H), targets: torch.tensor(y)}, folder / f"{stem}.safetensors")
    elif kind == "pt":
        torch.save({features: torch.tensor(H), targets: torch.tensor(y), "epoch": 3}, folder / f"{stem}.pt")
    elif kind == "parquet":
        pandas = pytest.importorskip("pandas")
        store(
            pandas.DataFrame({features: list(H), targets: labels.astype(object) if text else labels}),
            folder / f"{stem}.parquet",
        )
    elif kind == "wide":
        pandas = pytest.importorskip("pandas")
        table = pandas.DataFrame({f"{features}_{i}": H[:, i] for i in range(D)} | {targets: labels})
        store(table, folder / f"{stem}.parquet")


def store(table, file):
    connection = duckdb.connect()
    connection.register("t", table)
    connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")


def same(report, expected, rel=1e-6):
    assert set(report.scalars) == set(expected.scalars)
    for name, value in expected.scalars.items():
        assert report[name] == pytest.approx(value, rel=rel, abs=1e-9), name
    assert report.num_samples == expected.num_samples
    assert report.accuracy == expected.accuracy


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        *((kind, ("features", "labels")) for kind in ("npz", "packed", "safetensors", "pt", "parquet")),
        ("npy", ("X", "y")),
        ("npz", ("embeddings", "targets")),
        ("wide", ("X", "y")),
    ],
)
def test_every_kind_of_file_whole_and_in_shards(tmp_path, kind, names):
    H, y, W, b = data()
    expected = nc.measure(H, y, W, b)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    write(whole, kind, H, y, "all", names)
    same(nc.measure_files(whole, W, b), expected)
    for number, index in enumerate(np.array_split(np.arange(N), 3)):
        write(parts, kind, H[index], y[index], f"{number:03d}", names)
    same(nc.measure_files(parts, W, b, workers=1), expected)
    suffix = {"packed": "npz", "wide": "parquet"}.get(kind, kind)
    same(nc.measure_files(str(parts / f"*.{suffix}"), W, b, workers=1), expected)
    same(nc.measure_files(sorted(parts.iterdir()), workers=1), nc.measure(H, y))


@pytest.mark.parametrize("kind", ["npz", "packed", "parquet", "npy"])
def test_labels_may_be_text(tmp_path, kind):
    H, y, W, b = data()
    for number, index in enumerate([y < 2, y >= 2]):
        write(tmp_path, kind, H[index], y[index], f"{number}", text=True)
    report = nc.measure_files(tmp_path, W, b, workers=1)
    same(report, nc.measure(H, y, W, b))
    assert report.per_class.names == tuple(NAMES)
    assert report.per_class["dog"]["counts"] == int((y == 2).sum())


def test_processes_change_nothing(tmp_path):
    H, y, W, b = data()
    for number, index in enumerate(np.array_split(np.arange(N), 5)):
        write(tmp_path, "npz", H[index], y[index], f"{number}")
    seen = []
    one = nc.measure_files(tmp_path, W, b, workers=1, metrics="all")
    two = nc.measure_files(
        tmp_path, W, b, workers=2, metrics="all", progress=lambda done, all: seen.append((done, all))
    )
    same(two, one, rel=1e-12)
    same(two, nc.measure(H, y, W, b, metrics="all"))
    assert seen == [(n, 10) for n in range(1, 11)]


def test_ray_changes_nothing(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    H, y, W, b = data()
    for number, index in enumerate(np.array_split(np.arange(N), 3)):
        write(tmp_path, "npz", H[index], y[index], f"{number}")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = nc.measure_files(tmp_path, W, b, engine="ray", workers=1)
    assert not ray.is_initialized()
    assert report.to_dict() == nc.measure_files(tmp_path, W, b, workers=1).to_dict()


def test_the_classifier_and_other_data_come_from_the_files(tmp_path):
    H, y, W, b = data()
    write(tmp_path, "npz", H, y, "0")
    np.savez(tmp_path / "head.npz", weight=W, bias=b, out_of_distribution=np.ones((3, D)))
    whole = nc.measure(H, y, W, b, out_of_distribution=np.ones((3, D)))
    same(nc.measure_files(tmp_path), whole)
    same(nc.measure_files(tmp_path, workers=1, out=tmp_path / "work"), whole)
    same(nc.measure_files([tmp_path / "head.npz", tmp_path / "0.npz"]), whole)


def test_saved_statistics_are_merged(tmp_path):
    H, y, W, b = data(np.float64)
    for number, index in enumerate(np.array_split(np.arange(N), 2)):
        statistics = nc.ClassStatistics(K, D)
        statistics.update(H[index], y[index])
        statistics.save(tmp_path / f"{number}.safetensors")
    report = nc.measure_files(tmp_path, W, b)
    whole = nc.ClassStatistics(K, D)
    whole.update(H, y)
    same(report, whole.report(W, b), rel=1e-10)
    write(tmp_path, "npz", H, y, "more")
    assert nc.measure_files(tmp_path, workers=1).num_samples == 2 * N


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_classes", K + 1),
        ("passes", 2),
        ("precision", torch.bfloat16),
        ("ignore_label", 3),
        ("ignore_label", None),
        ("workers", 2),
        ("engine", "ray"),
        ("intervals", 0.9),
    ],
)
def test_options_that_saved_statistics_cannot_follow_are_refused(tmp_path, name, value):
    H, y, _, _ = data(np.float64)
    statistics = nc.ClassStatistics(K, D)
    statistics.update(H, y)
    statistics.save(tmp_path / "sums.safetensors")
    own = {"num_classes": K, "passes": 1, "workers": 1, "ignore_label": -100}
    same(nc.measure_files(tmp_path, **own), statistics.report())
    with pytest.raises(ValueError, match=name):
        nc.measure_files(tmp_path, **{name: value})


def three_shards(tmp_path, H, y):
    shards = tmp_path / "shards"
    shards.mkdir()
    for number, index in enumerate(np.array_split(np.arange(N), 3)):
        write(shards, "npz", H[index], y[index], f"{number}")
    return shards


def test_finished_shards_are_not_read_again(tmp_path, monkeypatch):
    H, y, _, _ = data()
    shards = three_shards(tmp_path, H, y)
    out = tmp_path / "work"
    names = ["nc1", "cdnv"]
    from neuralcollapse.metrics.files import measure as _measure_files

    read = []
    plain = _measure_files._statistics_of

    def spy(shard, job):
        if len(read) == 2 and "stop" not in read:
            read.append("stop")
            raise KeyboardInterrupt
        read.append(shard.name)
        return plain(shard, job)

    monkeypatch.setattr(_measure_files, "_statistics_of", spy)
    with pytest.raises(KeyboardInterrupt):
        nc.measure_files(shards, metrics=names, workers=1, out=out)
    kept = sorted(out.iterdir())
    assert len(kept) == 2
    kept[0].write_bytes(kept[0].read_bytes()[:50])
    report = nc.measure_files(shards, metrics=names, workers=1, out=out)
    assert len(read) == 5
    same(report, nc.measure(H, y, metrics=names))
    nc.measure_files(shards, metrics=names, workers=1, out=out)
    assert len(read) == 5
    write(shards, "npz", H[:8], y[:8], "0")
    nc.measure_files(shards, metrics=names, workers=1, out=out)
    assert len(read) == 6


def test_the_second_look_goes_on_too(tmp_path, monkeypatch):
    H, y, W, b = data()
    shards = three_shards(tmp_path, H, y)
    from neuralcollapse.metrics.files import measure as _measure_files

    looked = []
    plain = _measure_files._second_pass_of
    monkeypatch.setattr(_measure_files, "_second_pass_of", lambda *a: (looked.append(a[0].name), plain(*a))[1])
    first = nc.measure_files(shards, W, b, workers=1, out=tmp_path / "work")
    again = nc.measure_files(shards, W, b, workers=1, out=tmp_path / "work")
    assert len(looked) == 3
    assert again.to_dict() == first.to_dict()
    same(first, nc.measure(H, y, W, b))
    other = nc.measure_files(shards, W + 1, b, workers=1, out=tmp_path / "work")
    assert len(looked) == 6
    same(other, nc.measure(H, y, W + 1, b))


def test_intervals_of_shards(tmp_path):
    H, y, W, b = data()
    for number, index in enumerate(np.array_split(np.arange(N), 2)):
        write(tmp_path, "npz", H[index], y[index], f"{number}")
    report = nc.measure_files(tmp_path, W, b, workers=1, intervals=0.9, groups=5)
    whole = nc.measure(H, y, W, b, intervals=0.9, groups=5)
    for name in ("nc1", "cdnv", "nc3"):
        low, high = report.intervals[name]
        assert low < report[name] < high
        # Other groups, so another draw of the same error.
        first, second = np.log(high / low), np.log(np.divide(*whole.intervals[name][::-1]))
        assert 0.3 < first / second < 3


def bomb(file, claimed, real):
    """A .npz whose array claims more bytes than it can be given."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": claimed})
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("features.npy", "w") as stream:
        stream.write(header.getvalue())
        for _ in range(real >> 20):
            stream.write(bytes(1 << 20))


def test_bombs_are_refused_before_memory_is_asked_for(tmp_path, monkeypatch):
    bomb(tmp_path / "short.npz", (10**9, 1000), 1 << 20)
    with pytest.raises(ValueError, match="cut short"):
        open_arrays(tmp_path / "short.npz")["features"]
    bomb(tmp_path / "large.npz", (1 << 20, 16), 64 << 20)
    assert (tmp_path / "large.npz").stat().st_size < 1 << 20
    assert open_arrays(tmp_path / "large.npz")["features"].shape == (1 << 20, 16)
    monkeypatch.setattr(_files, "available_memory", lambda: 64 << 20)
    with pytest.raises(ValueError, match=r"large\.npz: array 'features\.npy' would take 0\.0671 GB .*np\.savez"):
        open_arrays(tmp_path / "large.npz")["features"]


class Evil:
    def __reduce__(self):
        return (exec, ("raise AssertionError('a file from outside was executed')",))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: torch.save({"features": Evil()}, f / "a.pt"), r"a\.pt: not a readable \.pt file: it holds more"),
        (lambda f: (f / "a.pt").write_bytes(pickle.dumps(Evil())), r"a\.pt: not a readable"),
        (lambda f: torch.save([1, 2, 3], f / "a.pt"), "a dict of tensors"),
        (lambda f: (f / "a.parquet").write_bytes(b"PAR1" + struct.pack("<q", 3) * 9), r"a\.parquet: not a readable"),
        (lambda f: np.savez(f / "a.npz", features=np.ones((3, 2)), labels=np.array([0.5, 1, 1])), "integers or text"),
        (lambda f: np.savez(f / "a.npz", features=np.ones((3, 2)), labels=np.array([[0], [1], [1]])), r"shape \(N,\)"),
        (lambda f: np.savez(f / "a.npz", features=np.ones((3, 2)), labels=np.array([0, 1])), "one entry per row"),
        (lambda f: np.savez(f / "a.npz", features=np.ones((3, 2))), "no array 'labels' or 'y'"),
        (lambda f: np.save(f / "features_a.npy", np.ones((3, 2))), "no labels file beside it"),
        (lambda f: None, "no .npz, .npy"),
    ],
)
def test_bad_files_are_named_and_never_executed(tmp_path, make, message):
    make(tmp_path)
    with pytest.raises((ValueError, TypeError), match=message) as error:
        nc.measure_files(tmp_path)
    assert "\n" not in str(error.value)


def test_bad_shards_among_good_ones_are_named(tmp_path):
    H, y, _, _ = data()
    write(tmp_path, "npz", H[:50], y[:50], "0")
    write(tmp_path, "npz", H[50:, :3], y[50:], "1")
    with pytest.raises(ValueError, match=r"1\.npz: features must have 6 columns"):
        nc.measure_files(tmp_path, workers=1)
    write(tmp_path, "npz", H[50:], y[50:], "1", text=True)
    with pytest.raises(ValueError, match="text in all files or numbers in all"):
        nc.measure_files(tmp_path, workers=1)
    with pytest.raises(FileNotFoundError):
        nc.measure_files(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="matches"):
        nc.measure_files(str(tmp_path / "*.safetensors"))


def test_reports_of_files_are_plain_values(tmp_path):
    H, y, W, b = data()
    write(tmp_path, "npz", H, y, "0")
    assert json.loads(nc.measure_files(tmp_path, W, b).to_json())["num_samples"] == N


def test_two_calls_that_keep_statistics_in_one_folder_are_refused(tmp_path):
    from neuralcollapse._support.files import locked

    for number in range(2):
        np.savez(
            tmp_path / f"{number}.npz", features=np.random.default_rng(number).normal(size=(6, 3)), labels=[0, 1] * 3
        )
    with locked(tmp_path / "keep"), pytest.raises(ValueError, match="is writing here"):
        nc.measure_files(sorted(tmp_path.glob("*.npz")), out=tmp_path / "keep", workers=1)
    nc.measure_files(sorted(tmp_path.glob("*.npz")), out=tmp_path / "keep", workers=1)


def test_a_pt_file_whose_tensors_cannot_be_rebuilt_is_named(tmp_path, monkeypatch):
    torch.save({"features": torch.ones(4, 2), "labels": torch.tensor([0, 1, 0, 1])}, tmp_path / "a.pt")

    def load(*arguments, **options):
        raise TypeError("_rebuild_tensor_v2() missing 2 required positional arguments")

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(ValueError, match=r"a\.pt: not a readable \.pt file: damaged \(_rebuild_tensor_v2"):
        nc.measure_files(tmp_path / "a.pt")


def test_hidden_files_of_a_folder_are_left_alone(tmp_path):
    """Such as those that other programs leave beside what they copy."""
    H, y, _, _ = data()
    write(tmp_path, "npz", H, y, "a")
    (tmp_path / ".a.npz").write_bytes(b"not an archive")
    assert nc.measure_files(tmp_path)["nc1"] == pytest.approx(nc.measure(H, y)["nc1"])
    assert nc.measure_files(str(tmp_path / "*"))["nc1"] == pytest.approx(nc.measure(H, y)["nc1"])


def test_labels_with_gaps_are_counted_as_in_memory(tmp_path):
    """The shards' different labels were taken for their samples, and present_only=True was advised and refused."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 7, 50_000], 40)
    H = rng.normal(size=(120, 5)) + y[:, None] % 11
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", features=H[number::2], labels=y[number::2])
    expected = nc.measure(H, y, metrics=["nc1", "cdnv"], present_only=True)
    found = nc.measure_files(tmp_path, workers=1, metrics=["nc1", "cdnv"], present_only=True)
    assert found.nc1 == pytest.approx(expected.nc1, rel=1e-9)
    assert found.cdnv == pytest.approx(expected.cdnv, rel=1e-9)
    assert found.per_class.names == expected.per_class.names == ("0", "7", "50000")
    with pytest.raises(ValueError, match="labels go up to 50000 in 120 samples"):
        nc.measure_files(tmp_path, workers=1)
    few = np.where(y == 50_000, 1500, y)
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", features=H[number::2], labels=few[number::2])
    reports = [nc.measure(H, few, metrics=["nc1"]), nc.measure_files(tmp_path, workers=1, metrics=["nc1"])]
    assert [report.num_classes for report in reports] == [1501, 1501]
    assert reports[0].reasons == reports[1].reasons
