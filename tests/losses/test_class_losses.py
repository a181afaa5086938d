"""Losses with one number a class: weights, logit adjustment, vector scaling; and a user's own function."""

import math

import numpy as np
import pytest
import torch

import neuralcollapse as nc
from neuralcollapse import losses
from neuralcollapse.losses import CrossEntropy, LogitAdjusted, LogitLoss, VectorScaling
from reference import first_derivative

PRIOR = [8.0, 4.0, 2.0, 1.0, 1.0]
CLASSES = 5
ALL = [
    CrossEntropy(class_weights=[0.2, 3.0, 1.0, 0.5, 2.0]),
    LogitAdjusted("ce", PRIOR),
    LogitAdjusted("focal:gamma=2", PRIOR, strength=-0.7),
    LogitAdjusted(losses.LabelSmoothing(0.2), PRIOR, 0.5),
    LogitAdjusted("mse", PRIOR),
    LogitAdjusted(CrossEntropy(class_weights=PRIOR), PRIOR),
    VectorScaling([0.5, 1.0, 2.0, 1.5, 0.8], [0.3, -1.0, 0.0, 2.0, 0.1]),
]


def example(seed=0, count=30):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, CLASSES, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    return logits, labels, torch.randn(count, CLASSES, dtype=torch.float64, generator=generator)


def by_hand(loss, logits, labels):
    """The loss of each sample from its definition, in numpy."""
    z, y = logits.numpy().copy(), labels.numpy()
    if isinstance(loss, LogitAdjusted):
        shares = np.array(PRIOR) / sum(PRIOR)
        return by_hand(loss.inner, torch.from_numpy(z + loss.strength * np.log(shares)), labels)
    if isinstance(loss, VectorScaling):
        z = z * np.array(loss.multiplicative) + np.array(loss.additive)
    if isinstance(loss, losses.SquaredError):
        return 0.5 * ((z - np.eye(CLASSES)[y]) ** 2).sum(1)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    true = p[np.arange(len(y)), y]
    if isinstance(loss, losses.Focal):
        return -((1 - true) ** loss.gamma) * np.log(true)
    if isinstance(loss, losses.LabelSmoothing):
        return -(1 - loss.alpha) * np.log(true) - loss.alpha * np.log(p).mean(1)
    weights = np.ones(CLASSES)
    if isinstance(loss, CrossEntropy) and loss.class_weights is not None:
        weights = np.array(loss.class_weights)
    return -weights[y] * np.log(true)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.spec)
def test_values_are_those_of_the_definition(loss):
    logits, labels, _ = example()
    np.testing.assert_allclose(loss.values(logits, labels), by_hand(loss, logits, labels), rtol=1e-12)
    assert float(loss(logits, labels)) == pytest.approx(by_hand(loss, logits, labels).mean(), rel=1e-13)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.spec)
def test_derivatives_agree_with_finite_differences_and_autograd(loss):
    logits, labels, direction = example(1)
    slope = first_derivative(lambda t: float(loss(logits + t * direction, labels)))
    assert float((loss.gradient(logits, labels) * direction).sum()) == pytest.approx(slope, rel=1e-8, abs=1e-9)
    bend = first_derivative(lambda t: loss.gradient(logits + t * direction, labels))
    assert (loss.hessian_vector(logits, labels, direction) - bend).norm() <= 1e-8 * bend.norm() + 1e-11
    assert loss.linearize(logits, labels).value == pytest.approx(float(loss(logits, labels)), rel=1e-13)
    logits.requires_grad_()
    (by_autograd,) = torch.autograd.grad(loss(logits, labels), logits)
    torch.testing.assert_close(by_autograd, loss.gradient(logits.detach(), labels), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.spec)
def test_fenchel_young(loss):
    logits, labels, _ = example(2)
    rows = loss.dual_rows(logits, labels)
    conjugate = loss.conjugate(rows, labels)
    for seed in range(20):
        other, _, _ = example(seed + 50)
        assert (conjugate + loss.values(2 * other, labels) - (rows * 2 * other).sum(1)).min() >= -1e-11
    if loss.is_convex:
        assert (conjugate + loss.values(logits, labels) - (rows * logits).sum(1)).abs().max() < 1e-11


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.spec)
def test_the_centre_is_inside_the_dual_domain_with_columns_that_sum_to_zero(loss):
    labels = torch.repeat_interleave(torch.arange(CLASSES), torch.tensor([9, 4, 2, 1, 3]))
    centre = loss.dual_centre(labels, CLASSES)
    assert centre.sum(0).abs().max() < 1e-12
    assert torch.isfinite(loss.conjugate(centre, labels)).all()


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.spec)
def test_the_string_form_rebuilds_the_loss(loss):
    assert losses.get(loss.spec) == loss
    assert hash(losses.get(loss.spec)) == hash(loss)


def test_numbers_may_come_as_arrays_and_tensors():
    wanted = CrossEntropy([1.0, 2.0])
    assert CrossEntropy(np.array([1, 2])) == wanted == CrossEntropy(torch.tensor([1.0, 2.0]))


def test_they_train_a_net_on_any_dtype():
    logits = torch.zeros(4, CLASSES, dtype=torch.bfloat16, requires_grad=True)
    for loss in ALL:
        loss(logits, torch.tensor([0, 1, 2, 3])).backward()
    assert torch.isfinite(logits.grad).all()


