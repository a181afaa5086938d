"""``neuralcollapse measure`` on files of every kind, good and bad."""

import json
import pickle
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import neuralcollapse as nc
from neuralcollapse.cli import main
from neuralcollapse.cli.measure import _bytes_in_words


def arrays():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 80)
    H = (rng.normal(size=(4, 6))[y] + 0.2 * rng.normal(size=(80, 6))).astype(np.float32)
    return {"features": H, "labels": y, "weight": rng.normal(size=(4, 6)), "bias": rng.normal(size=4)}


def expected():
    parts = {name: torch.tensor(value) for name, value in arrays().items()}
    return nc.measure(**parts).to_dict()


def output(capsys, *arguments):
    assert main(["measure", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def complaint(capsys, *arguments):
    assert main(["measure", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("neuralcollapse: error: ")
    return captured.err


def test_json_of_every_kind_of_file(tmp_path, capsys):
    parts = arrays()
    np.savez(tmp_path / "a.npz", **parts)
    np.savez_compressed(tmp_path / "c.npz", **parts)
    save_file({name: torch.tensor(value) for name, value in parts.items()}, tmp_path / "a.safetensors")
    for name, value in parts.items():
        np.save(tmp_path / f"{name}.npy", value)
    want = expected()
    for file in ("a.npz", "c.npz", "a.safetensors"):
        assert json.loads(output(capsys, tmp_path / file, "--json")) == want
    files = [tmp_path / f"{name}.npy" for name in parts]
    assert json.loads(output(capsys, *files, "--json")) == want
    short = json.loads(output(capsys, *files[:2], "--json"))
    assert short["nc1"] == want["nc1"]
    assert short["nc2"] is None
    assert "classifier" in short["reasons"]["nc2"]
    fortran = np.asfortranarray(parts["features"])
    np.savez(tmp_path / "f.npz", **(parts | {"features": fortran}))
    assert json.loads(output(capsys, tmp_path / "f.npz", "--json"))["nc1"] == pytest.approx(want["nc1"])


def test_options(tmp_path, capsys):
    parts = arrays()
    np.savez(tmp_path / "a.npz", **parts, out_of_distribution=np.ones((3, 6)))
    chosen = json.loads(output(capsys, tmp_path / "a.npz", "--json", "--metrics", "nc1, nc5_ood", "--passes", 2))
    assert list(chosen)[:2] == ["nc1", "nc5_ood"]
    outside = nc.measure(*(parts[name] for name in ("features", "labels", "weight", "bias")), metrics="nc5_ood",
                         out_of_distribution=np.ones((3, 6)))  # fmt: skip
    assert chosen["nc5_ood"] == pytest.approx(outside["nc5_ood"])
    del parts["weight"], parts["bias"]
    np.savez(tmp_path / "b.npz", **(parts | {"labels": np.where(parts["labels"] == 1, 3, parts["labels"])}))
    absent = json.loads(output(capsys, tmp_path / "b.npz", "--json"))
    assert absent["nc1"] is None
    assert "class 1 has no samples" in absent["reasons"]["nc1"]
    present = json.loads(output(capsys, tmp_path / "b.npz", "--json", "--present-only"))
    three = np.unique(np.where(parts["labels"] == 1, 3, parts["labels"]), return_inverse=True)[1]
    assert present["nc1"] == pytest.approx(nc.measure(parts["features"], three, metrics="nc1").nc1)
    more = json.loads(output(capsys, tmp_path / "b.npz", "--json", "--classes", 9, "--global-mean", "classes"))
    assert more["num_classes"] == 9
    ignored = json.loads(output(capsys, tmp_path / "b.npz", "--json", "--ignore-label", 3, "--classes", 4))
    assert ignored["num_samples"] < present["num_samples"]
    assert (
        json.loads(output(capsys, tmp_path / "b.npz", "--json", "--memory-limit", 0, "--metrics", "all"))["vci"] is None
    )


def test_table_layers_and_page(tmp_path, capsys):
    parts = arrays()
    H = torch.tensor(parts["features"])
    layered = {"features.first": H, "features.<deep>": H * 2 + 1, "labels": torch.tensor(parts["labels"])}
    save_file(layered, tmp_path / "l.safetensors")
    page = tmp_path / "out" / "report.html"
    text = output(capsys, tmp_path / "l.safetensors", "--layers", "--out", page)
    assert "first" in text
    assert "NC1" in text
    written = page.read_text()
    assert "&lt;deep&gt;" in written
    assert "<td>nc1</td>" in written
    assert written.count("<svg") == 2
    assert "prefers-color-scheme: dark" in written
    ids = re.findall(r' id="([^"]+)"', written)
    assert len(ids) == len(set(ids))
    values = json.loads(output(capsys, tmp_path / "l.safetensors", "--layers", "--json"))["layers"]
    assert set(values) == {"first", "<deep>"}
    assert values["first"]["nc1"] == pytest.approx(values["<deep>"]["nc1"], rel=1e-4)


def test_layers_are_read_as_features_are(tmp_path, capsys):
    """Text for labels, the file's own precision, samples without a label; what is for shards is refused."""
    parts = arrays()
    features, labels = parts["features"], parts["labels"].copy()
    words = np.array([f"class {label}" for label in labels])
    np.savez(tmp_path / "plain.npz", features=features, labels=words)
    np.savez(tmp_path / "text.npz", **{"features.late": features}, y=words)
    plain = json.loads(output(capsys, tmp_path / "plain.npz", "--json"))
    assert json.loads(output(capsys, tmp_path / "text.npz", "--layers", "--json"))["layers"]["late"] == plain
    labels[::3] = -100
    tensors = {"features.a": torch.tensor(features).float(), "labels": torch.tensor(labels)}
    save_file(tensors, tmp_path / "l.safetensors", {"precision": "bfloat16"})
    found = json.loads(output(capsys, tmp_path / "l.safetensors", "--layers", "--json"))["layers"]["a"]
    named = json.loads(output(capsys, tmp_path / "l.safetensors", "--layers", "--json", "--precision", "bfloat16"))
    assert found == named["layers"]["a"]
    assert found["num_samples"] == int((labels >= 0).sum())
    for option in (("--keep", tmp_path / "kept"), ("--engine", "ray"), ("--workers", 2)):
        assert f"{option[0]}" in complaint(capsys, tmp_path / "text.npz", "--layers", *option)


def test_options_that_saved_statistics_cannot_follow_are_refused(tmp_path, capsys):
    parts = arrays()
    statistics = nc.ClassStatistics(4, 6)
    statistics.update(parts["features"], parts["labels"])
    statistics.save(tmp_path / "sums.safetensors")
    assert json.loads(output(capsys, tmp_path, "--json", "--classes", 4))["nc1"] == statistics.report().nc1
    for name, option in (
        ("num_classes", ("--classes", 5)),
        ("passes", ("--passes", 2)),
        ("precision", ("--precision", "bfloat16")),
        ("ignore_label", ("--ignore-label", 3)),
        ("workers", ("--workers", 2)),
    ):
        assert name in complaint(capsys, tmp_path, *option)


class Evil:
    def __reduce__(self):
        raise AssertionError("a file from outside was executed")


def test_bad_files_give_one_line_and_are_never_executed(tmp_path, capsys):
    parts = arrays()
    good = tmp_path / "a.npz"
    np.savez(good, **parts)
    raw = good.read_bytes()
    for size in (0, 10, 200, len(raw) // 2, len(raw) - 30):
        bad = tmp_path / "bad.npz"
        bad.write_bytes(raw[:size])
        assert "bad.npz" in complaint(capsys, bad)
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00garbage")
    assert "bad.npy" in complaint(capsys, tmp_path / "bad.npy", tmp_path / "bad.npy")
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 64)
    assert "bad.safetensors" in complaint(capsys, tmp_path / "bad.safetensors")
    pickled = np.array([pickle.dumps(1), None], dtype=object)
    np.savez(tmp_path / "object.npz", features=pickled, labels=parts["labels"])
    assert "objects" in complaint(capsys, tmp_path / "object.npz")
    assert "no such file" in complaint(capsys, tmp_path / "none.npz")
    assert "expected a .npz" in complaint(capsys, tmp_path / "a.csv")
    assert "needs a file" in complaint(capsys)
    for number in range(5):
        np.save(tmp_path / f"{number}.npy", parts["features"])
    assert "two to four" in complaint(capsys, *(tmp_path / f"{number}.npy" for number in range(5)))
    assert "--layers takes one file" in complaint(capsys, good, good, "--layers")
    assert "intervals must be" in complaint(capsys, good, "--intervals", 2)
    assert "engine" in complaint(capsys, good, "--engine", "cloud")
    np.savez(tmp_path / "no.npz", features=parts["features"])
    assert "no array 'labels'" in complaint(capsys, tmp_path / "no.npz")
    assert "features.NAME" in complaint(capsys, good, "--layers")
    assert "nc99" in complaint(capsys, good, "--metrics", "nc99")
    for wrong in ("-1", "1e300", "much", "4XB", "1e", "nan"):
        assert "--memory-limit must be" in complaint(capsys, good, "--memory-limit", wrong)
    np.savez(tmp_path / "nan.npz", **(parts | {"features": parts["features"] * np.nan}))
    assert "80 of 80 rows" in complaint(capsys, tmp_path / "nan.npz")
    np.savez(tmp_path / "range.npz", **(parts | {"labels": parts["labels"] + 1}))
    assert "label 4" in complaint(capsys, tmp_path / "range.npz")


def test_a_mapped_file_is_read_in_chunks(tmp_path, capsys, monkeypatch):
    """No read asks for more than a chunk of rows, in a file of many chunks."""
    from neuralcollapse.metrics import inputs as _inputs

    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 20_000)
    np.savez(tmp_path / "big.npz", features=rng.normal(size=(20_000, 300)).astype(np.float32), labels=y)
    sizes = []
    plain = _inputs.FeatureRows.slice

    def spy(self, start, stop):
        assert isinstance(self._values, np.memmap)
        sizes.append(stop - start)
        return plain(self, start, stop)

    monkeypatch.setattr(_inputs.FeatureRows, "slice", spy)
    output(capsys, tmp_path / "big.npz", "--json", "--metrics", "nc1,cdnv")
    assert max(sizes) <= 4096
    assert sum(sizes) == 2 * 20_000


def test_shards_intervals_and_a_summary_of_twelve_lines(tmp_path, capsys, monkeypatch):
    parts = arrays()
    folder = tmp_path / "shards"
    folder.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(80), 2)):
        part = {"X": parts["features"][rows], "y": parts["labels"][rows]}
        np.savez(folder / f"{number}.npz", **part)
    np.savez(folder / "head.npz", weight=parts["weight"], bias=parts["bias"])
    want = expected()
    options = ("--workers", 1, "--intervals", 0.9, "--groups", 4, "--json")
    found = json.loads(output(capsys, folder, *options))
    assert found["nc1"] == pytest.approx(want["nc1"])
    assert found["nc4_mismatch"] == want["nc4_mismatch"]
    low, high = found["intervals"]["nc1"]
    assert low < found["nc1"] < high
    assert json.loads(output(capsys, str(folder / "*.npz"), "--workers", 1, "--json"))["nc1"] == pytest.approx(
        want["nc1"]
    )
    kept = tmp_path / "kept"
    for _ in range(2):
        assert json.loads(output(capsys, folder, "--workers", 1, "--keep", kept, "--json"))["nc1"] == pytest.approx(
            want["nc1"]
        )
    assert len(list(kept.iterdir())) == 4
    for width in (80, 50):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = output(capsys, folder, "--workers", 1).rstrip().split("\n")
        assert lines[0].startswith("Neural collapse: ")
        assert len(lines) <= 13
        assert max(len(line) for line in lines) <= width
    assert "nc2_floor" in output(capsys, folder, "--workers", 1, "--all")
    monkeypatch.setenv("COLUMNS", "120")
    assert "definition" in output(capsys, folder, "--workers", 1, "--all")
    assert set(json.loads(output(capsys, folder, "--workers", 1, "--json", "--metrics", "all"))) > set(
        nc.metrics.METRICS
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("500", 500), ("4GB", 4 * 10**9), ("1 GiB", 2**30), ("1.5e3M", 1_500_000_000), ("2kb", 2000)],
)
def test_the_memory_limit_has_units(text, size):
    assert _bytes_in_words(text) == size


def test_the_old_name_of_the_memory_limit_works_and_says_so(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", **arrays())
    assert main(["measure", str(tmp_path / "a.npz"), "--json", "--memory", "0", "--metrics", "all"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["vci"] is None
    assert "--memory is called --memory-limit now" in said.err
