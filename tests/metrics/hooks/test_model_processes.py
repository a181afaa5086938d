"""``measure_model`` over several processes: one report on all samples, whatever shares the processes have."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import model_worker
import naive

WORKER = Path(model_worker.__file__)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(WORKER), str(folder), "2", "3"],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def truth():
    model, (x, y) = model_worker.network(), model_worker.data()
    features = model[:2](x).detach().numpy()
    weight, bias = model[2].weight.detach().numpy(), model[2].bias.detach().numpy()
    return naive.all_metrics(features, y.numpy(), weight, bias)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("way", ["sampler", "batch sampler", "stream", "shards", "shards stream", "group", "wrapped"])
def test_all_ranks_have_the_report_on_all_samples(world, way, runs, truth):
    for rank in range(world):
        found = json.loads((runs / str(world) / f"{rank}.json").read_text())[way]
        # The distributed sampler repeats samples to even out the shares; they count once.
        assert found["num_samples"] == found["margins"] == model_worker.N
        for name in model_worker.METRICS:
            assert found[name] == pytest.approx(truth[name], rel=1e-10, abs=1e-12), name
        assert not any("process" in note for note in found["notes"])
        assert found["layer"] == "2"


@pytest.mark.parametrize("world", [2, 3])
def test_a_share_says_that_it_is_one(world, runs):
    sizes = []
    for rank in range(world):
        result = json.loads((runs / str(world) / f"{rank}.json").read_text())
        sizes.append(result["alone"]["num_samples"])
        assert any(f"process {rank} of {world} only; reduce=True" in note for note in result["alone"]["notes"])
        assert result["plain loader"]["num_samples"] == model_worker.N
        assert any("reduce=True" in note for note in result["plain loader"]["notes"])
    assert sum(sizes) >= model_worker.N


@pytest.mark.parametrize("world", [2, 3])
def test_an_error_in_one_process_is_raised_in_all(world, runs):
    for rank in range(world):
        error = json.loads((runs / str(world) / f"{rank}.json").read_text())["error"]
        assert "must be finite" in error
        assert ("in process 0" in error) == (rank != 0)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("way", ["layers", "layers stream"])
def test_layers_are_measured_on_all_samples(world, way, runs):
    model, (x, y) = model_worker.network(), model_worker.data()
    truths = {}
    for name, part in (("0", model[:1]), ("1", model[:2])):
        head = model[2].weight.detach().numpy(), model[2].bias.detach().numpy()
        truths[name] = naive.all_metrics(part(x).detach().numpy(), y.numpy(), *head)
    for rank in range(world):
        found = json.loads((runs / str(world) / f"{rank}.json").read_text())
        for reports in found[way]:
            for layer, report in reports.items():
                assert report["num_samples"] == model_worker.N
                assert report["layer"] == layer
                for name in ("nc1", "cdnv"):
                    assert report[name] == pytest.approx(truths[layer][name], rel=1e-10), (layer, name)
                assert not any("process" in note for note in report["notes"])
        assert found["layers alone"]["num_samples"] < model_worker.N
        assert any("reduce=True" in note for note in found["layers alone"]["notes"])


@pytest.mark.parametrize("world", [2, 3])
def test_intervals_are_the_same_in_all_processes_and_hold_the_value(world, runs, truth):
    found = [json.loads((runs / str(world) / f"{rank}.json").read_text())["intervals"] for rank in range(world)]
    assert {"nc1", "nc1_quotient", "nc4_mismatch", "cosine_margin"} <= set(found[0])
    for other in found[1:]:
        assert set(other) == set(found[0])
        for name, bounds in other.items():
            assert bounds == pytest.approx(found[0][name], rel=1e-9), name
    for name, (low, high) in found[0].items():
        assert low < truth[name] < high, name
