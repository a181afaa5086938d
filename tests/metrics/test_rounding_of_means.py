"""Class means that agree up to rounding: their difference has no direction and no length to divide by."""

import numpy as np
import pytest
import torch

import neuralcollapse as nc

DTYPES = [torch.float64, torch.float32]
DIRECTIONS = (
    "equiangular_means",
    "max_angle_means",
    "uniformity_means",
    "uniformity_means_variation",
    "nc3_cosine",
    "nc3_cosine_variation",
    "one_vs_rest_means",
)


def middle_class(dtype: torch.dtype, offset: float = 0.3) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes on a line through the middle one, whose mean is that of all samples."""
    rng = np.random.default_rng(1)
    along, noise = rng.normal(size=4), 0.1 * rng.normal(size=(10, 4))
    noise -= noise.mean(0)
    rows = [offset + step * along + noise[rng.permutation(10)] for step in (1, 0, -1)]
    return torch.tensor(np.concatenate(rows)).to(dtype), torch.arange(3).repeat_interleave(10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("passes", [None, 1, 2])
def test_a_class_mean_at_the_global_mean_has_no_direction(dtype, passes):
    """The rest of some 1e-16 used to be taken for a direction: angles and cosines of rounding errors."""
    x, y = middle_class(dtype)
    weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    report = nc.measure(x, y, weight, metrics=[*DIRECTIONS, "equinorm_means", "cdnv"], passes=passes)
    for name in DIRECTIONS:
        assert report.values[name] is None, name
        assert "class 1 is the global mean within the rounding" in report.reasons[name]
    assert report.per_class is not None
    assert report.per_class[1]["cosines"] == 0.0
    # Norms 1, 0, 1: standard deviation over mean.
    assert report.equinorm_means == pytest.approx(2**-0.5, rel=1e-6)
    h = x.double().numpy()
    means = np.stack([h[k * 10 : k * 10 + 10].mean(0) for k in range(3)])
    var = [((h[k * 10 : k * 10 + 10] - means[k]) ** 2).sum(1).mean() for k in range(3)]
    pairs = [(k, j) for k in range(3) for j in range(3) if k != j]
    truth = np.mean([(var[k] + var[j]) / 2 / ((means[k] - means[j]) ** 2).sum() for k, j in pairs])
    assert report.cdnv == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_class_mean_a_little_off_the_global_mean_has_one(dtype):
    """A thousandth of the distance of the others is far above the rounding, whatever the offset."""
    x, y = middle_class(dtype, offset=3.0)
    shift = np.array([0.001, -0.002, 0.0015, 0.001])
    x[10:20] += torch.tensor(shift).to(dtype)
    report = nc.measure(x, y, metrics=["max_angle_means", "uniformity_means"])
    h = x.double().numpy()
    centred = np.stack([h[k * 10 : k * 10 + 10].mean(0) for k in range(3)]) - h.mean(0)
    unit = centred / np.linalg.norm(centred, axis=1)[:, None]
    pairs = [(k, j) for k in range(3) for j in range(3) if k != j]
    assert report.max_angle_means == pytest.approx(np.mean([abs(unit[k] @ unit[j] + 0.5) for k, j in pairs]), rel=1e-6)
    logs = np.mean([-np.log(np.linalg.norm(unit[k] - unit[j])) for k, j in pairs])
    assert report.uniformity_means == pytest.approx(logs, rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_samples_in_another_order_coincide(dtype):
    """Their means differ in the last digit: cdnv used to be 2e31, and the directions 2e-16 apart."""
    rng = np.random.default_rng(1)
    rows, other = rng.normal(size=(10, 4)) + 0.1, rng.normal(size=(10, 4)) + 5
    y = torch.arange(3).repeat_interleave(10)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(10)
        x = torch.tensor(np.concatenate([rows, rows[order], other])).to(dtype)
        report = nc.measure(x, y, metrics=["cdnv", "cdnv_debiased", "uniformity_means"])
        assert report.cdnv is None
        assert "classes 0 and 1 coincide" in report.reasons["cdnv"]
        assert report.cdnv_debiased is None
        assert report.uniformity_means is None
        assert "same direction" in report.reasons["uniformity_means"]


def test_a_class_mean_at_the_origin_has_no_angle_to_other_data():
    """nc5_ood is about means that are not centred: that of a symmetric class is rounding."""
    rng = np.random.default_rng(3)
    half = rng.normal(size=(7, 4)) * [1.0, 0.1, 3.0, 0.7]
    symmetric = np.concatenate([half, -half])[rng.permutation(14)]
    x = torch.tensor(np.concatenate([symmetric, half + 2, half - 3]))
    y = torch.tensor([0] * 14 + [1] * 7 + [2] * 7)
    report = nc.measure(x, y, metrics="nc5_ood", out_of_distribution=torch.ones(2, 4, dtype=torch.float64))
    assert report.nc5_ood is None
    assert "no direction" in report.reasons["nc5_ood"]


@pytest.mark.parametrize("scale", [1e-30, 1e-13, 1.0, 1e30])
def test_the_cosines_of_large_and_small_classes_do_not_depend_on_the_scale(scale):
    """Rows shorter than 1e-12 used to count as zero: cosines of 1e-35 instead of -.37."""
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(5), [3, 9, 4, 7, 6])
    x, weight = rng.normal(size=(5, 8))[y] * 3 + rng.normal(size=(29, 8)), rng.normal(size=(5, 8))
    centred = np.stack([x[y == k].mean(0) for k in range(5)]) - x.mean(0)
    report = nc.measure(torch.tensor(x * scale), torch.tensor(y), torch.tensor(weight * scale))
    for name, members in (("majority", [1, 3, 4]), ("minority", [0, 2])):
        for column, rows in (("mean_cosine", centred), ("weight_cosine", weight)):
            unit = rows[members] / np.linalg.norm(rows[members], axis=1)[:, None]
            cosines = (unit @ unit.T)[~np.eye(len(members), dtype=bool)]
            assert report.groups[name][column] == pytest.approx(cosines.mean(), abs=1e-12)
