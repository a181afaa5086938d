"""Statistics over several processes: gloo runs with uneven shards and a rank that misses classes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import neuralcollapse as nc

sys.path.insert(0, str(Path(__file__).parent))
import distributed_worker

WORKER = Path(__file__).parent / "distributed_worker.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-W", "ignore", str(WORKER), str(folder), "2", "4"]
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
            if name != "numerical_rank":
                assert result["report"][name] == pytest.approx(value, rel=1e-10), name
        assert "whole classes in one place" in result["report"]["reasons"]["numerical_rank"]
        for name in ("nc1", "nc1_quotient"):
            assert result["two"][name] == pytest.approx(expected[name], rel=1e-10), name
        assert {"nc1", "vci", "cdnv", "nc2", "nc3", "nc4_bias"} <= set(result["torchmetrics"])
        for name, value in result["torchmetrics"].items():
            assert value == pytest.approx(expected[name], rel=1e-10), name
            assert result["torchmetrics_again"][name] == pytest.approx(expected[name], rel=1e-10), name
    assert sum(sizes) == distributed_worker.N
    assert len(set(sizes)) > 1
