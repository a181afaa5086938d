"""Odd but legal problems, as a referee would try them: closed form, certificate and solves agree."""

import pytest

from neuralcollapse.losses import CrossEntropy, Focal, LogitAdjusted, VectorScaling
from neuralcollapse.ufm import NormalizedUFM, RegressionUFM, RegularizedUFM, critical_temperature, solve

pytestmark = pytest.mark.unchecked

EXCHANGE = Focal(3.0).transition(24).exchange

PROVED = {
    "two classes on a line": (RegularizedUFM("ce", 2, 1, 1, 0.1, 0.1), "neural collapse"),
    "five against one on a line": (RegularizedUFM("ce", 2, [5, 1], 1, 0.05, 0.05, 0.0), "imbalanced collapse"),
    "squared error on a line": (RegularizedUFM("mse", 2, [3, 2], 1, 0.05, 0.05), "low rank"),
    "one class of one sample": (RegularizedUFM("ce", 4, [50, 50, 50, 1], 5, 5e-3, 5e-3, 0.0), "imbalanced collapse"),
    "one class of nearly all": (RegularizedUFM("ce", 3, [300, 1, 1], 3, 4e-3, 4e-3, 0.0), "minority collapse"),
    "equal counts as a list": (RegularizedUFM("ce", 3, [4, 4, 4], 3, 0.02, 0.02, 0.1), "neural collapse"),
    "equal weights": (RegularizedUFM(CrossEntropy([1.0, 1.0, 1.0]), 3, 4, 4, 0.02, 0.02, 0.0), "convex program"),
    "tiny decays": (RegularizedUFM("mse:alpha=2", 3, [4, 3, 2], 3, 1e-9, 1e-9, 0.5), "convex program"),
    "huge decays": (RegularizedUFM("ce", 3, [4, 3, 2], 3, 1e6, 1e6, 0.0), "zero"),
    "decays far apart": (RegularizedUFM("ce", 3, [4, 3, 2], 3, 1e-8, 1e3, 1e-3), "convex program"),
    "a bias that is all but fixed": (RegularizedUFM("ce", 3, [9, 2, 2], 3, 0.02, 0.02, 1e12), "imbalanced collapse"),
    "a bias that is all but free": (RegularizedUFM("mse", 3, [4, 3, 2], 3, 0.02, 0.02, 1e-12), "convex program"),
    "weights far apart": (
        RegularizedUFM(CrossEntropy([1e-6, 1.0, 1e3]), 3, [4, 3, 2], 4, 0.02, 0.02, 0.0),
        "convex program",
    ),
    "scales far apart": (
        RegularizedUFM(VectorScaling([1e-3, 1.0, 30.0], [5.0, 0.0, -9.0]), 3, [4, 3, 2], 4, 0.02, 0.02, 0.0),
        "convex program",
    ),
    "a strong prior": (
        RegularizedUFM(LogitAdjusted("ce", [1.0, 9.0, 90.0], 20.0), 3, [4, 3, 2], 4, 0.02, 0.02, 0.1),
        "convex program",
    ),
    "nearly all smoothing": (RegularizedUFM("ls:alpha=0.999", 3, [4, 3, 2], 3, 1e-3, 1e-3, 0.0), "zero"),
    "hardly focal": (RegularizedUFM("focal:gamma=1e-6", 3, 2, 3, 0.05, 0.05, 0.0), "neural collapse"),
    "focal past its transition": (
        RegularizedUFM("focal:gamma=3", 24, 1, 10, 1.0005 * EXCHANGE, 1.0005 * EXCHANGE),
        "zero",
    ),
    "above the critical temperature": (NormalizedUFM("ls:alpha=0.5", 4, 2, 6, 30.0), "spread"),
    "just above it, d = K - 1": (
        NormalizedUFM("ls:alpha=0.3", 4, 2, 3, 1.001 * critical_temperature("ls:alpha=0.3", 4)),
        "spread",
    ),
    "targets of unit rows within reach": (NormalizedUFM("mse:alpha=4,target=3", 3, 2, 4, 0.01), "orthogonal frame"),
    "targets of rank one": (RegressionUFM([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], 1, 0.1, 0.1, 0.0), "shrunken targets"),
    "targets of zero": (RegressionUFM([[0.0, 0.0]], 1, 0.1, 0.1), "zero"),
}


@pytest.mark.parametrize("name", PROVED)
def test_closed_form_certificate_and_solves_agree(name):
    problem, regime = PROVED[name]
    optimum = problem.optimum()
    assert (optimum.regime, optimum.proved) == (regime, True)
    certificate = problem.certify(optimum.point)
    assert certificate.verdict == "global minimum"
    assert certificate.value == pytest.approx(optimum.value, rel=1e-12, abs=1e-15)
    assert abs(certificate.gap) <= 1e-12 * optimum.value + 1e-15
    found = [solve(problem, method, seed=1, tol=1e-10, max_iter=200, record=()) for method in ("lbfgs", "trust-region")]
    best = min(trace.value for trace in found)
    assert best >= optimum.value * (1 - 1e-12) - 1e-15
    assert best == pytest.approx(optimum.value, rel=3e-3, abs=1e-9)


UNKNOWN = [
    RegularizedUFM("mse", 2, [3, 2], 1, 0.05, 0.05, 0.3),
    RegularizedUFM("mse:alpha=0.5", 3, 2, 2, 0.02, 0.02, 5.0),
    RegularizedUFM("focal:gamma=3", 24, 1, 10, EXCHANGE, EXCHANGE, 0.0),
    RegularizedUFM("ce", 3, [4, 3, 2], 2, 0.02, 0.02, None, "nonnegative"),
    RegularizedUFM("ce", 3, [4, 3, 2], 4, 0.02, 0.02, 0.0, "nonnegative"),
]


@pytest.mark.parametrize("problem", UNKNOWN, ids=str)
def test_where_none_is_known_no_point_is_called_global(problem):
    with pytest.raises(NotImplementedError, match="closed form is known"):
        problem.optimum()
    found = solve(problem, "lbfgs", seed=0, tol=1e-9, max_iter=300, record=())
    certificate = problem.certify(found.point)
    assert certificate.verdict != "global minimum"
    assert certificate.lower_bound < found.value


def test_a_class_of_no_weight_and_a_free_classifier_are_refused():
    with pytest.raises(ValueError, match=r"class_weights\[0\] must be greater than 0"):
        CrossEntropy([0.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="the minimum is not attained"):
        RegularizedUFM("ce", 3, [4, 3, 2], 4, 0.0, 0.02).optimum()
