"""2,000 random inputs: a right answer or one clear error, no crash, no NaN, no changed model."""

import json
import math
import random

import numpy as np
import pytest
import torch
from torch import nn

import naive
import neuralcollapse as nc
from neuralcollapse.metrics import METRICS
from neuralcollapse.metrics.files.arrays import open_arrays

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def draw(rng):
    """Features, labels, weight and bias, and whether they are in order."""
    K, d = rng.randint(2, 6), rng.randint(1, 8)
    N = rng.choice([0, 1, 2, K, 3 * K, 10 * K])
    generator = torch.Generator().manual_seed(rng.randint(0, 1 << 30))
    y = torch.randint(0, K, (N,), generator=generator)
    scale = 10.0 ** rng.choice([0, 0, 0, -3, 3, -20, 20])
    H = torch.randn(K, d, generator=generator, dtype=torch.float64)[y]
    H = (H + rng.choice([0, 1e-3, 0.3, 1]) * torch.randn(N, d, generator=generator, dtype=torch.float64)) * scale
    dtype = rng.choice(DTYPES)
    H = H.to(dtype)
    valid = N > 0 and bool(torch.isfinite(H).all())
    W = torch.randn(K, d, generator=generator, dtype=torch.float64) * rng.choice([0, 1, 1, 1])
    b = torch.randn(K, generator=generator, dtype=torch.float64)
    trouble = rng.choice(
        ["none"] * 8 + ["nan", "inf", "range", "negative", "ignored", "length", "integer", "dims", "weight"]
    )
    if trouble in ("nan", "inf") and N:
        H[rng.randrange(N), rng.randrange(d)] = math.nan if trouble == "nan" else -math.inf
        valid = False
    elif trouble == "range" and N:
        y[rng.randrange(N)] = K + rng.randint(0, 3)
        valid = False
    elif trouble == "negative" and N:
        y[rng.randrange(N)] = -1
        valid = False
    elif trouble == "ignored" and N:
        y[rng.randrange(N)] = -100
        valid = valid and bool((y >= 0).any())
    elif trouble == "length":
        y, valid = y[: max(0, N - 1)] if N > 1 else torch.zeros(N + 1, dtype=torch.int64), False
    elif trouble == "integer":
        H, valid = H.nan_to_num(0, 0, 0).clamp(-99, 99).to(torch.int32), False
    elif trouble == "dims":
        H, valid = H[:, :, None], False
    elif trouble == "weight":
        W, valid = W[:-1], False
    form = rng.choice(["plain", "plain", "strided", "transposed", "grad", "numpy", "labels"])
    if form == "strided":
        H = torch.stack([H, H], dim=1)[:, 1] if H.ndim == 2 else H
    elif form == "transposed" and H.ndim == 2:
        H = H.T.contiguous().T
    elif form == "grad" and H.is_floating_point():
        H = H.requires_grad_()
    elif form == "numpy" and H.dtype != torch.bfloat16:
        H = H.numpy()
    elif form == "labels":
        y = y.to(rng.choice([torch.int32, torch.int16, torch.int8]))
    return H, y, W, b, valid


def expect_clear(error, valid):
    """Input that is in order is never refused, and an error is one line."""
    text = str(error)
    assert not valid, text
    assert text
    assert "\n" not in text
    assert len(text) < 400


def check(report):
    json.dumps(report.to_dict(), allow_nan=False)
    for name, value in report.values.items():
        if value is None:
            assert report.reasons[name]
        else:
            metric = METRICS[name]
            slack = 1e-3 * max(1.0, abs(metric.highest)) if math.isfinite(metric.highest) else 0.0
            assert metric.lowest - 1e-3 <= value <= metric.highest + slack, (name, value)


