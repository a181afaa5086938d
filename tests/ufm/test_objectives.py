"""The objectives: against autograd on the papers' formulas, along rays, in parts, and their memory."""

import gc
import math
import weakref

import pytest
import torch

from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, Point, RegularizedUFM
from neuralcollapse.ufm.objectives import logits
from neuralcollapse.ufm.objectives.logit_line import REFRESH
from neuralcollapse.ufm.objectives.logits import LogitObjective
from neuralcollapse.ufm.objectives.workspace import Workspace
from neuralcollapse.ufm.solvers import solver_methods

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
    objective = problem.objective()
    point = problem.random_point(3)
    direction = problem.project(point, problem.random_point(4).map(lambda block: 0.7 * block))
    return objective, point, direction


@pytest.fixture(params=["one part", "many parts"])
def parts(request, monkeypatch):
    """Small problems are one part; here also as if they were large, in parts of two rows or so."""
    if request.param == "many parts":
        monkeypatch.setattr(logits, "WHOLE", 0)
        monkeypatch.setattr(logits, "PART_ENTRIES", 8)
        monkeypatch.setattr(logits, "PART_ROWS", 2)


def formula(problem, point: Point) -> torch.Tensor:
    """The objective as the papers write it, for autograd."""
    if isinstance(problem, ContrastiveUFM):
        return problem.loss(point.H, problem.labels)
    assert isinstance(problem, NormalizedUFM | RegularizedUFM)
    logits = point.H @ point.classifier.T
    if isinstance(problem, NormalizedUFM):
        return problem.loss(problem.temperature * logits, problem.labels)
    value = problem.weight_decay * point.classifier.square().sum() + problem.feature_decay * point.H.square().sum()
    if point.b is not None:
        logits = logits + point.b
        value = value + (problem.bias_decay or 0.0) * point.b.square().sum()
    return problem.loss(logits, problem.labels) + value / 2


