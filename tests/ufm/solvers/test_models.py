"""The flat models against the problems' own verbs: values, derivatives, rays, retractions."""

import math

import pytest
import torch

from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, RegularizedUFM, logit_objective
from neuralcollapse.ufm.logit_objective import REFRESH, LogitModel
from neuralcollapse.ufm.solvers.method import flat_model

MODELS = [
    RegularizedUFM("ce", 4, 3, 5, 0.03, 0.2),
    RegularizedUFM("focal:gamma=2", 4, 3, 3, 0.03, 0.2, 0.0),
    RegularizedUFM("mse:alpha=4,target=3", 4, [4, 1, 2, 3], 2, 0.03, 0.02, 0.1),
    RegularizedUFM("ls", 3, 2, 4, 0.0, 0.0, 0.1),
    NormalizedUFM("ce", 4, 3, 5, temperature=1.7),
    NormalizedUFM("ls:alpha=0.3", 3, [1, 2, 4], 2, temperature=5.0),
    NormalizedUFM("focal", 5, 2, 4),
    NormalizedUFM("mse", 3, 2, 4, temperature=0.5),
    ContrastiveUFM(3, [2, 3, 4], 4, temperature=1.3),
]
IDS = [repr(model) for model in MODELS]


def example(problem):
    model = flat_model(problem)
    point = problem.random_point(3)
    direction = problem.project(point, problem.random_point(4).map(lambda block: 0.7 * block))
    return model, point, direction


@pytest.fixture(params=["one part", "many parts"], autouse=True)
def _parts(request, monkeypatch):
    """Small problems are one part; here also as if they were large, in parts of two rows or so."""
    if request.param == "many parts":
        monkeypatch.setattr(logit_objective, "WHOLE", 0)
        monkeypatch.setattr(logit_objective, "PART_ENTRIES", 8)
        monkeypatch.setattr(logit_objective, "PART_ROWS", 2)


@pytest.mark.parametrize("problem", MODELS, ids=IDS)
def test_state_is_the_problems_linearisation(problem):
    model, point, direction = example(problem)
    state = model.state(model.flatten(point))
    assert state.value == pytest.approx(problem.value(point), rel=1e-14)
    assert torch.allclose(state.gradient, problem.gradient(point).flatten(), rtol=1e-12, atol=1e-15)
    product = state.hessian_vector(direction.flatten())
    assert torch.allclose(product, problem.hessian_vector(point, direction).flatten(), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("problem", [problem for problem in MODELS if problem.has_classifier], ids=repr)
def test_single_precision_products_are_the_double_ones_rounded(problem):
    """The models on logits; the contrastive one stays in double precision."""
    model, point, direction = example(problem)
    assert isinstance(model, LogitModel)
    state = model.state(model.flatten(point))
    exact, rounded = (
        state.hessian_vector(direction.flatten()).clone(),
        state.hessian_vector(direction.flatten().float()),
    )
    assert rounded.dtype == torch.float32
    assert float((rounded.double() - exact).norm()) <= 1e-5 * float(exact.norm())


@pytest.mark.parametrize("problem", MODELS, ids=IDS)
def test_a_ray_is_the_retraction_and_its_curvature_the_hessians(problem):
    model, point, direction = example(problem)
    state = model.state(model.flatten(point))
    flat = direction.flatten()
    for scale in (1.0, 1e-6, 1e3):
        for step in (0.0, 0.3, -0.8, 2.5):
            line = model.line(state, flat * scale)
            expected = problem.retract(point, direction * step)
            assert line.value(1.7 / scale) == pytest.approx(
                problem.value(problem.retract(point, direction * 1.7)), rel=1e-13, abs=1e-15
            )
            curvature = direction.dot(problem.hessian_vector(point, direction))
            assert line.curvature() / scale**2 == pytest.approx(curvature, rel=1e-9, abs=1e-13)
            there = line.at(step / scale)
            assert there.value == pytest.approx(problem.value(expected), rel=1e-13, abs=1e-15)
            assert torch.allclose(there.x, expected.flatten(), rtol=1e-12, atol=1e-14)
            assert torch.allclose(there.gradient, problem.gradient(expected).flatten(), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("problem", MODELS[:8:4], ids=IDS[:8:4])
def test_rounding_does_not_add_up_along_many_rays(problem):
    model, point, _ = example(problem)
    state = model.state(model.flatten(point))
    for index in range(3 * REFRESH):
        direction = model.project_(state.x, model.flatten(problem.random_point(index)))
        state = model.line(state, direction).at(0.3)
    fresh = model.state(state.x.clone())
    assert state.value == pytest.approx(fresh.value, rel=1e-13)
    assert torch.allclose(state.gradient, fresh.gradient, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("problem", MODELS, ids=IDS)
def test_block_metric(problem):
    model, point, _ = example(problem)
    flat = model.flatten(point)
    scaled = model.precondition(flat, model.take())
    for block, before, scale in zip(model.point(scaled).blocks, point.blocks, model.scales, strict=True):
        assert torch.allclose(block, before * scale)
    # Lengths are those of the inverse of what multiplies gradients: |M v| = <v, M v>^(1/2).
    assert model.metric_norm(scaled) == pytest.approx(math.sqrt(float(flat @ scaled)), rel=1e-12)


@pytest.mark.parametrize("problem", MODELS, ids=IDS)
def test_what_a_state_shed_is_computed_again(problem):
    model, point, direction = example(problem)
    state = model.state(model.flatten(point))
    flat = direction.flatten()
    gradient, product = state.gradient.clone(), state.hessian_vector(flat).clone()
    norm = state.gradient_norm
    for shares in (("gradient",), ("hessian",), ("logits",), ()):
        state.shed(*shares)
        # Whoever takes the memory next may write to it.
        for _ in range(4):
            model.take().fill_(math.nan)
        assert state.gradient_norm == norm
        assert torch.allclose(state.gradient, gradient, rtol=1e-12, atol=1e-15)
        assert torch.allclose(state.hessian_vector(flat), product, rtol=1e-12, atol=1e-15)
        assert torch.equal(state.x, point.flatten())