def focal_by_hand(logits, labels):
    log_p = torch.log_softmax(logits, 1).gather(1, labels[:, None]).squeeze(1)
    return -((1 - log_p.exp()) ** 2) * log_p


class Plain(LogitLoss):
    """A loss that states its values only."""

    name = "plain"
    summary = "-log p_y, and nothing known"

    @property
    def spec(self):
        return "plain"

    def _values(self, logits, labels):
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def test_what_is_not_stated_is_not_assumed():
    loss = Plain()
    assert loss.depends_on_margins is None
    assert loss.convex_from is None
    assert loss.tight_from is None
    assert not loss.is_convex
    assert not loss.has_conjugate
    with pytest.raises(NotImplementedError, match="no conjugate is known for the loss plain"):
        loss.conjugate(torch.zeros(1, 2), torch.tensor([0]))
    with pytest.raises(TypeError, match="plain does not depend on the margin alone"):
        loss.margin_value(1.0, 3)


@pytest.mark.parametrize("bias", [None, 0.0, 0.1])
@pytest.mark.parametrize("given", ["class", "mean", "values"])
def test_a_function_is_solved_by_autograd_and_its_certificate_is_undecided(given, bias):
    loss = {
        "class": Plain(),
        "mean": torch.nn.functional.cross_entropy,
        "values": lambda z, y: torch.nn.functional.cross_entropy(z, y, reduction="none"),
    }[given]
    ours = nc.ufm.RegularizedUFM(loss, 3, [3, 2, 2], 4, 0.02, 0.03, bias)
    known = nc.ufm.RegularizedUFM("ce", 3, [3, 2, 2], 4, 0.02, 0.03, bias)
    point = known.random_point(0)
    assert ours.value(point) == pytest.approx(known.value(point), rel=1e-14)
    for method in ("lbfgs", "trust-region", "conjugate-gradient"):
        found, same = (nc.ufm.solve(problem, method, seed=1, tol=1e-9) for problem in (ours, known))
        assert found.value == pytest.approx(same.value, rel=1e-10)
    certificate = ours.certify(found.point)
    assert certificate.verdict == "undecided"
    assert "no lower bound" in certificate.reason
    assert certificate.to_dict()["lower_bound"] is None
    with pytest.raises(NotImplementedError, match="no closed form is known"):
        ours.optimum()


def test_a_function_works_on_spheres():
    ours = nc.ufm.NormalizedUFM(focal_by_hand, 4, 2, 6, 2.0)
    known = nc.ufm.NormalizedUFM("focal:gamma=2", 4, 2, 6, 2.0)
    found = nc.ufm.solve(ours, "lbfgs", seed=0)
    assert found.value == pytest.approx(known.optimum().value, rel=1e-8)
    assert ours.certify(found.point).verdict in ("undecided", "not a critical point")


def test_a_saddle_of_a_function_is_still_found():
    problem = nc.ufm.RegularizedUFM(torch.nn.functional.cross_entropy, 3, 2, 4, 0.01, 0.01)
    zero = problem.random_point(0) * 0.0
    certificate = problem.certify(zero)
    assert certificate.verdict == "strict saddle"
    assert certificate.curvature < 0


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: CrossEntropy(class_weights=[1.0, -1.0]), ValueError, r"class_weights\[1\] must be greater than 0"),
        (lambda: CrossEntropy(class_weights=3.0), TypeError, "class_weights must be a list"),
        (lambda: CrossEntropy([1.0, 2.0])(torch.zeros(1, 3), torch.tensor([0])), ValueError, "names 2 classes"),
        (lambda: CrossEntropy([1.0, 2.0]).phi(0.0, 2), TypeError, "class weights does not treat classes alike"),
        (lambda: LogitAdjusted("ce", [1.0, 0.0]), ValueError, r"prior\[1\] must be greater than 0"),
        (lambda: LogitAdjusted("ce", PRIOR, math.inf), ValueError, "strength must be finite"),
        (lambda: LogitAdjusted("sc", PRIOR), TypeError, "loss must be a loss on logits"),
        (lambda: LogitAdjusted("ce", PRIOR)(torch.zeros(1, 3), torch.tensor([0])), ValueError, "prior names 5 classes"),
        (lambda: VectorScaling([1.0, 2.0], [0.0]), ValueError, "additive must name at least 2"),
        (lambda: VectorScaling([1.0, 2.0], [0.0, 1.0, 2.0]), ValueError, "as many of them"),
        (lambda: losses.get("focal:gamma=" + "-" * 5001 + "1"), TypeError, "gamma must be a real number"),
        (lambda: losses.get("x" * 200_000), ValueError, "at most"),
        (lambda: losses.logit_loss("sc"), TypeError, "loss must be a loss on logits"),
        (lambda: losses.logit_loss(3), TypeError, "loss must be a loss on logits"),
        (
            lambda: losses.logit_loss(lambda z, y: z)(torch.zeros(2, 3), torch.tensor([0, 1])),
            ValueError,
            "must return the mean loss or 2 values",
        ),
    ],
)
@pytest.mark.unchecked
def test_bad_input_names_the_argument(call, error, words):
    with pytest.raises(error, match=words):
        call()
