"""Statistics over several processes: gloo runs with uneven shards and a rank that misses classes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import distributed_worker
import neuralcollapse as nc

WORKER = Path(distributed_worker.__file__)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-W", "ignore", str(WORKER), str(folder), "2", "4", "uneven2", "uneven3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("world", [2, 4])
def test_processes_change_no_metric(world, runs):
    H, y, W, b = distributed_worker.data()
    statistics = nc.ClassStatistics(distributed_worker.K, distributed_worker.D)
    statistics.update(H, y)
    second = statistics.second_pass(W, b, metrics="all")
    second.update(H, y)
    expected = second.report()
    sizes = []
    for rank in range(world):
        result = json.loads((runs / str(world) / f"{rank}.json").read_text())
        assert result["reductions"] == 2
        assert result["local"] == result["share"]
        assert result["margins"] == distributed_worker.N
        sizes.append(result["share"])
        for name, value in expected.scalars.items():
            assert result["report"][name] == pytest.approx(value, rel=1e-10), name
        for name in ("nc1", "nc1_quotient"):
            assert result["two"][name] == pytest.approx(expected[name], rel=1e-10), name
        assert {"nc1", "vci", "cdnv", "nc2", "nc3", "nc4_bias"} <= set(result["torchmetrics"])
        for name, value in result["torchmetrics"].items():
            assert value == pytest.approx(expected[name], rel=1e-10), name
            assert result["torchmetrics_again"][name] == pytest.approx(expected[name], rel=1e-10), name
    assert sum(sizes) == distributed_worker.N
    assert len(set(sizes)) > 1


@pytest.mark.parametrize("world", [2, 3])
def test_a_rank_without_data_and_a_class_on_one_rank_only(world, runs):
    """Also classes smaller and larger than d, whose rows and Gram matrices meet; two passes; min_samples."""
    H, y, W, b = distributed_worker.uneven_data()
    for key, options in distributed_worker.UNEVEN.items():
        passes, selection = options
        statistics = nc.ClassStatistics(distributed_worker.K, H.shape[1], passes=passes)
        statistics.update(H, y)
        second = statistics.second_pass(W, b, metrics="all", **selection)
        second.update(H, y)
        expected = second.report()
        assert {"nc1", "numerical_rank", "cosine_margin", "nc4_mismatch", "cdnv"} <= set(expected.scalars)
        for rank in range(world):
            result = json.loads((runs / f"uneven{world}" / f"{rank}.json").read_text())
            assert set(result[key]["reasons"]) == set(expected.reasons)
            for name, value in expected.scalars.items():
                assert result[key][name] == pytest.approx(value, rel=1e-10), (key, name)
            assert result["margins"] == len(y)
            assert result["precision"] == "torch.float32"


def test_states_go_to_the_device_of_a_group_without_cpu(monkeypatch):
    from torch import distributed

    from neuralcollapse.metrics import processes

    monkeypatch.setattr(distributed, "get_backend_config", lambda group=None: "cpu:gloo,cuda:nccl")
    assert processes._device_of(None).type == "cpu"
    monkeypatch.setattr(distributed, "get_backend_config", lambda group=None: "cuda:nccl")
    monkeypatch.setattr("torch.cuda.current_device", lambda: 1)
    assert str(processes._device_of(None)) == "cuda:1"