def by_autograd(problem, point: Point, direction: Point) -> tuple[float, torch.Tensor, torch.Tensor]:
    """Value, gradient and Hessian product; on spheres Riemannian: projected, less the radial part of the gradient."""
    x = point.flatten().requires_grad_()
    value = formula(problem, point.like(x))
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    (product,) = torch.autograd.grad(slope @ direction.flatten(), x)
    slope = slope.detach()
    if not isinstance(problem, RegularizedUFM):
        radial = point.map(lambda rows, pull: (rows * pull).sum(1, keepdim=True), point.like(slope))
        product = product - direction.map(lambda rows, factor: factor * rows, radial).flatten()
        slope, product = (problem.project(point, point.like(vector)).flatten() for vector in (slope, product))
    return float(value.detach()), slope, product


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("problem", MODELS, ids=IDS)
def test_state_and_verbs_are_the_formula_and_its_derivatives(problem):
    objective, point, direction = example(problem)
    value, slope, product = by_autograd(problem, point, direction)
    state = objective.state(objective.flatten(point))
    assert state.value == pytest.approx(value, rel=1e-14)
    assert torch.allclose(state.gradient, slope, rtol=1e-12, atol=1e-15)
    assert torch.allclose(state.hessian_vector(direction.flatten()), product, rtol=1e-11, atol=1e-14)
    assert problem.value(point) == pytest.approx(value, rel=1e-14)
    assert torch.allclose(problem.gradient(point).flatten(), slope, rtol=1e-12, atol=1e-15)
    assert torch.allclose(problem.hessian_vector(point, direction).flatten(), product, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("problem", MODELS[::4], ids=IDS[::4])
def test_what_the_verbs_return_may_be_used_with_autograd(problem):
    point = problem.random_point(3)
    gradient = problem.gradient(point)
    weights = torch.ones_like(gradient.H, requires_grad=True)
    (gradient.H * weights).sum().backward()
    assert torch.equal(weights.grad, gradient.H)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("problem", [problem for problem in MODELS if problem.has_classifier], ids=repr)
def test_single_precision_products_are_the_double_ones_rounded(problem):
    """The models on logits; the contrastive one stays in double precision."""
    objective, point, direction = example(problem)
    assert isinstance(objective, LogitObjective)
    state = objective.state(objective.flatten(point))
    exact, rounded = (
        state.hessian_vector(direction.flatten()).clone(),
        state.hessian_vector(direction.flatten().float()),
    )
    assert rounded.dtype == torch.float32
    assert float((rounded.double() - exact).norm()) <= 1e-5 * float(exact.norm())


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("problem", MODELS, ids=IDS)
def test_a_ray_is_the_retraction_and_its_curvature_the_hessians(problem):
    objective, point, direction = example(problem)
    state = objective.state(objective.flatten(point))
    flat = direction.flatten()
    for scale in (1.0, 1e-6, 1e3):
        for step in (0.0, 0.3, -0.8, 2.5):
            line = objective.line(state, flat * scale)
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


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("problem", MODELS[:8:4], ids=IDS[:8:4])
def test_rounding_does_not_add_up_along_many_rays(problem):
    objective, point, _ = example(problem)
    state = objective.state(objective.flatten(point))
    for index in range(3 * REFRESH):
        direction = objective.project_(state.x, objective.flatten(problem.random_point(index)))
        state = objective.line(state, direction).at(0.3)
    fresh = objective.state(state.x.clone())
    assert state.value == pytest.approx(fresh.value, rel=1e-13)
    assert torch.allclose(state.gradient, fresh.gradient, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("problem", MODELS, ids=IDS)
def test_block_metric(problem):
    objective, point, _ = example(problem)
    flat = objective.flatten(point)
    scaled = objective.precondition(flat)
    for block, before, scale in zip(objective.point(scaled).blocks, point.blocks, objective.scales, strict=True):
        assert torch.allclose(block, before * scale)
    # Lengths are those of the inverse of what multiplies gradients: |M v| = <v, M v>^(1/2).
    assert objective.metric_norm(scaled) == pytest.approx(math.sqrt(float(flat @ scaled)), rel=1e-12)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("problem", MODELS, ids=IDS)
def test_what_a_state_forgot_is_computed_again(problem):
    objective, point, direction = example(problem)
    state = objective.state(objective.flatten(point))
    flat = direction.flatten()
    gradient, product = state.gradient.clone(), state.hessian_vector(flat).clone()
    norm = state.gradient_norm
    for leave in (lambda: objective.step(state, flat, 0.1), lambda: objective.line(state, flat).at(0.1)):
        leave()
        # Whoever has the memory next may write to it.
        others = [objective.empty().fill_(math.nan) for _ in range(6)]
        assert state.gradient_norm == norm
        assert torch.allclose(state.gradient, gradient, rtol=1e-12, atol=1e-15)
        assert torch.allclose(state.hessian_vector(flat), product, rtol=1e-12, atol=1e-15)
        assert torch.equal(state.x, point.flatten())
        assert all(bool(other.isnan().all()) for other in others)


@pytest.mark.parametrize("problem", [MODELS[1], MODELS[4]], ids=[IDS[1], IDS[4]])
@pytest.mark.parametrize("method", [name for name in solver_methods if name not in ("reduced", "sgd")])
@pytest.mark.unchecked
def test_memory_is_used_again_without_the_garbage_collector(problem, method, monkeypatch):
    """As many blocks after thirty iterations as after twelve: nothing keeps a state that was left behind alive."""
    counts: list[int] = []
    for name, size in (("WHOLE", 0), ("PART_ENTRIES", 8), ("PART_ROWS", 2)):
        monkeypatch.setattr(logits, name, size)
    objective = problem.objective()
    assert objective._workspace is not None
    gc.collect()
    gc.disable()
    try:
        with torch.inference_mode():
            state = objective.state(objective.flatten(problem.random_point(0)))
            way = solver_methods.create(method)
            for after in way.iterate(objective, state):
                state = after
                assert math.isfinite(state.gradient_norm)
                counts.append(len(objective._workspace._blocks))
                if len(counts) == 30 or state.gradient_norm < 1e-7:
                    break
    finally:
        gc.enable()
    pairs = 2 * way.memory if method == "lbfgs" else 0
    assert counts[-1] <= counts[min(11, len(counts) // 2)] + pairs
    assert counts[-1] <= 14 + pairs


def test_a_workspace_gives_no_memory_twice():
    workspace = Workspace()
    held = [workspace.empty([4, 3]).fill_(index) for index in range(5)]
    view = held[2][1:, :2]
    del held[2]
    assert len({array.data_ptr() for array in held}) == 4
    fresh = workspace.empty([12]).fill_(-1.0)
    assert bool((view == 2).all())
    assert all(bool((array == array[0, 0]).all()) for array in held)
    del view, fresh
    first, second = workspace.empty([2, 12], torch.float32)
    assert first.data_ptr() + 48 == second.data_ptr()
    assert len(workspace._blocks) == 6


def test_a_part_of_a_large_problem_lets_its_arrays_go_before_the_next(monkeypatch):
    """Of the arrays of the parts' size only one part's are held at a time, and of none in the end."""
    for name, size in (("WHOLE", 0), ("PART_ENTRIES", 8), ("PART_ROWS", 2)):
        monkeypatch.setattr(logits, name, size)
    problem = RegularizedUFM("ce", 3, 4, 5, 0.1, 0.1)
    alive: list[weakref.ref] = []

    def linearize(loss, array, labels):
        assert not any(one() for one in alive)
        made = stated(loss, array, labels)
        alive.append(weakref.ref(made))
        return made

    stated = type(problem.loss).linearize
    monkeypatch.setattr(type(problem.loss), "linearize", linearize)
    state = problem.objective().state(problem.random_point(0).flatten())
    assert math.isfinite(state.gradient_norm)
    assert len(alive) > 8
    assert not any(one() for one in alive)
