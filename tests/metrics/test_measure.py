"""``measure`` and the report: sources, options, and reasons in place of numbers that do not exist."""

import copy
import io
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from rich.console import Console

import neuralcollapse as nc
from neuralcollapse.metrics import METRICS


def data(K=4, n=10, d=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(K).repeat(n)
    H = torch.randn(K, d, generator=generator)[y] + 0.3 * torch.randn(K * n, d, generator=generator)
    return H, y, torch.randn(K, d, generator=generator), torch.randn(K, generator=generator)


def finite(report):
    json.loads(report.to_json())
    assert all(value is None or np.isfinite(value) for value in report.values.values())
    assert {name for name, value in report.values.items() if value is None} == set(report.reasons)


def test_importing_loads_no_optional_library():
    code = (
        "import sys, neuralcollapse, neuralcollapse.metrics, neuralcollapse.integrations\n"
        "names = {'torchmetrics', 'lightning', 'transformers', 'matplotlib', 'sklearn', 'tensorboard'}\n"
        "found = names & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_arrays_maps_views_and_half_precision(tmp_path):
    H, y, W, b = data()
    expected = nc.measure(H, y, W, b).to_dict()
    array = H.numpy().copy()
    assert nc.measure(array, y.numpy(), W.numpy(), b.numpy()).to_dict() == expected
    assert nc.measure(H, y.tolist(), W, b).to_dict() == expected
    np.save(tmp_path / "H.npy", array)
    assert nc.measure(np.load(tmp_path / "H.npy", mmap_mode="r"), y.to(torch.uint8), W, b).to_dict() == expected
    assert nc.measure(array.astype(">f4"), y.numpy().astype(">i2"), W, b).to_dict() == expected
    assert nc.measure(np.asfortranarray(array), y, W, b).nc1 == pytest.approx(expected["nc1"])
    assert nc.measure(array[::-1], y.numpy()[::-1].copy(), W, b).nc1 == pytest.approx(expected["nc1"])
    wide = torch.zeros(len(y), 12)
    wide[:, ::2] = H
    assert nc.measure(wide[:, ::2], y, W, b).to_dict() == expected
    assert nc.measure(H.clone().requires_grad_(), y, torch.nn.Parameter(W), b).to_dict() == expected
    for dtype in (torch.float16, torch.bfloat16):
        half = H.to(dtype)
        exact = nc.measure(half.double(), y, W, b)
        for passes in (1, 2):
            for name, value in nc.measure(half, y, W, b, passes=passes).scalars.items():
                assert value == pytest.approx(exact[name], rel=1e-4, abs=1e-9), name


def test_the_same_call_gives_the_same_bits():
    H, y, W, b = data(K=10, n=300, d=40)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = nc.measure(H, y, W, b)
        assert torch.get_num_threads() == 2
        assert nc.measure(H, y, W, b).to_dict() == first.to_dict()
    finally:
        torch.set_num_threads(threads)
    single = nc.measure(H, y, W, b)
    for name, value in first.scalars.items():
        assert single[name] == pytest.approx(value, rel=1e-6), name


def test_autocast_around_the_call_costs_no_digits():
    H, y, W, b = data()
    expected = nc.measure(H, y, W, b, passes=2).to_dict()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nc.measure(H, y, W, b, passes=2).to_dict() == expected
    with torch.inference_mode():
        assert nc.measure(H * 1, y, W, b, passes=2).to_dict() == expected


def test_features_are_never_written_to():
    H, y, W, b = data()
    for dtype in (torch.float32, torch.float64):
        features, labels = H.to(dtype), y.clone()
        for passes in (1, 2):
            nc.measure(features, labels, W, b, passes=passes)
        statistics = nc.ClassStatistics(4, 6)
        statistics.update(features, labels)
        second = statistics.second_pass(W, b)
        second.update(features, labels)
        assert torch.equal(features, H.to(dtype))
        assert torch.equal(labels, y)


def test_missing_parts_are_reported_with_the_reason():
    H, y, W, b = data()
    report = nc.measure(H, y)
    finite(report)
    for name in ("nc2", "nc3", "nc4_bias", "nc4_mismatch", "cosine_margin", "equinorm_weight"):
        assert report.reasons[name] == "no classifier weight was given"
    assert "out-of-distribution" in report.reasons["nc5_ood"]
    assert "passes=2" in nc.measure(H, y, passes=2, metrics="all").reasons["vci"]
    statistics = nc.ClassStatistics(4, 6)
    statistics.update(H, y)
    assert "second_pass" in statistics.report(W, b).reasons["cosine_margin"]
    assert any("bias" in note for note in nc.measure(H, y, W).notes)


def test_an_absent_class_is_reported_and_can_be_left_out():
    H, y, W, b = data()
    report = nc.measure(H[y != 2], y[y != 2], W, b, metrics="all")
    finite(report)
    for name in ("nc1", "cdnv", "nc3", "nc2_means", "nc4_mismatch", "cosine_margin", "numerical_rank"):
        assert "class 2 has no samples" in report.reasons[name]
    assert report.nc2 is not None
    kept = torch.tensor([0, 1, 3])
    present = nc.measure(H[y != 2], y[y != 2], W, b, present_only=True)
    relabelled = torch.where(y == 3, 2, y)[y != 2]
    assert present.to_dict() == nc.measure(H[y != 2], relabelled, W[kept], b[kept]).to_dict()
    statistics = nc.ClassStatistics(4, 6)
    statistics.update(H[y != 2], y[y != 2])
    assert statistics.report(W, b, present_only=True).nc1 == pytest.approx(present.nc1, rel=1e-6)
    assert statistics.report(W, b).nc1 is None


def test_single_samples_coincident_means_and_constant_features():
    H, y, W, b = data()
    single = nc.measure(H[:4], y[:4], W, b, metrics="all")
    finite(single)
    for name in ("nc1", "nc1_quotient", "cdnv", "vci", "numerical_rank"):
        assert "single sample" in single.reasons[name]
    mixed = nc.measure(H[:5], y[:5], W, b)
    assert mixed.nc1 is not None
    assert any("single sample" in note for note in mixed.notes)

    same = nc.measure(torch.ones(8, 6), torch.arange(4).repeat(2), W, b)
    finite(same)
    assert same.reasons["nc1"] == "all class means coincide"
    assert same.nc2 is not None
    zero = nc.measure(torch.zeros(8, 6), torch.arange(4).repeat(2), torch.zeros(4, 6), b)
    finite(zero)
    assert "zero" in zero.reasons["nc2"]

    pair = H.clone().double()
    pair[y == 1] = pair[y == 0]
    report = nc.measure(pair, y, W, b)
    finite(report)
    assert "coincide" in report.reasons["cdnv"]
    assert report.nc1 is not None

    equal_rows = W.clone()
    equal_rows[:] = W[0]
    report = nc.measure(H, y, equal_rows, b)
    finite(report)
    assert "no angle" in report.reasons["cosine_margin"]


def test_samples_at_the_global_mean_are_left_out_of_the_margins():
    y = torch.tensor([0, 0, 1, 1, 0, 1])
    H = torch.tensor([[1.0, 0], [1, 0], [-1, 0], [-1, 0], [0, 0], [0, 0]]).double()
    report = nc.measure(H, y, torch.tensor([[1.0, 0], [-1, 0]]))
    assert report.cosine_margin == pytest.approx(2.0)
    assert any("2 samples at the global mean" in note for note in report.notes)
    assert report.cosine_margins.shape == (4,)


def test_a_vector_common_to_all_rows_of_the_classifier_changes_no_margin():
    H, y, W, _ = data()
    W = W.double()
    common = torch.full((W.shape[1],), 1e5, dtype=torch.float64)
    margins = nc.measure(H, y, W, metrics="cosine_margin").cosine_margins
    shifted = nc.measure(H, y, W + common, metrics="cosine_margin").cosine_margins
    torch.testing.assert_close(shifted, margins, rtol=1e-8, atol=1e-8)
    without = nc.measure(H, y, torch.ones_like(W), metrics="cosine_margin")
    assert without.reasons["cosine_margin"].startswith("the classifier's row 0 equals the mean of its rows")


def test_large_matrices_are_left_out_with_the_reason_when_memory_is_bounded():
    H, y, W, b = data()
    report = nc.measure(H, y, W, b, memory_limit=0, metrics="all")
    finite(report)
    assert "memory_limit" in report.reasons["vci"]
    assert "memory_limit" in report.reasons["numerical_rank"]
    assert report.nc1 == pytest.approx(nc.measure(H, y).nc1, rel=1e-5)


def test_extreme_scales_change_no_scale_free_metric():
    H, y, W, b = data(n=20)
    expected = nc.measure(H.double(), y, W, b, metrics="all")
    free = set(expected.scalars) - {"nc4_bias", "nc4_mismatch"}
    for scale in (1e-30, 1e-12, 1e12, 1e30):
        for dtype in (torch.float32, torch.float64):
            for passes in (None, 2):
                report = nc.measure((H * scale).to(dtype), y, W, b, passes=passes, metrics="all")
                finite(report)
                for name in free - set(report.reasons):
                    assert report[name] == pytest.approx(expected[name], rel=1e-4), (name, scale, dtype)
                assert set(report.reasons) - set(expected.reasons) <= {"vci", "nc1_debiased"}
    with pytest.raises(ValueError, match=r"too large|finite"):
        nc.measure(H.double() * 1e200, y)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"features": "H"}, TypeError, "features"),
        ({"features": torch.zeros(40, 6, dtype=torch.int64)}, TypeError, "floating"),
        ({"features": torch.zeros(40)}, ValueError, "shape"),
        ({"features": torch.zeros(40, 0)}, ValueError, "d >= 1"),
        (
            {"features": torch.zeros(0, 6), "labels": torch.zeros(0, dtype=torch.int64)},
            ValueError,
            "no samples",
        ),
        ({"features": torch.full((40, 6), torch.nan)}, ValueError, "40 of 40 rows"),
        ({"features": torch.zeros(40, 6).to_sparse()}, TypeError, "dense"),
        ({"features": np.ma.masked_less(np.zeros((40, 6)), 1)}, TypeError, "masked"),
        ({"labels": np.ma.masked_less(np.zeros(40, dtype=int), 1)}, TypeError, "masked"),
        ({"labels": torch.zeros(40)}, TypeError, "labels must be integers"),
        ({"labels": torch.zeros(39, dtype=torch.int64)}, ValueError, "40 rows, 39 labels"),
        ({"labels": torch.full((40,), 4)}, ValueError, "label 4"),
        ({"labels": torch.full((40,), -3)}, ValueError, "label -3"),
        ({"labels": torch.full((40,), -100)}, ValueError, "no samples"),
        (
            {"labels": torch.zeros(40, dtype=torch.int64), "weight": None, "bias": None},
            ValueError,
            "single class",
        ),
        ({"weight": torch.zeros(4, 5)}, ValueError, "weight"),
        ({"weight": torch.full((4, 6), torch.inf)}, ValueError, "weight must be finite"),
        ({"weight": None}, ValueError, "bias is given without weight"),
        ({"bias": torch.zeros(3)}, ValueError, "bias"),
        ({"bias": [0.0] * 4}, TypeError, "bias"),
        ({"num_classes": 3}, ValueError, "weight must have 3 rows"),
        ({"num_classes": 0}, ValueError, "num_classes"),
        ({"num_classes": 4.0}, TypeError, "num_classes"),
        ({"metrics": "nc7"}, ValueError, "nc7"),
        ({"metrics": []}, ValueError, "at least one"),
        ({"metrics": 3}, TypeError, "metrics"),
        ({"passes": 3}, ValueError, "passes"),
        ({"global_mean": "median"}, ValueError, "global_mean"),
        ({"present_only": 1}, TypeError, "present_only"),
        ({"memory_limit": -1}, ValueError, "memory_limit"),
        ({"out_of_distribution": torch.zeros(3, 5)}, ValueError, "out_of_distribution"),
        ({"out_of_distribution": torch.full((3, 6), torch.nan)}, ValueError, "out_of_distribution"),
    ],
    ids=str,
)
def test_bad_input_gives_one_clear_line(change, error, words):
    H, y, W, b = data()
    with pytest.raises(error, match=words) as caught:
        nc.measure(**({"features": H, "labels": y, "weight": W, "bias": b} | change))
    assert "\n" not in str(caught.value)


