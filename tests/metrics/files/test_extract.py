"""Features of a model in shards: the same numbers, whole files, and going on after an interruption."""

import json
import re
import shutil
from contextlib import nullcontext

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuralcollapse as nc


def setting():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(90, 5, generator=generator)
    y = torch.arange(90) % 3
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))
    return model, x, y


def test_shards_hold_what_measure_model_sees(tmp_path):
    model, x, y = setting()
    loader = DataLoader(TensorDataset(x, y), batch_size=10)
    files = nc.extract(model, loader, tmp_path / "f", shard_bytes=8 * 4 * 25)
    assert [file.name for file in files] == [
        "shard-00000.safetensors",
        "shard-00001.safetensors",
        "shard-00002.safetensors",
    ]
    parts = [load_file(file) for file in files]
    model.eval()
    with torch.no_grad():
        expected = torch.cat([model[:-1](part) for part in x.split(10)])
    assert torch.allclose(torch.cat([part["features"] for part in parts]), expected, rtol=1e-6, atol=1e-7)
    assert torch.equal(torch.cat([part["labels"] for part in parts]), y)
    model.train()
    report, live = nc.measure_files(tmp_path / "f", workers=1), nc.measure_model(model, loader)
    assert model.training
    for name, value in live.scalars.items():
        assert report[name] == pytest.approx(value, rel=1e-6), name
    assert report.accuracy == live.accuracy
    content = json.loads((tmp_path / "f" / "extract.json").read_text())
    assert content["classifier"] == "3"
    assert [shard["rows"] for shard in content["shards"]] == [30, 30, 30]


def test_an_interrupted_extraction_goes_on(tmp_path):
    model, x, y = setting()
    batches = list(zip(x.split(10), y.split(10), strict=True))
    calls = []

    def forward(model, batch):
        if len(calls) == 5 and "stop" not in calls:
            calls.append("stop")
            raise KeyboardInterrupt
        calls.append(batch[1])
        model(batch[0])
        return batch[1]

    options = {"forward": forward, "shard_bytes": 8 * 4 * 15}
    with pytest.raises(KeyboardInterrupt):
        nc.extract(model, batches, tmp_path / "f", **options)
    assert len(list((tmp_path / "f").glob("shard-*"))) == 2
    files = nc.extract(model, batches, tmp_path / "f", **options)
    # Four batches were in whole shards: the fifth runs again, and the head is looked for once more at most.
    assert len(calls) <= 5 + 1 + 5 + 2
    labels = torch.cat([load_file(file)["labels"] for file in files])
    assert torch.equal(labels, y)
    straight = nc.extract(model, batches, tmp_path / "g", shard_bytes=8 * 4 * 15)
    for one, two in zip(files, straight, strict=True):
        first, second = load_file(one), load_file(two)
        assert torch.equal(first["features"], second["features"])
    # Before the first shard is whole there is nothing but the classifier: that is no reason to refuse the folder.
    calls[:] = [0] * 5
    with pytest.raises(KeyboardInterrupt):
        nc.extract(model, batches, tmp_path / "h", forward=forward)
    (only,) = nc.extract(model, batches, tmp_path / "h", forward=forward)
    assert load_file(only)["labels"].shape == (90,)
    before = len(calls)
    assert nc.extract(model, batches, tmp_path / "f", **options) == files
    assert len(calls) == before


def test_batches_without_samples_are_passed_over(tmp_path):
    model, x, y = setting()
    (file,) = nc.extract(model, [(x[:0], y[:0]), (x, y), (x[:0], y[:0])], tmp_path / "f")
    (whole,) = nc.extract(model, [(x, y)], tmp_path / "g")
    assert torch.equal(load_file(file)["features"], load_file(whole)["features"])
    assert [json.loads((tmp_path / f / "extract.json").read_text())["shards"][0]["rows"] for f in "fg"] == [90, 90]


def test_precision_ignored_labels_and_layers(tmp_path):
    model, x, y = setting()
    y = torch.where(torch.arange(90) < 7, -100, y)
    (file,) = nc.extract(model, [(x, y)], tmp_path / "f", dtype=torch.float16, layer="3")
    part = load_file(file)
    assert part["features"].dtype == torch.float16
    assert part["labels"].shape == (83,)
    (file,) = nc.extract(model, TensorDataset(x, y), tmp_path / "first", layer="0")
    assert load_file(file)["features"].shape == (83, 5)


@pytest.mark.unchecked
def test_bad_folders_are_named(tmp_path):
    model, x, y = setting()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"full is not empty and holds no extract\.json"):
        nc.extract(model, [(x, y)], tmp_path / "full")
    nc.extract(model, [(x, y)], tmp_path / "f")
    with pytest.raises(ValueError, match="holds features of layer = None, not 0"):
        nc.extract(model, [(x, y)], tmp_path / "f", layer="0")
    (tmp_path / "f" / "extract.json").write_text("{")
    with pytest.raises(ValueError, match=r"extract\.json is damaged"):
        nc.extract(model, [(x, y)], tmp_path / "f")
    with pytest.raises(ValueError, match="no batches"):
        nc.extract(model, [], tmp_path / "g")
    with pytest.raises(TypeError, match="dtype must be one of"):
        nc.extract(model, [(x, y)], tmp_path / "h", dtype=torch.int64)


def test_lost_and_damaged_files_are_made_again_with_a_warning(tmp_path):
    model, x, y = setting()
    batches = [(x[i : i + 10], y[i : i + 10]) for i in range(0, len(x), 10)]
    nc.extract(model, batches, tmp_path / "whole", shard_bytes=100)
    whole = {file.name: file.read_bytes() for file in (tmp_path / "whole").iterdir()}
    assert len(whole) > 4
    for number, name in enumerate(sorted(whole)):
        if name == "extract.json":
            continue
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        file = folder / name
        if number % 2:
            file.unlink()
        else:
            file.write_bytes(whole[name][:-1] + bytes([whole[name][-1] ^ 1]))
        with pytest.raises(ValueError, match=re.escape(str(file))) if number % 2 == 0 else nullcontext():
            nc.measure_files([file], num_classes=3) if file.exists() else None
        with pytest.warns(UserWarning, match=f"{name}.*made again"):
            nc.extract(model, batches, folder, shard_bytes=100)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == whole


def test_two_extractions_into_one_folder_are_refused(tmp_path):
    model, x, y = setting()

    def batches():
        yield x[:10], y[:10]
        with pytest.raises(ValueError, match="is writing here"):
            nc.extract(model, [(x, y)], tmp_path / "f")
        yield x[10:], y[10:]

    nc.extract(model, batches(), tmp_path / "f")


def test_a_shard_that_lost_its_checksum_is_made_again(tmp_path):
    model, x, y = setting()
    loader = DataLoader(TensorDataset(x, y), batch_size=10)
    files = nc.extract(model, loader, tmp_path / "f", shard_bytes=8 * 4 * 25)
    whole = files[1].read_bytes()
    tensors = load_file(files[1])
    save_file({**tensors, "features": tensors["features"] + 1}, files[1])  # another writer's: no checksum
    content = json.loads((tmp_path / "f" / "extract.json").read_text())
    with pytest.warns(UserWarning, match="shard-00001.safetensors: damaged: its checksum is missing; it is made again"):
        nc.extract(model, loader, tmp_path / "f", shard_bytes=8 * 4 * 25)
    assert files[1].read_bytes() == whole
    del content["checksum"]
    (tmp_path / "f" / "extract.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"extract\.json"):
        nc.extract(model, loader, tmp_path / "f", shard_bytes=8 * 4 * 25)
