"""Class statistics: exact in any split of the data, mergeable, on disk and back."""

import mpmath
import numpy as np
import pytest
import torch

import naive
import neuralcollapse as nc

K, D = 6, 9


def data(seed=0, spread=0.3, offset=2.0, dtype=torch.float64, samples=200):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, K, (samples,), generator=generator)
    means = torch.randn(K, D, generator=generator, dtype=torch.float64)
    H = means[y] + spread * torch.randn(samples, D, generator=generator, dtype=torch.float64) + offset
    W = torch.randn(K, D, generator=generator, dtype=torch.float64)
    return H.to(dtype), y, W, torch.randn(K, generator=generator, dtype=torch.float64)


def stream(H, y, size, order=None, passes=1):
    order = torch.arange(len(y)) if order is None else order
    statistics = nc.ClassStatistics(K, D, passes=passes)
    for index in order.split(size):
        statistics.update(H[index], y[index])
    return statistics


def assert_same(first, second, rel=1e-10):
    assert first.reasons == second.reasons
    for name, value in first.scalars.items():
        assert second[name] == pytest.approx(value, rel=rel, abs=1e-15), name


@pytest.mark.parametrize("spread", [1.0, 1e-4, 1e-8])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_batch_size_order_and_merges_change_nothing(spread, dtype):
    H, y, W, b = data(spread=spread, dtype=dtype)
    whole = stream(H, y, 1000).report(W, b)
    for size in (1, 7, 64):
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(size))
        assert_same(whole, stream(H, y, size, order).report(W, b))
    by_class = torch.argsort(y)
    assert_same(whole, stream(H, y, 13, by_class).report(W, b))
    merged = nc.ClassStatistics(K, D)
    for part in torch.randperm(len(y), generator=torch.Generator().manual_seed(9)).split(11):
        other = nc.ClassStatistics(K, D)
        other.update(H[part], y[part])
        merged.merge(other)
    assert_same(whole, merged.report(W, b))


@pytest.mark.parametrize("passes", [1, 2])
def test_the_second_pass_gives_every_metric_whatever_the_split(passes):
    H, y, W, b = data(spread=0.5)
    expected = naive.all_metrics(H, y, W, b)
    for size in (3, 17, 200):
        first = stream(H, y, size, passes=passes)
        second = first.second_pass(W, b, metrics="all")
        parts = [first.second_pass(W, b, metrics="all") for _ in range(2)]
        for number, index in enumerate(torch.arange(len(y)).flip(0).split(size)):
            parts[number % 2].update(H[index], y[index])
        for part in parts:
            second.merge(part)
        report = second.report()
        assert set(report.reasons) - {"vci", "nc1_debiased"} == {
            "nc5_ood", "nc2_projected", "nc2_means_projected", "nc3_projected"
        }  # fmt: skip
        for name, value in report.scalars.items():
            assert value == pytest.approx(expected[name], rel=1e-10), name
    assert report.cosine_margins.shape == (200,)
    assert report.cosine_margin_quantiles["0.5"] == pytest.approx(float(report.cosine_margins.quantile(0.5)))


def test_means_and_covariance_are_those_of_the_definition():
    H, y, _, _ = data()
    statistics = stream(H, y, 32)
    within, _ = naive.covariances(H.numpy(), y.numpy(), K)
    assert torch.allclose(statistics.within_covariance, torch.tensor(within), rtol=1e-12, atol=1e-15)
    assert torch.allclose(statistics.means, torch.tensor(naive.class_means(H.numpy(), y.numpy(), K)), rtol=1e-14)
    assert torch.allclose(statistics.global_mean, H.mean(0), rtol=1e-14)
    assert torch.equal(statistics.counts, torch.bincount(y, minlength=K))
    assert stream(H, y, 32, passes=2).within_covariance is None


