import math

import pytest
import torch
from scipy.optimize import minimize

import neuralcollapse as nc
from neuralcollapse import frames

SIZES = [(k, d) for k in (2, 3, 5, 12) for d in (k - 1, k, k + 4)]


@pytest.mark.parametrize("seed", [None, 0, 5])
@pytest.mark.parametrize(("classes", "dim"), SIZES)
def test_simplex_etf_has_unit_rows_and_equal_cosines(classes, dim, seed):
    etf = frames.simplex_etf(classes, dim, seed)
    assert etf.shape == (classes, dim)
    assert etf.dtype == torch.float64
    cosines = etf @ etf.T
    off = cosines[~torch.eye(classes, dtype=torch.bool)]
    torch.testing.assert_close(cosines.diagonal(), torch.ones(classes, dtype=torch.float64), rtol=0, atol=1e-14)
    torch.testing.assert_close(off, torch.full_like(off, -1 / (classes - 1)), rtol=0, atol=1e-14)
    # tight: a multiple of the identity on its span
    singular = torch.linalg.svdvals(etf)
    torch.testing.assert_close(singular[: classes - 1].square(), torch.full((classes - 1,), classes / (classes - 1), dtype=torch.float64))


def test_seed_decides_the_random_frame_and_draws_from_haar():
    assert torch.equal(frames.simplex_etf(4, 6, 3), frames.simplex_etf(4, 6, 3))
    assert not torch.allclose(frames.simplex_etf(4, 6, 3), frames.simplex_etf(4, 6, 4))
    generator = torch.Generator().manual_seed(1)
    drawn = torch.stack([frames.simplex_etf(3, 4, generator)[0] for _ in range(4000)])
    # A Haar-random unit vector in R^4 has mean 0, covariance I/4 and fourth moments 3/(4*6).
    assert drawn.mean(0).abs().max() < 0.03
    assert (drawn.T @ drawn / 4000 - torch.eye(4) / 4).abs().max() < 0.02
    assert (drawn.pow(4).mean(0) - 3 / 24).abs().max() < 0.015


def test_orthogonal_frame():
    for seed in (None, 2):
        frame = frames.orthogonal_frame(4, 7, seed)
        torch.testing.assert_close(frame @ frame.T, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="dim must be at least num_classes = 4"):
        frames.orthogonal_frame(4, 3)


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize(("classes", "dim"), [(5, 1), (5, 2), (5, 3), (8, 3), (9, 6)])
def test_low_rank_etf_is_as_near_as_eckart_young_allows(classes, dim, seed):
    gram = frames.simplex_gram(classes)
    frame = frames.low_rank_etf(classes, dim, seed)
    eigenvalues = torch.linalg.eigvalsh(gram)
    best = eigenvalues[: classes - dim].square().sum().sqrt()  # the error of the best rank-d approximation
    torch.testing.assert_close((gram - frame @ frame.T).norm(), best)
    if seed is None and (dim % 2 == 0 or classes % 2 == 0):
        assert frame.norm(dim=1).std() < 1e-14


def test_low_rank_etf_above_the_limit_is_the_etf():
    assert torch.equal(frames.low_rank_etf(4, 3), frames.simplex_etf(4, 3))


def test_nearest_etf_beats_every_local_search():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 5, dtype=torch.float64, generator=generator)
    nearest = frames.nearest_etf(weight)
    torch.testing.assert_close(nearest.frame @ nearest.frame.T, frames.simplex_gram(4), rtol=0, atol=1e-13)
    torch.testing.assert_close(
        torch.tensor(nearest.distance, dtype=torch.float64), (weight - nearest.scale * nearest.frame).norm()
    )
    canonical = frames.simplex_etf(4, 5)

    def distance(flat):
        skew = torch.zeros(5, 5, dtype=torch.float64)
        index = torch.triu_indices(5, 5, 1)
        skew[index[0], index[1]] = torch.from_numpy(flat[:10])
        turned = canonical @ torch.linalg.matrix_exp(skew - skew.T)
        return float((weight - abs(flat[10]) * turned).norm())

    values = []
    for seed in range(6):
        start = torch.randn(11, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).numpy()
        values.append(minimize(distance, start, method="BFGS").fun)
    assert min(values) >= nearest.distance - 1e-9
    assert min(values) <= nearest.distance + 1e-5  # a search over rotations finds the same


def test_nearest_etf_recovers_a_scaled_etf_and_survives_rank_deficiency():
    etf = frames.simplex_etf(6, 9, seed=4)
    found = frames.nearest_etf(2.5 * etf + 0.7)  # the ones direction of R^K is projected away
    assert math.isclose(found.scale, frames.nearest_etf(2.5 * etf).scale, rel_tol=1e-12)
    exact = frames.nearest_etf((2.5 * etf).float())
    assert exact.relative_distance < 1e-6
    degenerate = frames.nearest_etf(torch.ones(4, 6, dtype=torch.float64))
    assert degenerate.scale < 1e-14
    torch.testing.assert_close(degenerate.frame @ degenerate.frame.T, frames.simplex_gram(4), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: frames.simplex_etf(1, 4), ValueError, "num_classes must be at least 2, got 1"),
        (lambda: frames.simplex_etf(5, 3), ValueError, "dim must be at least num_classes - 1 = 4"),
        (lambda: frames.simplex_etf(5, 0), ValueError, "dim must be at least 1"),
        (lambda: frames.nearest_etf(torch.zeros(3)), ValueError, "weight must have shape"),
        (lambda: frames.nearest_etf(torch.zeros(5, 2)), ValueError, "d >= K-1"),
        (lambda: frames.nearest_etf(torch.full((3, 3), math.nan)), ValueError, "weight must be finite"),
        (lambda: frames.nearest_etf(torch.zeros(3, 3, dtype=torch.int64)), ValueError, "floating point"),
    ],
)
@pytest.mark.unchecked
def test_bad_input_names_the_argument(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_public_names():
    assert nc.frames is frames