def test_a_report_is_a_value():
    H, y, W, b = data()
    report = nc.measure(H, y, W, b, metrics="all")
    assert report.nc1 == report["nc1"] == report.to_dict()["nc1"] == json.loads(report.to_json())["nc1"]
    with pytest.raises(AttributeError, match="nc9"):
        _ = report.nc9
    part = nc.measure(H, y, W, b, metrics=["nc1", "nc2"])
    assert list(part.values) == ["nc1", "nc2"]
    with pytest.raises(AttributeError, match="not measured"):
        _ = part.nc3
    with pytest.raises(Exception, match=r"assign|frozen"):
        report.dim = 3
    with pytest.raises(TypeError):
        report.values["nc1"] = 0.0
    assert "nc1" in dir(report)
    assert copy.copy(report).nc1 == report.nc1
    text = str(report)
    page = report._repr_html_()
    for name in METRICS:
        assert name in text
        assert f"<td>{name}</td>" in page
    Console(file=io.StringIO()).print(report)


def test_reports_survive_copies_and_pickles():
    H, y, W, b = data()
    report = nc.measure(H, y, W, b, metrics="all")
    again = pickle.loads(pickle.dumps(report))
    assert again.to_dict() == report.to_dict()
    assert copy.deepcopy(report).to_dict() == report.to_dict()


