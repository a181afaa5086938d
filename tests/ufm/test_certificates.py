"""Certificates: valid at any point, tight at optima, and right about saddles."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralcollapse.frames import simplex_basis, simplex_etf
from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, Point, RegularizedUFM
from neuralcollapse.ufm.spectrum import smallest_eigenpair
from reference import best_value, first_derivative, lbfgs, second_derivative

pytestmark = pytest.mark.unchecked

SPECS = [
    "ce",
    "ls:alpha=0.1",
    "ls:alpha=0.5",
    "focal:gamma=3",
    "focal:gamma=1",
    "mse",
    "mse:alpha=4,target=3",
]


@st.composite
def problems(draw):
    classes = draw(st.integers(2, 6))
    if draw(st.booleans()):
        counts = draw(st.integers(1, 4))
    else:
        counts = draw(st.lists(st.integers(1, 6), min_size=classes, max_size=classes))
    dim = draw(st.integers(1, 8))
    kind = draw(st.sampled_from(["regularized", "regularized", "normalized", "contrastive"]))
    if kind == "contrastive":
        counts = [max(2, n) for n in counts] if isinstance(counts, list) else max(2, counts)
        return ContrastiveUFM(classes, counts, dim, draw(st.floats(0.1, 3)))
    spec = draw(st.sampled_from(SPECS))
    if kind == "normalized":
        return NormalizedUFM(spec, classes, counts, dim, 10 ** draw(st.floats(-1, 1.3)))
    decays = (10 ** draw(st.floats(-4, 0)) for _ in range(2))
    bias = draw(st.sampled_from([None, 0.0, 0.001, 0.1, 10.0]))
    return RegularizedUFM(spec, classes, counts, dim, *decays, bias)


@pytest.mark.parametrize("quarter", range(4))
@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_gap_is_never_negative_at_random_points(quarter, data):
    """Random points against the bound, and the bound against the closed form where one is proved."""
    model = data.draw(problems())
    point = model.random_point(4 * data.draw(st.integers(0, 10**6)) + quarter)
    if isinstance(model, RegularizedUFM):
        point = point * data.draw(st.sampled_from([0.0, 0.1, 1.0, 10.0]))
    certificate = model.certify(point)
    assert certificate.value == model.value(point)
    assert certificate.gap >= -1e-12 * max(1.0, abs(certificate.value))
    assert math.isfinite(certificate.lower_bound)
    assert certificate.verdict in {"global minimum", "strict saddle", "not a critical point", "undecided"}
    try:
        optimum = model.optimum()
    except NotImplementedError:
        return
    assert certificate.lower_bound <= optimum.value + 1e-12 * max(1.0, abs(optimum.value))


@settings(max_examples=25, deadline=None)
@given(model=problems(), seed=st.integers(0, 100))
def test_bound_from_any_point_lies_below_what_a_solver_reaches(model, seed):
    """The bound computed at one random point, against values that a solve of the same problem reaches."""
    bound = model.certify(model.random_point(seed)).lower_bound
    found = best_value(model, seeds=(seed, seed + 1))
    assert bound <= found + 1e-10 * max(1.0, abs(found))


@pytest.mark.parametrize("spec", ["ce", "ls:alpha=0.1", "mse", "mse:alpha=4,target=3"])
def test_gap_closes_at_every_closed_form_of_a_convex_loss(spec):
    seen = set()
    for classes in (2, 3, 6):
        for dim in (classes - 1, classes, classes + 3):
            for bias in (None, 0.0, 0.02, 3.0):
                for s in (0.02, 0.7 / classes, 20 / classes):
                    mu = s / math.sqrt(3)
                    model = RegularizedUFM(spec, classes, 3, dim, 4 * mu, mu / 4, bias)
                    try:
                        optimum = model.optimum()
                    except NotImplementedError:
                        continue
                    if not optimum.proved:
                        continue
                    certificate = model.certify(optimum.point)
                    assert -1e-12 <= certificate.gap <= 1e-9
                    assert certificate.verdict == "global minimum"
                    assert certificate.gradient_norm < 1e-9
                    seen.add(optimum.regime)
            for tau in (0.3, 2.0, 9.0):
                model = NormalizedUFM(spec, classes, 3, dim, tau)
                try:
                    certificate = model.certify(model.optimum().point)
                except NotImplementedError:
                    continue
                assert -1e-12 <= certificate.gap <= 1e-9
                assert certificate.verdict == "global minimum"
    assert {"zero", "neural collapse"} <= seen


def test_contrastive_gap_closes_by_the_semidefinite_bound_alone(monkeypatch):
    """The dual bound needs no closed form: with it taken away, the gap still closes at the optimum."""
    from neuralcollapse.ufm.contrastive import certificate as module

    monkeypatch.setattr(module, "contrastive_value", lambda problem: -math.inf)
    for classes, samples, tau in ((2, 2, 0.5), (3, 4, 1.0), (5, 3, 2.0)):
        model = ContrastiveUFM(classes, samples, classes + 1, tau)
        certificate = model.certify(model.optimum().point)
        assert certificate.bound_source in ("semidefinite dual", "positive pairs alone")
        assert -1e-12 <= certificate.gap <= 1e-9


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("bias", [None, 0.0, 0.05])
def test_imbalanced_minimum_is_certified(spec, bias):
    """No closed form is known here: a solve and the dual bound meet."""
    model = RegularizedUFM(spec, 4, [12, 5, 2, 1], 6, 0.02, 0.01, bias)
    certificate = model.certify(lbfgs(model, model.random_point(3)))
    assert certificate.verdict == "global minimum"
    assert certificate.gap < 1e-8


def test_gap_is_of_second_order_near_a_minimum():
    """A perturbation of size e costs e^2 in the value and about as much in the bound, not e."""
    model = RegularizedUFM("ce", 5, 4, 8, 0.02, 0.03, 0.1)
    best = model.optimum().point
    noise = model.random_point(9)
    gaps = [model.certify(best + noise * size).gap for size in (1e-3, 1e-4, 1e-5)]
    assert gaps[1] < gaps[0] / 50
    assert gaps[2] < gaps[1] / 50


# Saddles --------------------------------------------------------------------------------------------------------------


def critical_zero(spec, bias):
    model = RegularizedUFM(spec, 4, 3, 6, 0.02, 0.05, bias)
    zero = model.random_point(0) * 0.0
    if zero.b is None:
        return model, zero
    return model, lbfgs_bias(model, zero)


def lbfgs_bias(model, point):
    """The best bias for W = H = 0: solved, not taken from a formula."""
    from scipy.optimize import minimize

    def objective(b):
        trial = Point(point.W, point.H, torch.from_numpy(b))
        return model.value(trial), model.gradient(trial).b.numpy()

    found = minimize(objective, point.b.numpy(), jac=True, method="BFGS", options={"gtol": 1e-13})
    return Point(point.W, point.H, torch.from_numpy(found.x))


def critical_subset(spec, learned):
    """The optimum of a smaller problem: only some classes are told apart, the others share one direction."""
    model = RegularizedUFM(spec, 4, 3, 6, 0.02, 0.05)
    basis = simplex_basis(4)[:, : learned - 1]
    projector = basis @ basis.T
    start = model.random_point(5)
    # Keep W's columns in the span of a few class directions: critical in the subspace and, by symmetry, outside.
    start = Point(
        projector @ start.W,
        (projector @ torch.stack([start.H[model.labels == k].mean(0) for k in range(4)]))[model.labels],
    )
    return model, restricted_solve(model, start, projector)


def restricted_solve(model, start, projector):
    from scipy.optimize import minimize

    def feasible(flat):
        raw = start.like(torch.from_numpy(flat))
        means = torch.stack([raw.H[model.labels == k].mean(0) for k in range(model.num_classes)])
        return Point(projector @ raw.W, (projector @ means)[model.labels])

    def objective(flat):
        point = feasible(flat)
        slope = model.gradient(point)
        sums = torch.stack([slope.H[model.labels == k].sum(0) for k in range(model.num_classes)])
        back = (projector @ sums)[model.labels] / model.counts[0]
        return model.value(point), Point(projector @ slope.W, back).flatten().numpy()

    options = {"maxiter": 5000, "ftol": 1e-16, "gtol": 1e-13}
    found = minimize(objective, start.flatten().numpy(), jac=True, method="L-BFGS-B", options=options)
    return feasible(found.x)


def sphere_rows(*signs):
    rows = torch.zeros(len(signs), 6, dtype=torch.float64)
    rows[:, 0] = torch.tensor(signs, dtype=torch.float64)
    return rows


def saddles():
    for spec in ("ce", "ls:alpha=0.1", "focal:gamma=3", "mse"):
        yield f"zero, {spec}", *critical_zero(spec, None)
        yield f"zero with bias, {spec}", *critical_zero(spec, 0.3)
    yield "two directions of three", *critical_subset("mse", 3)
    yield "one direction of three", *critical_subset("mse", 2)
    for spec in ("ce", "ls:alpha=0.1", "focal:gamma=3"):
        for tau in (0.5, 3.0, 30.0 if spec == "ce" else 6.0):
            model = NormalizedUFM(spec, 4, 3, 6, tau)
            frame = simplex_etf(4, 6)
            yield (
                f"equal classifiers and features, {spec}, tau {tau}",
                model,
                Point(sphere_rows(1, 1, 1, 1), sphere_rows(*[1] * 12)),
            )
            yield f"opposite to collapse, {spec}, tau {tau}", model, Point(-frame, frame[model.labels])
            yield (
                f"two groups on a line, {spec}, tau {tau}",
                model,
                Point(sphere_rows(1, 1, -1, -1), sphere_rows(*[1] * 6, *[-1] * 6)),
            )
            line = sphere_rows(1, -1, 1, -1)
            yield f"features swapped on a line, {spec}, tau {tau}", model, Point(line, -line[model.labels])
    small = NormalizedUFM("ce", 4, 2, 3, 1.5)  # the optimum in R^3 of three of the classes' plane, embedded in R^6
    flat = lbfgs(NormalizedUFM("ce", 4, 2, 2, 1.5), NormalizedUFM("ce", 4, 2, 2, 1.5).random_point(0))
    wide = NormalizedUFM("ce", 4, 2, 5, 1.5)
    pad = torch.nn.functional.pad
    yield "optimum of the plane", wide, Point(pad(flat.W, (0, 3)), pad(flat.H, (0, 3)))
    yield "optimum of the plane in space", small, Point(pad(flat.W, (0, 1)), pad(flat.H, (0, 1)))
    contrastive = ContrastiveUFM(4, 3, 6, 1.0)
    yield "all features equal, contrastive", contrastive, Point(None, sphere_rows(*[1] * 12))
    yield "two groups on a line, contrastive", contrastive, Point(None, sphere_rows(*[1] * 6, *[-1] * 6))


SADDLES = list(saddles())


@pytest.mark.parametrize(("model", "point"), [case[1:] for case in SADDLES], ids=[case[0] for case in SADDLES])
def test_saddle_has_an_escape_direction_as_stated(model, point):
    certificate = model.certify(point)
    assert certificate.verdict == "strict saddle", certificate.reason
    direction = certificate.escape
    assert direction.norm() == pytest.approx(1.0, abs=1e-12)
    assert (direction - model.project(point, direction)).norm() < 1e-10

    def along(t):
        return model.value(model.retract(point, direction * t))

    assert certificate.curvature < 0
    assert second_derivative(along, step=3e-2) == pytest.approx(certificate.curvature, rel=1e-3, abs=1e-10)
    assert abs(first_derivative(along, step=1e-3)) < 1e-4 * abs(certificate.curvature) + 1e-9
    assert min(along(t) for t in (0.03, 0.1, 0.3)) < along(0.0)
    assert certificate.gap > 1e-6


def test_papers_directions_are_used_where_they_apply():
    used = {name: model.certify(point).reason for name, model, point in SADDLES}
    assert sum("papers' direction" in reason for reason in used.values()) >= 20
    assert "papers' direction" in used["zero, ce"]
    assert "papers' direction" in used["equal classifiers and features, ce, tau 30.0"]


def test_curvature_at_zero_is_the_closed_form():
    """-2 (|grad g| - mu) over the squared length of the direction, with |grad g| = 1/(sqrt(n) K) (geometric (39))."""
    model, zero = critical_zero("ce", None)
    ratio = (model.feature_decay / model.weight_decay) ** 0.5
    expected = -2 * (1 / (math.sqrt(3) * 4) - model.mu) / (ratio + 1 / ratio)
    assert model.certify(zero).curvature == pytest.approx(expected, rel=1e-12)


def test_stuck_focal_state_is_not_called_global_nor_saddle():
    """K = 100, gamma = 3, s = 0.0114: zero is a local minimum that passes the spectral test, yet is not global."""
    model = RegularizedUFM("focal:gamma=3", 100, 1, 101, 0.0114, 0.0114)
    certificate = model.certify(model.random_point(0) * 0.0)
    assert certificate.spectral_ratio < 1
    assert certificate.gap > 0.08
    assert certificate.verdict == "undecided"
    assert "not convex" in certificate.reason


def test_rank_constraint_leaves_the_verdict_open_for_cross_entropy_only():
    model = RegularizedUFM("ce", 5, 2, 2, 0.02, 0.02)
    certificate = model.certify(lbfgs(model, model.random_point(0)))
    assert certificate.verdict == "undecided"
    assert "restricts the rank" in certificate.reason
    squared = RegularizedUFM("mse", 5, 2, 2, 0.02, 0.02)
    certificate = squared.certify(lbfgs(squared, squared.random_point(0)))
    assert (certificate.verdict, certificate.bound_source) == ("global minimum", "closed form")


def test_smallest_eigenpair_by_lanczos_agrees_with_the_dense_one(monkeypatch):
    from neuralcollapse.ufm import spectrum

    model = NormalizedUFM("ce", 4, 3, 6, 1.0)
    for point in (model.random_point(0), model.optimum().point):
        state = model.linearize(point)
        monkeypatch.setattr(spectrum, "DENSE_PAIR_LIMIT", 300)
        dense = smallest_eigenpair(model, point, state)
        monkeypatch.setattr(spectrum, "DENSE_PAIR_LIMIT", 10)
        lanczos = smallest_eigenpair(model, point, state)
        assert lanczos[0] == pytest.approx(dense[0], abs=1e-7)
        assert lanczos[2] == pytest.approx(dense[2], rel=0.05)  # the spectral radius, roughly


def test_certificate_as_plain_values():
    model = RegularizedUFM("ce", 3, 2, 4, 0.01, 0.01)
    values = model.certify(model.optimum().point).to_dict()
    assert set(values) >= {"value", "lower_bound", "gap", "gradient_norm", "verdict", "curvature"}
    assert values["curvature"] is None
