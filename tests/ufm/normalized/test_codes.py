"""Normalised models with more classes than a simplex has room for: never beaten by many starts, and reached."""

import math
from itertools import combinations_with_replacement

import pytest

from neuralcollapse.ufm import NormalizedUFM, solve
from neuralcollapse.ufm.normalized.optimum import best_sizes, simplices_value


def best_of(problem, starts=6):
    return min(
        solve(problem, "lbfgs", seed=seed, tol=1e-9, max_iter=2000, record=()).value for seed in range(starts)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("classes", "dim", "temperature", "regime", "simplices"),
    [
        (6, 3, 0.5, "cross-polytope", None),
        (6, 3, 5.0, "cross-polytope", None),
        (5, 2, 2.0, "polygon", None),
        (8, 2, 0.7, "polygon", None),
        (4, 2, 3.0, "cross-polytope", None),
        (6, 4, 0.5, "orthogonal simplices", [3, 3]),
        (6, 4, 2.0, "orthogonal simplices", [4, 2]),
    ],
)
def test_the_best_code_is_reached_and_not_beaten(classes, dim, temperature, regime, simplices):
    problem = NormalizedUFM("ce", classes, 2, dim, temperature)
    optimum = problem.optimum()
    facts = optimum.to_dict()
    assert (facts["regime"], facts["simplices"]) == (regime, simplices)
    assert not optimum.proved
    assert problem.value(optimum.point) == pytest.approx(optimum.value, rel=1e-12)
    assert best_of(problem) == pytest.approx(optimum.value, rel=1e-8)


@pytest.mark.parametrize("temperature", [0.1, 0.7, 2.0, 6.0, 40.0, 900.0])
def test_the_best_simplices_are_those_of_all_partitions(temperature):
    for classes in range(5, 19):
        for dim in range(classes // 2 + 1, classes - 1):
            spare = combinations_with_replacement(range(2 * dim - classes + 1), classes - dim)
            listed = [[2 + more for more in one] for one in spare if sum(one) == 2 * dim - classes]
            best = best_sizes(classes, classes - dim, temperature)
            assert sorted(best) in listed
            least = min(simplices_value(sizes, temperature) for sizes in listed)
            assert simplices_value(best, temperature) == pytest.approx(least, rel=1e-14, abs=0)


def test_many_classes_have_their_best_simplices():
    """Too many partitions to compare: near-equal sizes at a low temperature, one large simplex at a high one."""
    assert best_sizes(200, 50, 0.1) == [4] * 50
    assert best_sizes(201, 50, 0.1) == [5, *[4] * 49]
    assert best_sizes(1000, 300, 30.0) == [402, *[2] * 299]
    optimum = NormalizedUFM("ce", 200, 1, 150, 1.0).optimum()
    assert optimum.value == pytest.approx(simplices_value(best_sizes(200, 50, 1.0), 1.0), rel=1e-12)


def test_formulas_of_the_sheet():
    tau = 1.3
    cross = NormalizedUFM("ce", 8, 1, 4, tau).optimum().value
    assert cross == pytest.approx(math.log(1 + math.exp(-2 * tau) + 6 * math.exp(-tau)), rel=1e-13)
    polygon = NormalizedUFM("ce", 7, 1, 2, tau).optimum().value
    terms = [math.exp(tau * (math.cos(2 * math.pi * j / 7) - 1)) for j in range(7)]
    assert polygon == pytest.approx(math.log(sum(terms)), rel=1e-13)


@pytest.mark.parametrize(("loss", "classes", "dim"), [("ce", 9, 3), ("focal:gamma=2", 6, 3), ("ce", 5, 1)])
def test_other_sizes_are_refused(loss, classes, dim):
    with pytest.raises(NotImplementedError, match="no closed form is known"):
        NormalizedUFM(loss, classes, 1, dim, 1.0).optimum()