def test_comparison_says_which_is_more_collapsed():
    H, y, W, b = data()
    tight = nc.measure(H, y, W, b, metrics="all")
    loose = nc.measure(H + torch.randn(H.shape, generator=torch.Generator().manual_seed(1)), y, W, b)
    comparison = tight.compare(loose)
    assert comparison.changes["nc1"] == pytest.approx(loose.nc1 - tight.nc1)
    assert comparison.more_collapsed["nc1"] is False
    assert comparison.more_collapsed["nc2"] is None
    assert comparison.to_dict()["vci"]["first"] == tight.vci
    assert "nc1" in str(comparison)
    assert "<table>" in comparison._repr_html_()
    with pytest.raises(TypeError):
        tight.compare({})


def test_helpers():
    H, y, _, _ = data()
    means = nc.metrics.class_means(H, y)
    assert torch.allclose(means[1], H[y == 1].double().mean(0))
    with pytest.raises(ValueError, match="class 4 of 5 has no samples"):
        nc.metrics.class_means(H, y, 5)
    with pytest.raises(ValueError, match="features hold no samples to measure"):
        nc.metrics.class_means(H, torch.full_like(y, -100))
    other = torch.randn(30, 6, generator=torch.Generator().manual_seed(3)) + 1
    value = nc.metrics.nc5_ood(means, other)
    assert value == pytest.approx(nc.measure(H, y, out_of_distribution=other).nc5_ood, rel=1e-6)
    statistics = nc.ClassStatistics(4, 6)
    statistics.update(H, y)
    assert nc.metrics.nc5_ood(statistics, other) == pytest.approx(value)
    with pytest.raises(ValueError, match="out_of_distribution"):
        nc.metrics.nc5_ood(means, other[:, :2])
