"""Features in files keep the rounding that they were computed or stored with; a NaN is told where it came."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import neuralcollapse as nc
from neuralcollapse.cli import main

K, D, N, RANK = 12, 32, 1200, 4


def flat_features(dtype):
    """Features on RANK directions beside a large offset, rounded: the other directions hold rounding errors only."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(N) % K
    means = torch.randn(K, RANK, generator=generator, dtype=torch.float64)
    inner = means[labels] + 0.3 * torch.randn(N, RANK, generator=generator, dtype=torch.float64)
    mix = torch.linalg.qr(torch.randn(D, RANK, generator=generator, dtype=torch.float64)).Q
    return (inner @ mix.T + 3.0).to(dtype), labels, inner


def truth_of(inner, labels):
    """nc1 in the RANK coordinates, by its definition in float64."""
    means = torch.stack([inner[labels == k].mean(0) for k in range(K)])
    within = sum((inner[labels == k] - means[k]).T @ (inner[labels == k] - means[k]) for k in range(K)) / N
    centred = means - inner.mean(0)
    return float(torch.trace(within @ torch.linalg.inv(centred.T @ centred / K))) / K


def printed(capsys, *arguments):
    assert main(["measure", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_half_precision_in_files_is_seen(tmp_path, capsys, shards, suffix):
    features, labels, inner = flat_features(torch.float16)
    if suffix == "npy":
        np.save(tmp_path / "features.npy", features.numpy())
        np.save(tmp_path / "labels.npy", labels.numpy())
        files = [tmp_path / "features.npy", tmp_path / "labels.npy"]
    else:
        files = [tmp_path / f"{number}.npz" for number in range(shards)]
        for number, file in enumerate(files):
            np.savez(file, features=features[number::shards].numpy(), labels=labels[number::shards].numpy())
    found = printed(capsys, *files, "--metrics", "nc1")
    assert found["nc1"] == pytest.approx(truth_of(inner, labels), rel=0.02)
    assert found["rank"] == RANK


@pytest.mark.parametrize("shards", [1, 2])
def test_a_stated_precision(tmp_path, capsys, shards):
    features, labels, inner = flat_features(torch.bfloat16)
    files = [tmp_path / f"{number}.npz" for number in range(shards)]
    for number, file in enumerate(files):
        np.savez(file, features=features[number::shards].float().numpy(), labels=labels[number::shards].numpy())
    blind, told = (printed(capsys, *files, "--metrics", "nc1", *more) for more in ([], ["--precision", "bfloat16"]))
    truth = truth_of(inner, labels)
    assert blind["nc1"] > 2 * truth
    assert told["nc1"] == pytest.approx(truth, rel=0.1)
    assert told["rank"] == RANK


def test_a_precision_that_is_none(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", features=np.ones((4, 2)), labels=np.arange(4) % 2)
    assert main(["measure", str(tmp_path / "a.npz"), "--precision", "half"]) == 2
    assert "precision" in capsys.readouterr().err


def test_a_nan_is_told_at_its_batch():
    seen = []

    def batches():
        for number in range(5):
            seen.append(number)
            x = torch.randn(8, 3)
            x[0] = torch.nan if number == 2 else 0.0
            yield x, torch.arange(8) % 2

    with pytest.raises(ValueError, match="1 of 8 rows hold NaN"):
        nc.measure_model(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), batches())
    assert seen == [0, 1, 2]


def test_a_nan_that_is_ignored_is_no_error():
    x, y = torch.randn(8, 3), torch.arange(8) % 2
    x[0], y[0] = torch.nan, -100
    report = nc.measure_model(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), [(x, y)])
    assert report.num_samples == 7