def exact_nc1(H, y, classes):
    """nc1 in 60 digits: tr(S_W S_B^+)/K through the eigenvalues of the Gram matrix of the means."""
    with mpmath.workdps(60):
        rows = [[mpmath.mpf(float(v)) for v in row] for row in H]
        N, dim = len(rows), len(rows[0])
        counts = [sum(1 for label in y if label == k) for k in range(classes)]
        means = [
            [mpmath.fsum(rows[i][j] for i in range(N) if y[i] == k) / counts[k] for j in range(dim)]
            for k in range(classes)
        ]
        centre = [mpmath.fsum(row[j] for row in rows) / N for j in range(dim)]
        M = mpmath.matrix([[means[k][j] - centre[j] for j in range(dim)] for k in range(classes)])
        D = mpmath.matrix([[rows[i][j] - means[y[i]][j] for j in range(dim)] for i in range(N)])
        # tr(S_W S_B^+)/K = (1/N) tr(D'D (M'M)^+), and M'(MM')^+2 M = (M'M)^+
        gram = M * M.T
        values, vectors = mpmath.eigsy(gram)
        kept = [i for i in range(classes) if values[i] > values[classes - 1] * mpmath.mpf(10) ** -40]
        total = mpmath.mpf(0)
        A = D * M.T
        for i in kept:
            v = vectors[:, i]
            total += mpmath.norm(A * v) ** 2 / values[i] ** 2
        return float(total / N)


