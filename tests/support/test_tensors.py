"""Files of tensors: the same bytes whenever they are written, and no damage is believed."""

import random

import pytest
import torch
from safetensors.torch import load_file, save_file

import neuralcollapse as nc
from neuralcollapse._support.tensors import read_tensors, write_tensors

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


def sample() -> dict[str, torch.Tensor]:
    values = torch.arange(6).reshape(2, 3)
    parts = {str(dtype).removeprefix("torch."): values.to(dtype) for dtype in DTYPES}
    return parts | {"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 3), "turned": values.T.double()}


def test_another_reader_finds_what_was_written(tmp_path):
    write_tensors(tmp_path / "a.safetensors", sample(), {"kind": "test"})
    found = load_file(tmp_path / "a.safetensors")
    assert found.keys() == sample().keys()
    for name, tensor in sample().items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    tensors, notes = read_tensors(tmp_path / "a.safetensors")
    assert notes == {"kind": "test"}
    assert all(torch.equal(tensors[name], tensor) for name, tensor in sample().items())


def test_the_bytes_depend_on_the_content_alone(tmp_path):
    for name, order in (("one", "xyzw"), ("two", "wzyx"), ("three", "ywxz")):
        tensors = {key: torch.full((2,), float(ord(key))) for key in order}
        write_tensors(tmp_path / name, tensors, {key: key for key in order})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() == (tmp_path / "three").read_bytes()


def test_what_is_written_without_a_checksum_is_read(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "plain.safetensors", {"note": "x"})
    tensors, notes = read_tensors(tmp_path / "plain.safetensors")
    assert torch.equal(tensors["a"], torch.ones(2))
    assert notes == {"note": "x"}


@pytest.mark.parametrize("kind", ["statistics", "point", "report", "second"])
def test_every_changed_byte_is_noticed(tmp_path, kind):
    """One byte at a time: the file is refused by name, or what it says is the same (a byte that means nothing)."""
    features, labels = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
    statistics = nc.ClassStatistics(3, 3)
    statistics.update(features, labels)
    file = tmp_path / "file"
    if kind == "statistics":
        statistics.save(file)

        def read():
            return {name: tensor.tolist() for name, tensor in nc.ClassStatistics.load(file).state().items()}

    elif kind == "second":
        second = statistics.second_pass(metrics=["nc1", "numerical_rank"])
        second.update(features, labels)
        second.save(file)

        def read():
            merged = statistics.second_pass(metrics=["nc1", "numerical_rank"])
            merged.merge(nc.metrics.SecondPass.load(file))
            return merged.report().to_dict()

    elif kind == "point":
        problem = nc.ufm.RegularizedUFM("ce", 3, 2, 4, 0.01, 0.01)
        nc.ufm.save_point(file, problem.random_point(0), {"problem": problem.to_json()})

        def read():
            point, notes = nc.ufm.load_point(file)
            return [block.tolist() for block in point.blocks], notes.get("problem")

    else:
        nc.measure(features, labels).save(file)

        def read():
            return nc.CollapseReport.load(file).to_dict()

    good, expected = file.read_bytes(), read()
    randomly = random.Random(0)
    lines: list[str] = []
    for _ in range(150):
        content = bytearray(good)
        content[randomly.randrange(len(content))] ^= 1 << randomly.randrange(8)
        file.write_bytes(bytes(content))
        try:
            assert read() == expected
        except ValueError as error:
            lines.append(str(error))
    assert len(lines) > 120
    assert all(str(file) in line and "\n" not in line for line in lines)
