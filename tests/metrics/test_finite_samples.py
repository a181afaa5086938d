"""The debiased metrics against the truth of the distribution that the samples come from."""

import numpy as np
import pytest
import torch

import neuralcollapse as nc

NAMES = ["nc1", "nc1_debiased", "nc1_quotient", "nc1_quotient_debiased", "cdnv", "cdnv_debiased"]


def truth(means, counts, sigma):
    """The values of the distribution: isotropic noise of standard deviation sigma about the means."""
    K, d = means.shape
    centred = means - (counts / counts.sum()) @ means
    between = centred.T @ centred / K
    pairs = [sigma**2 * d / ((means[k] - means[j]) ** 2).sum() for k in range(K) for j in range(K) if k != j]
    return {
        "nc1": sigma**2 * np.trace(np.linalg.pinv(between)) / K,
        "nc1_quotient": sigma**2 * d / np.trace(between),
        "cdnv": np.mean(pairs),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("K", "d", "counts", "sigma"),
    [
        (5, 40, [50] * 5, 0.3),
        (10, 100, [20] * 10, 0.15),
        (4, 60, [40, 40, 8, 5], 0.2),
    ],
    ids=["balanced", "many dimensions", "unbalanced"],
)
def test_debiased_metrics_have_the_mean_of_the_truth(K, d, counts, sigma):
    rng = np.random.default_rng(0)
    counts = np.array(counts)
    means = rng.normal(size=(K, d)) / np.sqrt(d)
    want = truth(means, counts, sigma)
    y = np.repeat(np.arange(K), counts)
    values = {name: [] for name in NAMES}
    for _ in range(60):
        H = means[y] + sigma * rng.normal(size=(len(y), d))
        report = nc.measure(H, y, metrics=NAMES)
        for name in NAMES:
            values[name].append(report[name])
    for name in ("nc1", "nc1_quotient", "cdnv"):
        plug_in, debiased = np.array(values[name]), np.array(values[f"{name}_debiased"])
        error = debiased.std(ddof=1) / np.sqrt(len(debiased))
        # Ratios of unbiased pieces keep a bias of second order, far below what the plug-in value has.
        assert abs(debiased.mean() - want[name]) < 4 * error + 0.02 * want[name], name
        assert abs(plug_in.mean() - want[name]) > 1.5 * abs(debiased.mean() - want[name]), name


def test_figures_of_one_published_setting():
    """K 10, d 100, n 20, sigma .5 with unit-norm random means: the plug-in quotient is less than half of the truth."""
    rng = np.random.default_rng(1)
    means = rng.normal(size=(10, 100)) / 10
    want = truth(means, np.full(10, 20), 0.5)["nc1_quotient"]
    y = np.repeat(np.arange(10), 20)
    found = [
        nc.measure(means[y] + 0.5 * rng.normal(size=(200, 100)), y, metrics=["nc1_quotient", "nc1_quotient_debiased"])
        for _ in range(40)
    ]
    assert np.mean([report.nc1_quotient for report in found]) < 0.5 * want
    assert np.mean([report.nc1_quotient_debiased for report in found]) == pytest.approx(want, rel=0.03)


def test_no_value_where_noise_explains_the_means():
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(6), 5)
    report = nc.measure(rng.normal(size=(30, 50)), y, metrics=NAMES)
    assert report.nc1_debiased is None
    assert "noise of these few samples" in report.reasons["nc1_debiased"]
    assert report.cdnv_debiased is None
    assert "noise" in report.reasons["cdnv_debiased"]
    single = nc.measure(rng.normal(size=(5, 50)) * 9, np.array([0, 0, 1, 1, 2]), metrics=NAMES)
    assert "class 2 has a single sample" in single.reasons["nc1_quotient_debiased"]
    crowded = nc.measure(rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10), metrics="nc1_debiased")
    assert "rank 3 < K-1 = 5" in crowded.reasons["nc1_debiased"]


def test_large_samples_leave_nothing_to_correct():
    rng = np.random.default_rng(4)
    y = np.repeat(np.arange(4), 20_000)
    H = np.eye(4)[y] + 0.3 * rng.normal(size=(80_000, 4))
    report = nc.measure(torch.tensor(H), torch.tensor(y), metrics=NAMES)
    for name in ("nc1", "nc1_quotient", "cdnv"):
        assert report[f"{name}_debiased"] == pytest.approx(report[name], rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_nc2_is_never_below_its_floor_and_reaches_it(seed):
    rng = np.random.default_rng(seed)
    K, d = 6, 9
    y = np.repeat(np.arange(K), 2)
    H = rng.normal(size=(2 * K, d))
    for offset in (0.0, 0.1, 1.0, 5.0):
        W = rng.normal(size=(K, d)) + offset * rng.normal(size=d)
        report = nc.measure(H, y, W, metrics=["nc2", "nc2_floor", "nc0"])
        assert report.nc2 >= report.nc2_floor
        # A simplex with a common vector orthogonal to it: the rest is exactly the simplex, the floor is reached.
        frame = nc.frames.simplex_etf(K, d, seed=seed).numpy()
        common = np.linalg.svd(frame)[2][-1] * (0.1 + offset)
        reached = nc.measure(H, y, frame + common, metrics=["nc2", "nc2_floor"])
        assert reached.nc2 == pytest.approx(reached.nc2_floor, rel=1e-9)