@pytest.mark.parametrize("spread", [1e-2, 1e-5, 1e-10])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_nc1_of_float64_features_down_to_1e_minus_20(spread, offset):
    classes, dim, n = 4, 5, 6
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(classes).repeat(n)
    H = torch.randn(classes, dim, generator=generator, dtype=torch.float64)[y] + offset
    H = H + spread * torch.randn(classes * n, dim, generator=generator, dtype=torch.float64)
    truth = exact_nc1(H.tolist(), y.tolist(), classes)
    assert truth == pytest.approx(spread**2 * 0.9, rel=5)
    for passes in (1, 2):
        assert nc.measure(H, y, passes=passes, metrics="nc1").nc1 == pytest.approx(truth, rel=1e-9)
        statistics = nc.ClassStatistics(classes, dim, passes=passes)
        for i in range(len(y)):
            statistics.update(H[i : i + 1], y[i : i + 1])
        second = statistics.second_pass(metrics="nc1")
        second.update(H, y)
        assert second.report().nc1 == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("spread", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(("classes", "dim", "n"), [(10, 64, 50), (30, 128, 20)])
def test_nc1_of_float32_features_near_collapse_with_a_large_offset(spread, classes, dim, n):
    generator = torch.Generator().manual_seed(2)
    y = torch.arange(classes).repeat(n)
    means = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    noise = spread * torch.randn(classes * n, dim, generator=generator, dtype=torch.float64)
    H = (means[y] + noise + 30 * torch.randn(dim, generator=generator, dtype=torch.float64)).to(torch.float32)
    truth = nc.measure(H.to(torch.float64), y, passes=2, metrics="nc1").nc1
    within, between = naive.covariances(H.double().numpy(), y.numpy(), classes)
    direct = np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / classes
    assert truth == pytest.approx(direct, rel=1e-6)
    for passes in (1, 2):
        report = nc.measure(H, y, passes=passes, metrics=["nc1", "nc1_quotient", "cdnv"])
        assert report.nc1 == pytest.approx(truth, rel=1e-3)
        exact = nc.measure(H.to(torch.float64), y, metrics=["nc1_quotient", "cdnv"])
        assert report.nc1_quotient == pytest.approx(exact.nc1_quotient, rel=1e-3)
        assert report.cdnv == pytest.approx(exact.cdnv, rel=1e-3)


@pytest.mark.parametrize(("n", "d"), [(30, 8), (8, 30), (20, 20)])
@pytest.mark.parametrize("spread", [0.0, 1e-9, 1e-5, 1e-2, 1.0])
def test_numerical_rank_against_singular_values_in_many_digits(n, d, spread):
    generator = torch.Generator().manual_seed(4)
    y = torch.arange(2).repeat_interleave(n)
    H = torch.randn(2, d, generator=generator, dtype=torch.float64)[y] + 5
    H = H + spread * torch.randn(2 * n, d, generator=generator, dtype=torch.float64)
    singular = [torch.linalg.svdvals(H[y == k]) for k in range(2)]
    truth = sum(float(s.sum() ** 2 / s.square().sum()) for s in singular) / 2
    statistics = nc.ClassStatistics(2, d)
    statistics.update(H, y)
    second = statistics.second_pass(metrics="numerical_rank")
    for index in torch.randperm(2 * n, generator=generator).split(7):
        second.update(H[index], y[index])
    for value in (nc.measure(H, y, metrics="numerical_rank").numerical_rank, second.report().numerical_rank):
        assert value == pytest.approx(truth, rel=1e-9)


def test_save_and_load_keep_every_bit(tmp_path):
    H, y, W, b = data()
    for passes in (1, 2):
        statistics = stream(H, y, 50, passes=passes)
        path = tmp_path / f"statistics{passes}.safetensors"
        statistics.save(path)
        again = nc.ClassStatistics.load(path)
        assert again.report(W, b).to_dict() == statistics.report(W, b).to_dict()
        again.update(H, y)
        assert again.total == 400


def test_files_that_hold_no_statistics_are_refused(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "x.safetensors"
    for content in (b"", b"not a file", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.safetensors"):
            nc.ClassStatistics.load(path)
    save_file({"mean": torch.zeros(2, 3)}, path)
    with pytest.raises(ValueError, match="does not hold class statistics"):
        nc.ClassStatistics.load(path)
    good = stream(*data()[:2], 50)
    good.save(path)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ValueError, match=r"x\.safetensors"):
        nc.ClassStatistics.load(path)
    bad = good.state()
    bad["mean"] = torch.full_like(bad["mean"], torch.nan)
    save_file(bad, path, metadata={"format": "neuralcollapse.ClassStatistics/1", "passes": "1"})
    with pytest.raises(ValueError, match="must be finite"):
        nc.ClassStatistics.load(path)
    with pytest.raises((FileNotFoundError, ValueError)):
        nc.ClassStatistics.load(tmp_path / "none.safetensors")


def test_reset_and_ignored_labels():
    H, y, W, b = data()
    statistics = nc.ClassStatistics(K, D)
    statistics.update(H, torch.full_like(y, -100))
    assert statistics.total == 0
    with pytest.raises(ValueError, match="no samples"):
        statistics.report()
    marked = torch.cat([y, torch.full((50,), -100)])
    statistics.update(torch.cat([H, torch.randn(50, D).double()]), marked)
    assert_same(stream(H, y, 1000).report(W, b), statistics.report(W, b))
    statistics.reset()
    assert statistics.total == 0
    statistics.update(H, y)
    assert statistics.total == 200


def test_a_bad_batch_raises_and_changes_nothing():
    H, y, _, _ = data()
    statistics = stream(H, y, 50)
    before = statistics.state()
    bad = H.clone()
    bad[150, 3] = torch.nan
    infinite = H.clone()
    infinite[7, 0] = torch.inf
    for features, labels, words in (
        (bad, y, "row 150"),
        (infinite, y, "row 7"),
        (H, torch.where(y == 2, K, y), f"label {K} "),
        (H, torch.where(y == 2, -1, y), "label -1 "),
        (H[:, :4], y, "9 columns"),
        (H, y[:10], "one entry per row"),
        (H[:, None], y, "shape"),
    ):
        with pytest.raises(ValueError, match=words):
            statistics.update(features, labels)
    for features, labels in (
        (H.to(torch.int64), y),
        (H, y.double()),
        ("H", y),
        (H, None),
        (H.to(torch.complex64), y),
    ):
        with pytest.raises(TypeError):
            statistics.update(features, labels)
    for name, tensor in statistics.state().items():
        assert torch.equal(tensor, before[name])


def test_what_cannot_be_merged_is_refused():
    statistics = nc.ClassStatistics(K, D)
    for other in (nc.ClassStatistics(K, D + 1), nc.ClassStatistics(K, D, passes=2), statistics):
        with pytest.raises(ValueError, match="statistics"):
            statistics.merge(other)
    with pytest.raises(TypeError):
        statistics.merge("statistics")
    H, y, W, b = data()
    first = stream(H, y, 50)
    second = first.second_pass(W, b, metrics="all")
    second.update(H[:100], y[:100])
    with pytest.raises(ValueError, match="second pass saw 100 samples and the first 200"):
        second.report()
    with pytest.raises(ValueError, match="itself"):
        second.merge(second)
    with pytest.raises(ValueError, match="different class means"):
        second.merge(stream(H[:50], y[:50], 50).second_pass(W, b))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((1, 3), "num_classes"), ((3, 0), "dim"), ((2.5, 3), "num_classes"), ((True, 3), "num_classes")],
)
def test_bad_sizes(arguments, words):
    with pytest.raises((ValueError, TypeError), match=words):
        nc.ClassStatistics(*arguments)


