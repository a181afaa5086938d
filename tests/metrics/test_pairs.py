"""Everything over pairs of classes in one tiled pass, against differences taken one by one in 64-bit mantissas."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import neuralcollapse as nc
from neuralcollapse.frames import simplex_etf
from neuralcollapse.metrics.definitions import _pairs

K, D, PER_CLASS = 150, 7, 3
NAMES = (
    "cdnv", "cdnv_debiased", "equiangular_means", "max_angle_means", "uniformity_means", "uniformity_means_variation",
    "equiangular_weight", "max_angle_weight",
)  # fmt: skip


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(_pairs, "TILE", 64)


def normal(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def features(close=0.0, offset=0.0, spread=1e-3, classes=K, dim=D, seed=0):
    """Three samples a class; with ``close``, the second half of the means lies that near the first half."""
    generator = torch.Generator().manual_seed(seed)
    means = normal(generator, classes, dim)
    if close:
        half = classes // 2
        means[half:] = means[: classes - half] + close * normal(generator, classes - half, dim)
        spread = 1e-2 * close
    y = torch.arange(classes).repeat(PER_CLASS)
    return means[y] + spread * normal(generator, len(y), dim) + offset, y, normal(generator, classes, dim)


def truth(H, y, W):
    """The definitions, row by row, in numpy's long double."""
    H, y, W = H.double().numpy().astype(np.longdouble), y.numpy(), W.numpy().astype(np.longdouble)
    classes = len(W)
    M = np.stack([H[y == k].mean(0) for k in range(classes)])
    squares = np.stack([((H[y == k] - M[k]) ** 2).sum() for k in range(classes)])
    var, s2 = squares / PER_CLASS, squares / (PER_CLASS - 1)
    U = (M - H.mean(0)) / np.sqrt(((M - H.mean(0)) ** 2).sum(1))[:, None]
    V = W / np.sqrt((W**2).sum(1))[:, None]
    found = {name: np.longdouble(0) for name in ("cdnv", "cdnv_debiased", "max_angle_means", "max_angle_weight")}
    cosines, logs, nearest = {"means": [], "weight": []}, [], []
    for k in range(classes):
        others = np.arange(classes) != k
        apart = ((M - M[k]) ** 2).sum(1)
        nearest.append((int(np.where(others, apart, np.inf).argmin()), float(np.sqrt(apart[others].min()))))
        found["cdnv"] += ((var + var[k]) / 2)[others] @ (1 / apart[others])
        left = apart - s2 / PER_CLASS - s2[k] / PER_CLASS
        found["cdnv_debiased"] += ((s2 + s2[k]) / 2)[others] @ (1 / left[others])
        logs.append(-np.log(((U - U[k]) ** 2).sum(1)[others]) / 2)
        for name, rows in (("means", U), ("weight", V)):
            cosines[name].append((rows @ rows[k])[others])
    pairs = classes * (classes - 1)
    found = {name: value / pairs for name, value in found.items()}
    for name, rows in cosines.items():
        values = np.concatenate(rows)
        found[f"equiangular_{name}"] = values.std()
        found[f"max_angle_{name}"] = np.abs(values + 1 / np.longdouble(classes - 1)).mean()
    logs = np.concatenate(logs)
    found |= {"uniformity_means": logs.mean(), "uniformity_means_variation": logs.std() / abs(logs.mean())}
    return {name: float(value) for name, value in found.items()}, nearest


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("close", "offset", "spread"), [(0.0, 0.0, 1e-1), (0.0, 30.0, 1e-6), (1e-5, 0.0, 0.0), (1e-3, 3.0, 0.0)]
)
def test_two_tiles_and_a_bit(close, offset, spread, dtype):
    H, y, W = features(close, offset, spread)
    H = H.to(dtype)
    expected, nearest = truth(H, y, W)
    # Without a second look in float32, which has its own tests.
    statistics = nc.ClassStatistics(K, D)
    statistics.update(H, y)
    report = statistics.report(W, metrics=NAMES)
    for name in NAMES:
        assert report[name] == pytest.approx(expected[name], rel=1e-9, abs=1e-13), name
    assert report.per_class.nearest.tolist() == [number for number, _ in nearest]
    assert report.per_class.nearest_distances.tolist() == pytest.approx([apart for _, apart in nearest], rel=1e-9)


def test_one_report_takes_one_pass_over_means_and_one_over_the_classifier(monkeypatch):
    H, y, W = features()
    taken = []
    tiles = _pairs.Rows.tiles
    monkeypatch.setattr(_pairs.Rows, "tiles", lambda self: (taken.append(self), tiles(self))[1])
    statistics = nc.ClassStatistics(K, D)
    statistics.update(H, y)
    together = statistics.report(W, metrics=NAMES)
    assert len(taken) == 2
    for name in NAMES:
        assert statistics.report(W, metrics=name)[name] == together[name]
    taken.clear()
    assert statistics.report(metrics="nc1_quotient").per_class.nearest.shape == (K,)
    assert len(taken) == 1


class Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that an operation made."""

    def __init__(self):
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.entries = max(self.entries, result.numel())
        return result


def test_no_matrix_of_all_pairs_is_held():
    classes = 400
    H, y, W = features(classes=classes)
    with Largest() as largest:
        report = nc.measure(H, y, W, metrics=NAMES)
    assert len(report.scalars) == len(NAMES)
    assert largest.entries <= max(_pairs.TILE**2, H.numel())


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_equal_angles_are_equal_to_the_last_digit(shift, monkeypatch):
    """A simplex, and one with a common part: all cosines agree, at -1/(K-1) or elsewhere."""
    classes = 600
    monkeypatch.setattr(_pairs, "TILE", 512)
    frame = simplex_etf(classes, classes - 1)
    y = torch.arange(classes).repeat(2)
    H = torch.cat([frame + 1e-3, frame - 1e-3])
    W, H = torch.nn.functional.pad(frame, (0, 1), value=shift), torch.nn.functional.pad(H, (0, 1))
    report = nc.measure(H, y, W, metrics=NAMES)
    cosine = (-1 / (classes - 1) + shift**2) / (1 + shift**2)
    assert report.equiangular_weight < 1e-14
    assert report.max_angle_weight == pytest.approx(cosine + 1 / (classes - 1), abs=1e-14)
    assert report.equiangular_means < 1e-13
    assert report.uniformity_means_variation < 1e-12


def test_means_that_coincide_are_named_wherever_they_stand():
    H, y, W = features()
    M = torch.stack([H[y == k].mean(0) for k in range(K)])
    statistics = nc.ClassStatistics.from_moments(torch.full((K,), 3), M.index_copy(0, torch.tensor([140]), M[3:4]))
    report = statistics.report(W, metrics=("cdnv", "uniformity_means", "equiangular_means"))
    assert "classes 3 and 140 coincide" in report.reasons["cdnv"]
    assert "classes 3 and 140 have the same direction" in report.reasons["uniformity_means"]
    assert report.equiangular_means > 0
    assert report.per_class.nearest[3] == 140
    assert report.per_class.nearest_distances[140] == 0


def test_a_zero_row_has_no_direction_and_leaves_the_rest():
    H, y, W = features(classes=20)
    W[4] = 0
    report = nc.measure(H, y, W, metrics=NAMES)
    assert "class 4 is zero" in report.reasons["equiangular_weight"]
    assert set(report.reasons) == {"equiangular_weight", "max_angle_weight"}