@pytest.mark.unchecked
@pytest.mark.parametrize("part", range(4))
def test_measure_answers_or_says_why_not(part):
    rng = random.Random(part)
    answered = compared = 0
    for _ in range(350):
        H, y, W, b, valid = draw(rng)
        options = {"passes": rng.choice([None, 1, 2]), "global_mean": rng.choice(["samples", "classes"])}
        options["metrics"] = ["nc1", *rng.sample(sorted(METRICS), 5)]
        classifier = rng.random() < 0.7
        try:
            report = nc.measure(
                H, y, W if classifier else None, b if classifier else None, num_classes=len(b), **options
            )
        except (ValueError, TypeError) as error:
            expect_clear(error, valid and "too large" not in str(error))
            continue
        assert valid or not classifier
        answered += 1
        check(report)
        rows = torch.as_tensor(H).detach().double().numpy()
        kept = y.numpy() != -100
        rows, labels = rows[kept], y.numpy()[kept].astype(int)
        if classifier and report.nc1 is not None and np.abs(W.numpy()).max() > 0:
            spread = np.linalg.svd(naive.class_means(rows, labels, len(b)) - rows.mean(0), compute_uv=False)
            spread = spread[spread > 1e-12 * spread[0]]
            if spread[-1] > 1e-3 * spread[0] and 1e-3 < np.abs(rows).max() < 1e3:
                truth = naive.all_metrics(rows, labels, W.numpy(), b.numpy(), global_mean=options["global_mean"])
                for name in ("nc1", "nc1_quotient", "cdnv", "nc3_frobenius", "numerical_rank", "nc4_bias"):
                    if report.values.get(name) is not None:
                        assert report[name] == pytest.approx(truth[name], rel=2e-3, abs=1e-9), name
                        compared += 1
    assert answered > 60
    assert compared > 20


def test_streams_of_random_batches_answer_or_say_why_not():
    rng = random.Random(7)
    for _ in range(250):
        H, y, W, b, valid = draw(rng)
        K, d = len(b), rng.randint(1, 8) if H.ndim != 2 else H.shape[1]
        statistics = nc.ClassStatistics(K, d, passes=rng.choice([1, 2]))
        try:
            for start in range(0, max(1, len(H)), 5):
                statistics.update(H[start : start + 5], y[start : start + 5])
            second = statistics.second_pass(W, b, metrics=["nc1", *rng.sample(sorted(METRICS), 5)])
            second.update(H, y)
            report = second.report()
        except (ValueError, TypeError) as error:
            expect_clear(error, valid)
            continue
        check(report)


@pytest.mark.unchecked
def test_models_are_measured_or_refused_and_never_changed():
    rng = random.Random(11)
    for _ in range(150):
        torch.manual_seed(rng.randint(0, 1000))
        width, K, d = rng.randint(1, 6), rng.randint(2, 4), rng.randint(1, 5)
        model = nn.Sequential(
            nn.Linear(d, width),
            nn.BatchNorm1d(width),
            nn.Dropout(0.3),
            nn.Linear(width, K, bias=rng.random() < 0.5),
        )
        model.train(rng.random() < 0.5)
        x, y = torch.randn(rng.choice([1, 2, 30]), d), None
        y = torch.randint(0, K + (rng.random() < 0.1), (len(x),))
        if rng.random() < 0.1:
            x[0, 0] = math.nan
        batches = [(x[i : i + 7], y[i : i + 7]) for i in range(0, len(x), 7)]
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        modes = [module.training for module in model.modules()]
        try:
            chosen = ["nc1", *rng.sample(sorted(METRICS), 4)]
            check(nc.measure_model(model, batches, memory_limit=rng.choice([0, 1 << 20]), metrics=chosen))
        except (ValueError, TypeError) as error:
            expect_clear(error, False)
        assert [module.training for module in model.modules()] == modes
        assert not any(module._forward_hooks for module in model.modules())
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_damaged_files_are_refused(tmp_path):
    from safetensors.torch import save_file

    rng = random.Random(3)
    parts = {"features": np.random.default_rng(0).normal(size=(6, 3)), "labels": np.arange(6) % 2}
    np.savez(tmp_path / "a.npz", **parts)
    np.savez_compressed(tmp_path / "b.npz", **parts)
    np.save(tmp_path / "a.npy", parts["features"])
    save_file({name: torch.tensor(value) for name, value in parts.items()}, tmp_path / "a.safetensors")
    originals = {file: file.read_bytes() for file in sorted(tmp_path.iterdir())}
    for number in range(200):
        file, raw = rng.choice(list(originals.items()))
        data = bytearray(raw)
        for _ in range(rng.choice([1, 3, 30])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        broken = tmp_path / f"broken{number}{file.suffix}"
        broken.write_bytes(bytes(data))
        try:
            found = open_arrays(broken)
            features = found.get("features", found.get("array"))
            if features is not None:
                check(nc.measure(features, found.get("labels", parts["labels"]), metrics=["nc1", "cdnv", "vci"]))
        except (ValueError, TypeError) as error:
            expect_clear(error, False)
        broken.unlink()
