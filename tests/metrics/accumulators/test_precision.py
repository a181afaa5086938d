"""Features that span fewer directions than they have, in every dtype, against float64 truths made by hand."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcollapse as nc
from neuralcollapse.metrics import NeuralCollapse
from neuralcollapse.metrics.accumulators.scatter import add_gram, symmetric

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-3}


def normal(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def bottleneck(classes=50, per_class=200, inner=20, dim=128, offset=0.1):
    """Linear(20 -> 128): the features span 20 directions."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(classes).repeat(per_class)
    inside = normal(generator, classes, inner)[y] + 0.5 * normal(generator, len(y), inner)
    return inside @ normal(generator, inner, dim) / inner**0.5 + offset * normal(generator, dim), y, inner


def layer_norm(classes, per_class, dim, offset=0.0, between=1.0):
    """LayerNorm: one direction less than there are dimensions, whatever its weight and bias."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(classes).repeat(per_class)
    rows = between * normal(generator, classes, dim)[y] + normal(generator, len(y), dim)
    rows = nn.functional.layer_norm(rows, (dim,))
    if offset:
        rows = rows * (1 + 0.1 * normal(generator, dim)) + offset * normal(generator, dim)
    return rows, y, dim - 1


CASES = {
    "bottleneck": bottleneck(),
    "bottleneck, offset": bottleneck(offset=3.0),
    "layer norm, d < K": layer_norm(300, 30, 192),
    "layer norm, d << K": layer_norm(1000, 20, 64),
    "layer norm with bias": layer_norm(1000, 20, 64, offset=2.0, between=0.5),
    "layer norm of ViT's shape, smaller": layer_norm(260, 12, 200),
    "layer norm, K - 1 < d": layer_norm(60, 30, 96),
}


def truth(H, y, rank):
    """nc1 and vci from their definitions, with pseudo-inverses of the known rank."""
    H, y = H.double().numpy(), y.numpy()
    K, rank = int(y.max()) + 1, min(rank, int(y.max()))
    means = np.zeros((K, H.shape[1]))
    np.add.at(means, y, H)
    means /= np.bincount(y)[:, None]
    C, D = means - H.mean(0), H - means[y]
    within, between = D.T @ D / len(H), C.T @ C / K
    values, vectors = np.linalg.eigh(between)
    inverse = (vectors[:, -rank:] / values[-rank:]) @ vectors[:, -rank:].T
    values, vectors = np.linalg.eigh(within + between)
    kept = values > 1e-12 * values[-1]
    whole = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return np.trace(within @ inverse) / K, 1 - np.trace(whole @ between) / rank, rank


TRUTHS = {name: truth(*case) for name, case in CASES.items()}


def every_way(H, y, classes):
    """Reports by one and two passes, in memory and streamed, merged, saved and through torchmetrics."""
    names = ["nc1", "vci"]
    yield "measure, one pass", nc.measure(H, y, metrics=names, passes=1)
    yield "measure, two passes", nc.measure(H, y, metrics="nc1", passes=2)
    parts = []
    for rows in torch.arange(len(y)).split(len(y) // 3 + 1):
        parts.append(nc.ClassStatistics(classes, H.shape[1]))
        parts[-1].update(H[rows], y[rows])
    for part in parts[1:]:
        parts[0].merge(part)
    yield "merged", parts[0].report(metrics=names)
    two = nc.ClassStatistics(classes, H.shape[1], passes=2)
    two.update(H, y)
    second = two.second_pass(metrics="nc1")
    second.update(H, y)
    yield "second pass", second.report()
    metric = NeuralCollapse(classes, H.shape[1], names)
    metric.update(H, y)
    yield "torchmetrics", metric.report()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_directions_of_rounding_errors_do_not_count(name, dtype):
    H, y, _ = CASES[name]
    nc1, vci, rank = TRUTHS[name]
    classes = int(y.max()) + 1
    reports = list(every_way(H.to(dtype), y, classes)) if len(y) * H.shape[1] < 4e6 else []
    reports = reports or [("measure", nc.measure(H.to(dtype), y, metrics=["nc1", "vci"]))]
    for way, report in reports:
        assert report.rank == rank, way
        assert report.nc1 == pytest.approx(nc1, rel=TOLERANCE[dtype]), way
        if "vci" in report.values:
            assert report.vci == pytest.approx(vci, rel=2 * TOLERANCE[dtype]), way
        noted = [note for note in report.notes if "directions" in note]
        assert bool(noted) == (rank < min(classes - 1, H.shape[1])), way
        if noted:
            assert f"{rank} of {min(classes - 1, H.shape[1])}" in noted[0]


def test_one_half_precision_batch_decides_for_all(tmp_path):
    H, y, rank = CASES["bottleneck"]
    mixed = nc.ClassStatistics(50, 128)
    mixed.update(H[:5000].float(), y[:5000])
    assert mixed.precision is torch.float32
    other = nc.ClassStatistics(50, 128)
    other.update(H[5000:].bfloat16(), y[5000:])
    mixed.merge(other)
    mixed.update(H[:50], y[:50])
    assert mixed.precision is torch.bfloat16
    mixed.save(tmp_path / "statistics.safetensors")
    again = nc.ClassStatistics.load(tmp_path / "statistics.safetensors")
    assert again.precision is torch.bfloat16
    assert again.report(metrics="nc1").rank == rank
    empty = nc.ClassStatistics(50, 128)
    empty.set_state(mixed.state())
    assert empty.precision is torch.bfloat16
    empty.reset()
    assert empty.precision is torch.float64


def test_features_that_autocast_rounded_before_they_became_float32():
    H, y, rank = CASES["bottleneck"]
    nc1 = TRUTHS["bottleneck"][0]
    hidden = H.bfloat16().float()
    assert nc.measure(hidden, y, metrics="nc1").nc1 > 2 * nc1
    report = nc.measure(hidden, y, metrics="nc1", precision=torch.bfloat16)
    assert report.nc1 == pytest.approx(nc1, rel=1e-2)
    assert report.rank == rank
    statistics = nc.ClassStatistics(50, 128)
    statistics.update(hidden, y, precision=torch.bfloat16)
    assert statistics.report(metrics="nc1").nc1 == pytest.approx(report.nc1, rel=1e-4)
    assert nc.measure(H.bfloat16(), y, metrics="nc1", precision=torch.float32).rank == rank
    with pytest.raises(TypeError, match="precision must be None or one of"):
        nc.measure(H, y, precision=torch.int32)


@pytest.mark.parametrize("passes", [1, 2])
def test_deep_collapse_and_widely_spread_means_lose_nothing(passes):
    generator = torch.Generator().manual_seed(3)
    classes, dim, per_class = 30, 128, 20
    y = torch.arange(classes).repeat(per_class)
    means = normal(generator, classes, dim)
    deep = means[y] + 1e-6 * normal(generator, len(y), dim) + 30
    left, _, right = torch.linalg.svd(means - means.mean(0), full_matrices=False)
    values = torch.logspace(1, -3, classes - 1, dtype=torch.float64)
    spread = ((left[:, :-1] * values) @ right[:-1])[y] + 1e-3 * normal(generator, len(y), dim)
    for H in (deep.float(), spread.float()):
        nc1, vci, rank = truth(H, y, classes - 1)
        report = nc.measure(H, y, metrics=["nc1", "vci"] if passes == 1 else "nc1", passes=passes)
        assert report.rank == rank == classes - 1
        assert report.nc1 == pytest.approx(nc1, rel=1e-3)
        if passes == 1:
            assert report.vci == pytest.approx(vci, rel=1e-3)
        assert not [note for note in report.notes if "directions" in note]


def test_means_within_the_rounding_have_no_nc1():
    generator = torch.Generator().manual_seed(4)
    y = torch.arange(4).repeat(50)
    H = (1000 + 1e-5 * normal(generator, 4, 6)[y] + 1e-5 * normal(generator, 200, 6)).float()
    report = nc.measure(H, y, metrics=["nc1", "nc2_means"])
    assert report.nc1 is None
    assert "rounding of float32" in report.reasons["nc1"] or "coincide" in report.reasons["nc1"]
    small = (normal(generator, 4, 6)[y] * 1e-8).half()
    assert nc.measure(small, y, metrics="nc1").reasons["nc1"].startswith("all class means coincide")


def test_decisions_do_not_depend_on_the_directions_that_count():
    generator = torch.Generator().manual_seed(5)
    classes, dim = 12, 16
    y = torch.arange(classes).repeat(100)
    H = (normal(generator, classes, dim)[y] * 0.02 + 0.02 * normal(generator, len(y), dim) + 1).bfloat16()
    W, exact = normal(generator, classes, dim), H.double()
    means = torch.stack([exact[y == k].mean(0) for k in range(classes)])
    wrong = (exact @ W.T).argmax(1) != torch.cdist(exact, means, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
    report = nc.measure(H, y, W, metrics=["nc1", "nc4_mismatch"])
    assert report.rank < classes - 1
    assert report.nc4_mismatch == pytest.approx(float(wrong.double().mean()), abs=2 / len(y))


@pytest.mark.parametrize("kind", ["deep", "ordinary", "spread widely", "bottleneck", "more samples than dimensions"])
def test_products_in_float32_are_exact_enough_or_not_taken(kind):
    """vci and numerical_rank of float32 features against definitions in float64 on the same features."""
    generator = torch.Generator().manual_seed(6)
    classes, dim, per_class = 12, 96, 150 if kind == "more samples than dimensions" else 60
    y = torch.arange(classes).repeat(per_class)
    means, noise = normal(generator, classes, dim)[y], normal(generator, len(y), dim)
    if kind == "deep":
        H = means + 1e-6 * noise + 30
    elif kind == "spread widely":
        H = means + noise * torch.logspace(0, -2, dim, dtype=torch.float64)
    elif kind == "bottleneck":
        H = (means + noise)[:, :20] @ normal(generator, 20, dim)
    else:
        H = means + 0.3 * noise + 1
    H = H.float()
    report = nc.measure(H, y, metrics=["vci", "numerical_rank"])
    _, vci, _ = truth(H, y, 20 if kind == "bottleneck" else classes - 1)
    singular = [torch.linalg.svdvals(H[y == k].double()) for k in range(classes)]
    rank = sum(float(s.sum() ** 2 / s.square().sum()) for s in singular) / classes
    assert report.vci == pytest.approx(vci, rel=1e-4)
    assert report.numerical_rank == pytest.approx(rank, rel=1e-5)


@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-6])
def test_many_classes_in_few_dimensions(smallest):
    """The Gram matrix of the means is used where it has the digits, and only there."""
    generator = torch.Generator().manual_seed(7)
    classes, dim = 200, 20
    y = torch.arange(classes).repeat(6)
    scales = torch.logspace(0, float(np.log10(smallest)), dim, dtype=torch.float64)
    H = ((normal(generator, classes, dim)[y] + 0.2 * normal(generator, len(y), dim)) * scales).float()
    means = torch.stack([H[y == k].double().mean(0) for k in range(classes)])
    _, values, directions = torch.linalg.svd(means - H.double().mean(0), full_matrices=False)
    expected = float((((H.double() - means[y]) @ directions.T) / values).square().sum() / len(y))
    report = nc.measure(H, y, metrics="nc1")
    assert report.rank == dim
    assert report.nc1 == pytest.approx(expected, rel=1e-5)


def waited(monkeypatch):
    """The sizes of the blocks of rows that were left to the scatter of a second look."""
    from neuralcollapse.metrics.accumulators import Scatter

    sizes, room = [], Scatter.room
    monkeypatch.setattr(Scatter, "room", lambda self, count, dtype: (sizes.append(count), room(self, count, dtype))[1])
    return sizes


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize(("classes", "dim"), [(60, 40), (45, 50)])
@pytest.mark.parametrize(("spread", "offset"), [(0.3, 1.0), (1e-2, 30.0)])
def test_nc1_of_many_classes_comes_from_the_scatter(classes, dim, spread, offset, dtype, monkeypatch):
    generator = torch.Generator().manual_seed(8)
    y = torch.arange(classes).repeat(12)
    # Singular values of one size: orthonormal columns, or rows up to their mean.
    tall = torch.linalg.qr(normal(generator, max(classes, dim), min(classes, dim))).Q
    means = (tall if classes > dim else tall.T) * classes**0.5
    H = (means[y] + spread * normal(generator, len(y), dim) + offset).to(dtype)
    sizes = waited(monkeypatch)
    report = nc.measure(H, y, metrics="nc1")
    assert sum(sizes) == len(y)
    nc1, _, rank = truth(H, y, min(dim, classes - 1))
    assert report.rank == rank
    assert report.nc1 == pytest.approx(nc1, rel=1e-5)
    again = nc.measure(H, y, metrics="nc1", passes=2).nc1
    assert report.nc1 == pytest.approx(again, rel=1e-5)  # products in float32 promise no more
    assert sum(sizes) == len(y)


def test_nc1_of_many_classes_at_deep_collapse(monkeypatch):
    generator = torch.Generator().manual_seed(9)
    y = torch.arange(60).repeat(12)
    means = torch.linalg.qr(normal(generator, 60, 40)).Q * 60**0.5
    H = (means[y] + 1e-6 * normal(generator, len(y), 40) + 30).float()
    sizes = waited(monkeypatch)
    report = nc.measure(H, y, metrics="nc1")
    assert sum(sizes) == len(y)
    assert report.nc1 == pytest.approx(truth(H, y, 40)[0], rel=1e-5)


def test_a_scatter_that_hides_the_span_of_the_means_is_not_used():
    """Variances of 1 off the span of the means and 1e-8 along it, turned so that every entry mixes the two."""
    generator = torch.Generator().manual_seed(10)
    classes, dim = 40, 50
    y = torch.arange(classes).repeat(12)
    frame = torch.nn.functional.pad(nc.frames.simplex_etf(classes, classes - 1), (0, dim - classes + 1))
    half = normal(generator, len(y) // 2, dim)
    half[:, : classes - 1] *= 1e-4
    # In pairs, so that the class means have none of it.
    noise = torch.cat([half, -half])
    turn = torch.linalg.qr(normal(generator, dim, dim)).Q
    H = ((frame[y] + noise) @ turn).float()
    assert nc.measure(H, y, metrics="nc1").nc1 == pytest.approx(truth(H, y, classes - 1)[0], rel=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("per_class", "dim"), [(40, 90), (150, 30), (1, 20), (2, 20)])
@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_numerical_ranks_of_every_dtype(per_class, dim, offset, dtype):
    generator = torch.Generator().manual_seed(11)
    y = torch.arange(4).repeat(per_class)
    y = torch.cat([y, torch.tensor([0])])
    H = (normal(generator, 4, dim)[y] + 0.4 * normal(generator, len(y), dim) + offset).to(dtype)
    singular = [torch.linalg.svdvals(H[y == k].double()) for k in range(4)]
    expected = sum(float(s.sum() ** 2 / s.square().sum()) for s in singular) / 4
    tolerance = 1e-10 if dtype == torch.float64 else 1e-6
    assert nc.measure(H, y, metrics="numerical_rank").numerical_rank == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("per_class", [90, 300])
@pytest.mark.parametrize("spread", [0.5, 1e-3, 1e-5])
def test_wide_float32_products_are_those_of_float64_near_collapse(per_class, spread):
    """Gram matrices of more than 128 columns, of both sides of a class, about an offset thirty times the means."""
    numbers = torch.Generator().manual_seed(3)
    classes, dim = 4, 200
    labels = torch.arange(classes * per_class) % classes
    means = torch.randn(classes, dim, generator=numbers) + 30 * torch.randn(dim, generator=numbers)
    features = means[labels] + spread * torch.randn(len(labels), dim, generator=numbers)
    names = ("nc1", "vci", "numerical_rank", "nc1_debiased")
    found = nc.measure(features, labels, metrics=names)
    truth = nc.measure(features.double(), labels, metrics=names, precision=torch.float32)
    for name in names:
        assert found[name] == pytest.approx(truth[name], rel=2e-5), name


def test_gram_matrices_do_not_depend_on_the_library_that_multiplies(monkeypatch):
    rows = torch.randn(3000, 300, generator=torch.Generator().manual_seed(0))
    totals = [torch.zeros(300, 300, dtype=torch.float64) for _ in range(2)]
    add_gram(totals[0], rows)
    monkeypatch.setattr("neuralcollapse.metrics.accumulators.scatter.has_wide_products", lambda rows: False)
    add_gram(totals[1], rows)
    exact = rows.double().T @ rows.double()
    for total in totals:
        assert float((symmetric(total) - exact).abs().max()) < 1e-6 * float(exact.max())