def test_files_of_the_first_format_are_still_read(tmp_path):
    from safetensors.torch import save_file

    H, y, W, b = data()
    means = torch.stack([H[y == k].mean(0) for k in range(K)])
    rest = H - means[y]
    state = {
        "counts": torch.bincount(y, minlength=K),
        "mean": means - 1e-9,
        "mean_tail": torch.full_like(means, 1e-9),
        "squares": torch.stack([rest[y == k].square().sum() for k in range(K)]),
        "scatter": rest.T @ rest,
    }
    path = tmp_path / "old.safetensors"
    save_file(state, path, metadata={"format": "neuralcollapse.ClassStatistics/1", "passes": "1"})
    read = nc.ClassStatistics.load(path)
    assert_same(stream(H, y, 50).report(W, b), read.report(W, b), rel=1e-7)
    read.update(H, y)
    assert read.total == 2 * len(y)


def test_a_second_pass_travels_without_the_class_means(tmp_path):
    import pickle

    generator = torch.Generator().manual_seed(0)
    classes, dim = 300, 64
    y = torch.arange(classes).repeat(4)
    H = torch.randn(classes, dim, generator=generator)[y] + 0.1 * torch.randn(len(y), dim, generator=generator)
    W = torch.randn(classes, dim, generator=generator)
    statistics = nc.ClassStatistics(classes, dim, passes=2)
    statistics.update(H, y)
    expected = statistics.second_pass(W, metrics="core")
    expected.update(H, y)
    parts = []
    for number, rows in enumerate(torch.arange(len(y)).split(500)):
        part = pickle.loads(pickle.dumps(statistics.second_pass(W, metrics="core")))
        part.update(H[rows], y[rows])
        parcel = pickle.dumps(part)
        assert len(parcel) < classes * dim * 8 / 4
        parts.append(pickle.loads(parcel))
        part.save(tmp_path / f"{number}.safetensors")
    for found in (parts, [nc.metrics.SecondPass.load(tmp_path / f"{n}.safetensors") for n in range(len(parts))]):
        with pytest.raises(ValueError, match="holds sums only"):
            found[0].report()
        first = found[0].merge(found[1])
        whole = statistics.second_pass(W, metrics="core").merge(first).merge(found[2])
        assert_same(expected.report(), whole.report(), rel=1e-12)
    other = nc.ClassStatistics(classes, dim, passes=2)
    other.update(H + 1, y)
    with pytest.raises(ValueError, match="different class means"):
        other.second_pass(W, metrics="core").merge(parts[0])
    (tmp_path / "0.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"0\.safetensors"):
        nc.metrics.SecondPass.load(tmp_path / "0.safetensors")


def test_decisions_on_a_stated_sample_of_rows():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(20).repeat_interleave(200)
    H = torch.randn(20, 8, generator=generator)[y] + torch.randn(len(y), 8, generator=generator)
    W = torch.randn(20, 8, generator=generator)
    whole = nc.measure(H, y, W, metrics=["nc1", "nc4_mismatch", "cosine_margin"])
    part = nc.measure(H, y, W, metrics=["nc1", "nc4_mismatch", "cosine_margin"], decision_rows=1000)
    assert part.nc1 == whole.nc1
    assert part.nc4_mismatch == pytest.approx(whole.nc4_mismatch, abs=0.05)
    assert part.nc4_mismatch != whole.nc4_mismatch
    note = next(note for note in part.notes if "were decided" in note)
    assert abs(int(note.split()[0]) - 1000) < 20
    assert part.cosine_margins.shape[0] == int(note.split()[0])
    statistics = nc.ClassStatistics(20, 8)
    statistics.update(H, y)
    second = statistics.second_pass(W, decision_rows=1000)
    for rows in torch.arange(len(y)).split(77):
        second.update(H[rows], y[rows])
    assert second.report().nc4_mismatch == part.nc4_mismatch
    with pytest.raises(ValueError, match="decision_rows"):
        nc.measure(H, y, W, decision_rows=0)
