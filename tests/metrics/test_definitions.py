"""Each metric against its definition, its stated values at collapse and at random, and public code."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import naive
import neuralcollapse as nc
from neuralcollapse.frames import low_rank_etf, simplex_etf
from neuralcollapse.metrics import METRICS

SHAPES = [(3, 10, 5), (10, 20, 64), (5, 50, 4), (10, 30, 4), (7, 4, 40), (6, 3, 2), (12, 40, 9), (2, 9, 1)]


def sample(K, n, d, seed=0, unbalanced=False):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(K), n)
    if unbalanced:
        y = np.concatenate([y, rng.integers(0, K, 3 * n)])
    y = rng.permutation(y)
    H = rng.normal(size=(K, d))[y] + 0.4 * rng.normal(size=(len(y), d)) + 0.3
    return H, y, rng.normal(size=(K, d)) + 0.1, rng.normal(size=K), rng.normal(size=(20, d)) + 0.5


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("passes", [None, 1, 2])
@pytest.mark.parametrize("unbalanced", [False, True])
def test_every_metric_has_the_value_of_its_definition(shape, passes, unbalanced):
    H, y, W, b, ood = sample(*shape, unbalanced=unbalanced)
    for global_mean in ("samples", "classes"):
        report = nc.measure(
            torch.tensor(H), torch.tensor(y), torch.tensor(W), torch.tensor(b),
            metrics="all", passes=passes, global_mean=global_mean, out_of_distribution=torch.tensor(ood),
        )  # fmt: skip
        expected = naive.all_metrics(H, y, W, b, ood, global_mean)
        measured = report.scalars
        assert set(expected) - set(measured) <= ({"vci", "nc1_debiased"} if passes == 2 else set())
        assert set(measured) <= set(expected)
        for name, value in measured.items():
            assert value == pytest.approx(expected[name], rel=1e-8, abs=1e-12), name


def test_float32_features_give_the_same_to_their_precision():
    H, y, W, b, ood = sample(10, 40, 64)
    H32 = torch.tensor(H, dtype=torch.float32)
    expected = naive.all_metrics(H32.double().numpy(), y, W, b, ood)
    report = nc.measure(
        H32, torch.tensor(y), torch.tensor(W), torch.tensor(b), metrics="all", out_of_distribution=torch.tensor(ood)
    )
    two = nc.measure(H32, torch.tensor(y), torch.tensor(W), torch.tensor(b), passes=2, metrics="all")
    for name, value in report.scalars.items():
        assert value == pytest.approx(expected[name], rel=1e-5), name
    for name, value in two.scalars.items():
        assert value == pytest.approx(expected[name], rel=1e-5), name


@pytest.mark.parametrize(("K", "d"), [(2, 1), (3, 2), (10, 9), (10, 40), (30, 64)])
@pytest.mark.parametrize("passes", [1, 2])
def test_exact_collapse_gives_the_stated_value_of_every_metric(K, d, passes):
    frame = simplex_etf(K, d, seed=1)
    y = torch.arange(K).repeat_interleave(5)
    other = torch.cat([frame, torch.zeros(K, 1, dtype=torch.float64)], dim=1)
    ood = torch.zeros(4, d + 1, dtype=torch.float64)
    ood[:, -1] = 1.0
    report = nc.measure(
        3.0 * other[y], y, 0.7 * other, torch.zeros(K, dtype=torch.float64),
        metrics="all", passes=passes, out_of_distribution=ood,
    )  # fmt: skip
    left_out = {name for name in METRICS if name.endswith("_projected")} | (
        {"vci", "nc1_debiased"} if passes == 2 else set()
    )
    assert set(report.reasons) == left_out
    for name, value in report.scalars.items():
        assert value == pytest.approx(METRICS[name].at_collapse(K), abs=2e-14), name


@pytest.mark.parametrize(("K", "d"), [(10, 4), (8, 3), (5, 2), (20, 18)])
def test_collapse_below_k_minus_1_dimensions_is_measured_against_the_projected_etf(K, d):
    frame = low_rank_etf(K, d, seed=2)
    y = torch.arange(K).repeat_interleave(3)
    report = nc.measure(2 * frame[y], y, frame)
    for name in ("nc2_projected", "nc2_means_projected", "nc3_projected"):
        assert report[name] == pytest.approx(0.0, abs=1e-7), name
    for name in ("nc2", "nc2_means", "nc3"):
        assert report[name] is None
        assert "d < K-1" in report.reasons[name]


@pytest.mark.parametrize(("K", "n", "d"), [(10, 20, 64), (10, 20, 512), (5, 50, 16), (30, 20, 10)])
def test_random_features_give_the_stated_values(K, n, d):
    """THEORY A7: the mean over Gaussian features and classifiers."""
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(K).repeat_interleave(n)
    draws = 8 if d > 100 else 20
    sums: dict[str, float] = {}
    for _ in range(draws):
        H = torch.randn(K * n, d, generator=generator, dtype=torch.float64)
        W = torch.randn(K, d, generator=generator, dtype=torch.float64)
        ood = torch.randn(n, d, generator=generator, dtype=torch.float64)
        report = nc.measure(H, y, W, metrics="all", out_of_distribution=ood)
        for name, value in report.scalars.items():
            metric = METRICS[name]
            assert metric.lowest <= value <= metric.highest, name
            sums[name] = sums.get(name, 0.0) + value / draws
    for name, mean in sums.items():
        value = METRICS[name].random_value
        if value is not None:
            tolerance = 0.25 if name in ("nc1", "nc5_ood") else 0.12
            assert mean == pytest.approx(value(K, n, d), rel=tolerance), name


@pytest.mark.parametrize("K", [4, 10])
def test_nc2_of_means_of_normal_features_in_many_dimensions(K):
    generator, n, d = torch.Generator().manual_seed(0), 2, 400
    y = torch.arange(K).repeat_interleave(n)
    draws = [torch.randn(K * n, d, generator=generator, dtype=torch.float64) for _ in range(300)]
    squares = torch.tensor([nc.measure(H, y, metrics=["nc2_means"])["nc2_means"] for H in draws]).square()
    error = float(squares.std()) / 300**0.5
    assert float(squares.mean()) == pytest.approx(METRICS["nc2_means"].random_value(K, n, d) ** 2, abs=4 * error)
    assert error < 0.04 * float(squares.mean())


@pytest.mark.parametrize(("K", "n", "d"), [(30, 3, 4), (5, 3, 40)])
def test_nc1_of_normal_features_on_both_sides_of_the_square_case(K, n, d):
    generator, y = torch.Generator().manual_seed(0), torch.arange(K).repeat_interleave(n)
    draws = [torch.randn(K * n, d, generator=generator, dtype=torch.float64) for _ in range(300)]
    found = torch.tensor([nc.measure(H, y, metrics=["nc1"])["nc1"] for H in draws])
    assert float(found.mean()) == pytest.approx(
        METRICS["nc1"].random_value(K, n, d), abs=4 * float(found.std()) / 300**0.5
    )
    assert float(found.std()) / 300**0.5 < 0.02 * float(found.mean())


def test_values_of_the_theory_sheet_for_gaussian_features():
    generator = torch.Generator().manual_seed(0)
    expected = {
        "nc1": 3.154,
        "nc2": 0.493,
        "nc3": 1.404,
        "nc4_bias": 1.73,
        "numerical_rank": 18.3,
        "cosine_margin": -0.195,
    }
    total = dict.fromkeys(expected, 0.0)
    y = torch.arange(10).repeat_interleave(20)
    for _ in range(30):
        report = nc.measure(
            torch.randn(200, 64, generator=generator), y, torch.randn(10, 64, generator=generator), metrics="all"
        )
        for name in expected:
            total[name] += report[name] / 30
    for name, value in expected.items():
        assert total[name] == pytest.approx(value, rel=0.1), name


def test_nc2_of_the_orthogonal_frame_and_of_the_misprints():
    """Errata 15 and 41: with 1/(K-1), or I - 11' for I - 11'/K, exact collapse would not give zero."""
    K = 10
    frame = nc.frames.orthogonal_frame(K, 12, seed=0)
    y = torch.arange(K).repeat_interleave(2)
    report = nc.measure(frame[y], y, frame, metrics="nc2")
    assert report.nc2 == pytest.approx(math.sqrt(2 - 2 * math.sqrt((K - 1) / K)), rel=1e-12)
    gram = nc.frames.simplex_gram(K).numpy()
    gram = gram / np.linalg.norm(gram)
    ideal = np.eye(K) - 1 / K
    assert np.linalg.norm(gram - ideal / (K - 1)) == pytest.approx(1 - 1 / math.sqrt(K - 1))
    assert np.linalg.norm(gram - (np.eye(K) - 1) / math.sqrt(K - 1)) == pytest.approx(math.sqrt(K - 1))


def test_values_as_public_scripts_compute_them():
    """Independent re-derivations: loop of outer products, scalings by K, centred W, unbiased deviations."""
    H, y, W, _, _ = sample(4, 15, 6, seed=5)
    K = len(W)
    M = naive.class_means(H, y, K)
    outer = sum(np.outer(h - M[k], h - M[k]) for h, k in zip(H, y, strict=True)) / len(H)
    between = sum(np.outer(m - H.mean(0), m - H.mean(0)) for m in M) / K
    report = nc.measure(torch.tensor(H), torch.tensor(y), torch.tensor(W))
    # Scripts with trace(S_W pinv(S_B))/K
    assert report.nc1 == pytest.approx(np.trace(outer @ np.linalg.pinv(between, rcond=1e-11)) / K, rel=1e-10)
    # Libraries that leave out the 1/K, or centre W
    assert np.trace(outer @ np.linalg.pinv(between, rcond=1e-11)) == pytest.approx(K * report.nc1, rel=1e-10)
    Wc = W - W.mean(0)
    centred = nc.measure(torch.tensor(H), torch.tensor(y), torch.tensor(Wc))
    assert centred.nc2 == pytest.approx(naive.gram_distance(Wc @ Wc.T, K))
    assert centred.nc2 != pytest.approx(report.nc2, rel=1e-3)
    # Unbiased standard deviations (over K-1) are larger by sqrt(K/(K-1)).
    norms = np.linalg.norm(W, axis=1)
    assert norms.std(ddof=1) / norms.mean() == pytest.approx(report.equinorm_weight * math.sqrt(K / (K - 1)))


def test_every_entry_of_the_registry_says_what_it_is():
    names = {
        "nc1", "nc1_quotient", "cdnv", "vci", "nc2", "nc2_means", "nc3", "nc3_frobenius", "nc4_bias",
        "nc4_mismatch",
        "numerical_rank", "cosine_margin", "nc5_ood", "nc2_projected", "nc2_means_projected", "nc3_projected",
        "nc1_quotient_debiased", "cdnv_debiased", "nc1_debiased", "nc0", "nc2_floor", "uniformity_means", "nc3_cosine",
        *(f"{kind}_{of}" for kind in ("equinorm", "equiangular", "max_angle") for of in ("weight", "means")),
    }  # fmt: skip
    assert names <= set(METRICS)
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.definition
        assert metric.paper
        assert metric.at_random
        assert metric.better in ("lower", "higher")
        assert metric.lowest <= metric.at_collapse(10) <= metric.highest


def test_the_docs_table_lists_every_metric():
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    text = page.read_text(encoding="utf-8")
    for name in METRICS:
        assert f"`{name}`" in text, f"docs/metrics.md does not list {name}"
