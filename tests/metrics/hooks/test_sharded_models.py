"""Classifiers whose weight lies on several processes, whole only while their layer runs."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import naive
import neuralcollapse as nc
import sharded_worker


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    command = [sys.executable, "-W", "ignore", str(Path(sharded_worker.__file__)), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def truth_of(model, x, y, weight, bias):
    with torch.no_grad():
        parts = [part.double().numpy() for part in (model.body(x), weight, bias)]
    return naive.all_metrics(parts[0], y.numpy(), parts[1], parts[2])


@pytest.mark.parametrize("way", sharded_worker.WAYS)
def test_all_ranks_have_the_whole_weight(way, runs):
    model = sharded_worker.Net(adapted=way == "adapted")
    head = model.head.base_layer if way == "adapted" else model.head
    weight = head.weight + (model.head.up.weight @ model.head.down.weight if way == "adapted" else 0)
    truth = truth_of(model, *sharded_worker.data(), weight, head.bias)
    for result in runs:
        assert result[way]["layer"] == "head"
        assert result[way]["num_samples"] == sharded_worker.N
        for name in sharded_worker.METRICS:
            assert result[way][name] == pytest.approx(truth[name], rel=2e-4, abs=1e-6), name


class Uncopied(nn.Sequential):
    """A part as large models have them, of which a second one must never be made."""

    def __deepcopy__(self, memo):
        raise AssertionError("the body was copied")


def test_asking_an_adapted_head_for_its_weight_copies_no_more_than_the_head():
    model = sharded_worker.Net(adapted=True)
    model.body = Uncopied(*model.body)
    # As libraries that move parameters about do it.
    model.register_forward_hook(functools.partial(lambda whole, module, inputs, output: None, model))
    x, y = sharded_worker.data()
    report = nc.measure_model(model, [(x, y)], metrics=sharded_worker.METRICS)
    head = model.head
    truth = truth_of(model, x, y, head.base_layer.weight + head.up.weight @ head.down.weight, head.base_layer.bias)
    for name in sharded_worker.METRICS:
        assert report[name] == pytest.approx(truth[name], rel=2e-4, abs=1e-6), name
