"""Distances to the exact geometry: zero at solves that do not know it, and more elsewhere."""

import pytest
import torch

from neuralcollapse import frames
from neuralcollapse.ufm import RegularizedUFM, optimum_means, optimum_weight, solve


@pytest.mark.parametrize("bias", [None, 0.0])
@pytest.mark.parametrize("counts", [[9, 4, 2], [8, 8, 2], 5])
def test_a_solve_is_at_distance_zero_and_a_simplex_is_not(counts, bias):
    problem = RegularizedUFM("ce", 3, counts, 5, 0.01, 0.02, bias)
    point = solve(problem, "trust-region", seed=0, tol=1e-11).point
    starts = [sum(problem.counts[:k]) for k in range(3)]
    arguments = (counts, 0.01, 0.02, bias)
    assert optimum_weight(point.W, *arguments) < 1e-7
    assert optimum_means(point.H[starts], *arguments) < 1e-7
    etf = frames.simplex_etf(3, 5, 1)
    away = optimum_weight(etf, *arguments)
    assert away < 1e-12 if isinstance(counts, int) else away > 0.02


def test_what_has_no_geometry_is_refused():
    with pytest.raises(ValueError, match="weight given is zero"):
        optimum_weight(torch.zeros(3, 4), 5, 0.01, 0.01)
    with pytest.raises(ValueError, match="optimum at these decays is zero"):
        optimum_weight(torch.ones(3, 4), 5, 10.0, 10.0)


def test_means_are_compared_about_the_mean_of_all_samples():
    counts, means = [9, 4, 2], torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    problem = RegularizedUFM("ce", 3, counts, 5, 0.01, 0.02)
    exact = problem.optimum().point.H[[0, 9, 13]]
    grams = []
    for rows in (means, exact):
        samples = torch.repeat_interleave(rows, torch.tensor(counts), dim=0)
        centred = rows - samples.mean(0)
        grams.append(centred @ centred.T)
    expected = float((grams[0] / grams[0].norm() - grams[1] / grams[1].norm()).norm())
    assert optimum_means(means, counts, 0.01, 0.02) == pytest.approx(expected, rel=1e-6)
