"""Analytic value, gradient and Hessian of every model with every loss, against autograd-free references."""

import pytest
import torch

from neuralcollapse import losses
from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, Point, RegularizedUFM
from reference import first_derivative, second_derivative

LOGIT_LOSSES = [name for name, kind in losses.losses.items() if kind.takes == "logits"]
LOGIT_LOSSES += ["mse:alpha=4,target=3", "focal:gamma=0.5"]


def models():
    for spec in LOGIT_LOSSES:
        for bias in (None, 0.0, 0.3):
            yield RegularizedUFM(spec, 4, 3, 5, weight_decay=0.03, feature_decay=0.2, bias_decay=bias)
        yield RegularizedUFM(spec, 4, [4, 1, 2, 3], 2, weight_decay=0.03, feature_decay=0.02, bias_decay=0.1)
        yield NormalizedUFM(spec, 4, 3, 5, temperature=1.7)
        yield NormalizedUFM(spec, 3, [1, 2, 4], 2, temperature=0.6)
    yield ContrastiveUFM(3, 4, 5, temperature=1.3)
    yield ContrastiveUFM(3, [2, 3, 4], 4, temperature=0.7)


MODELS = list(models())
IDS = [repr(model) for model in MODELS]


def example(model, seed=0):
    point = model.random_point(seed)
    direction = model.random_point(seed + 100).map(lambda block: block * 0.7)
    return point, model.project(point, direction)


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_value_is_the_definition(model):
    """The objective written out naively, with torch's own losses where it has them."""
    point, _ = example(model)
    if isinstance(model, ContrastiveUFM):
        total = 0.0
        similarity = model.temperature**2 * point.H @ point.H.T
        for i in range(model.num_samples):
            others = [j for j in range(model.num_samples) if j != i]
            positives = [j for j in others if model.labels[j] == model.labels[i]]
            total -= sum(similarity[i, j] - torch.logsumexp(similarity[i, others], 0) for j in positives) / len(
                positives
            )
        expected = total / model.num_samples
    else:
        logits = point.H @ point.W.T
        if isinstance(model, NormalizedUFM):
            expected = model.loss(model.temperature * logits, model.labels)
        else:
            shift = 0.0 if point.b is None else point.b
            expected = model.loss(logits + shift, model.labels)
            expected = (
                expected + model.weight_decay / 2 * point.W.norm() ** 2 + model.feature_decay / 2 * point.H.norm() ** 2
            )
            if point.b is not None:
                expected = expected + model.bias_decay / 2 * point.b.norm() ** 2
    assert model.value(point) == pytest.approx(float(expected), rel=1e-13)


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_gradient_and_hessian_agree_with_differences_along_retractions(model):
    """d/dt and d2/dt2 of the value along the (second-order) retraction are <grad, v> and <v, Hess v>."""
    for seed in range(2):
        point, direction = example(model, seed)

        def along(t, point=point, direction=direction):
            return model.value(model.retract(point, direction * t))

        slope = model.gradient(point).dot(direction)
        assert slope == pytest.approx(first_derivative(along), rel=1e-8, abs=1e-9)
        curvature = direction.dot(model.hessian_vector(point, direction))
        assert curvature == pytest.approx(second_derivative(along), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_hessian_is_the_projected_derivative_of_the_gradient(model):
    """The covariant derivative of the gradient field, by fourth-order differences, in every coordinate."""
    point, direction = example(model)
    moved = first_derivative(lambda t: model.gradient(model.retract(point, direction * t)).flatten())
    expected = model.project(point, point.like(moved)).flatten()
    product = model.hessian_vector(point, direction).flatten()
    assert (product - expected).norm() <= 1e-8 * expected.norm()


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_hessian_is_symmetric_and_tangent(model):
    point, first = example(model)
    second = model.project(point, model.random_point(55))
    left, right = model.hessian_vector(point, first), model.hessian_vector(point, second)
    assert left.dot(second) == pytest.approx(right.dot(first), rel=1e-10, abs=1e-12)
    assert (left - model.project(point, left)).norm() < 1e-14


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_normal_parts_of_a_direction_do_not_matter(model):
    point, direction = example(model)
    if isinstance(model, RegularizedUFM):
        assert model.project(point, direction) is direction
        return
    radial = point * 0.9
    torch.testing.assert_close(
        model.hessian_vector(point, direction + radial).flatten(),
        model.hessian_vector(point, direction).flatten(),
    )


@pytest.mark.parametrize("model", MODELS, ids=IDS)
def test_description_round_trips(model):
    again = type(model).from_json(model.to_json())
    assert again == model
    assert hash(again) == hash(model)
    assert model.random_point(3).flatten().equal(again.random_point(3).flatten())


def test_sums_and_multiples_of_points():
    model = RegularizedUFM("ce", 3, 2, 4, 0.1, 0.1, 0.1)
    first, second = model.random_point(0), model.random_point(1)
    combination = (first + 2.0 * second - first * 0.5).flatten()
    torch.testing.assert_close(combination, 0.5 * first.flatten() + 2 * second.flatten())
    torch.testing.assert_close((-first).flatten(), -first.flatten())
    assert first.dot(second) == pytest.approx(float(first.flatten() @ second.flatten()))
    assert first.norm() == pytest.approx(float(first.flatten().norm()))


def test_retraction_keeps_unit_rows():
    model = NormalizedUFM("ce", 5, 4, 6)
    point = model.random_point(0)
    for step in range(200):
        point = model.retract(point, model.project(point, model.random_point(step)))
    assert max(float((rows.norm(dim=1) - 1).abs().max()) for rows in point.blocks) < 1e-14


def test_large_contrastive_problem_needs_no_pair_matrix():
    """4,000 samples: an N x N array of float64 would be 128 MB; no product comes near that."""
    model = ContrastiveUFM(10, 400, 8)
    point = model.random_point(0)
    biggest = 0
    original = torch.Tensor.__matmul__

    def watch(left, right):
        nonlocal biggest
        result = original(left, right)
        biggest = max(biggest, result.numel())
        return result

    torch.Tensor.__matmul__ = watch
    try:
        state = model.linearize(point)
        state.hessian_vector(model.project(point, model.random_point(1)))
    finally:
        torch.Tensor.__matmul__ = original
    assert 0 < biggest <= 1 << 21
    assert isinstance(state.gradient, Point)
