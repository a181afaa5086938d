"""Properties that hold for every loss of the registry; a new loss is picked up with no edit."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralcollapse import losses
from neuralcollapse.losses import LogitLoss
from reference import first_derivative

SPECS = [*losses.losses, "focal:gamma=0", "focal:gamma=0.5", "focal:gamma=5", "ls:alpha=0.5",
         "mse:alpha=5,target=3", "mse:alpha=0.3,target=2", "sc:temperature=2"]  # fmt: skip
ALL = [losses.get(spec) for spec in SPECS]
ON_LOGITS = [loss for loss in ALL if isinstance(loss, LogitLoss)]
WITH_CONJUGATE = [loss for loss in ON_LOGITS if loss.has_conjugate]
STATED_CONVEX = [loss for loss in ON_LOGITS if loss.convex_from is not None]
CONTRASTIVE = [loss for loss in ON_LOGITS if loss.contrastive]


def example(loss, seed=0, count=7, classes=5, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    outputs = scale * torch.randn(count, classes, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 3 if loss.takes == "features" else classes, (count,), generator=generator)
    direction = torch.randn(count, classes, dtype=torch.float64, generator=generator)
    return outputs, labels, direction


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.spec)
def test_derivatives_agree_with_finite_differences(loss, classes, seed):
    outputs, labels, direction = example(loss, seed, classes=classes)
    slope = first_derivative(lambda t: float(loss(outputs + t * direction, labels)))
    analytic = float((loss.gradient(outputs, labels) * direction).sum())
    assert analytic == pytest.approx(slope, rel=1e-8, abs=1e-9)
    bend = first_derivative(lambda t: loss.gradient(outputs + t * direction, labels))
    product = loss.hessian_vector(outputs, labels, direction)
    assert (product - bend).norm() <= 1e-8 * bend.norm() + 1e-11


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.spec)
def test_autograd_agrees_with_the_analytic_gradient(loss):
    outputs, labels, _ = example(loss)
    outputs.requires_grad_()
    (slope,) = torch.autograd.grad(loss(outputs, labels), outputs)
    torch.testing.assert_close(slope, loss.gradient(outputs.detach(), labels), rtol=1e-12, atol=1e-14)
    assert not loss.gradient(outputs.detach(), labels).requires_grad


@pytest.mark.parametrize("loss", ON_LOGITS, ids=lambda loss: loss.spec)
def test_hessian_vector_leaves_its_argument_alone(loss):
    logits, labels, direction = example(loss)
    before = direction.clone()
    loss.hessian_vector(logits, labels, direction)
    assert torch.equal(direction, before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.spec)
def test_huge_outputs_stay_finite_in_every_precision(loss, dtype):
    outputs = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4], [1e4, 1e4, 1e4], [0.0, 0.0, 0.0]], dtype=dtype)
    if loss.takes == "features":
        outputs = outputs[:3]
    outputs.requires_grad_()
    labels = torch.tensor([0, 0, 2, 1])[: len(outputs)]
    value = loss(outputs, labels)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(outputs.grad).all()
    assert value.dtype == (torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.spec)
def test_the_string_form_rebuilds_the_loss(loss):
    assert losses.get(loss.spec) == loss
    assert losses.get(loss) is loss
    assert hash(losses.get(loss.spec)) == hash(loss)
    assert loss.summary


@pytest.mark.parametrize("loss", WITH_CONJUGATE, ids=lambda loss: loss.spec)
def test_fenchel_young(loss):
    """conj(u) + loss(z) >= <u, z> for all z, with equality at the z that the dual rows come from, where convex."""
    logits, labels, _ = example(loss, count=40)
    rows = loss.dual_rows(logits, labels)
    conjugate = loss.conjugate(rows, labels)
    for seed in range(20):
        other = 4 * torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        slack = conjugate + loss.values(other, labels) - (rows * other).sum(1)
        assert slack.min() >= -1e-12
    tight = torch.softmax(logits, 1).gather(1, labels[:, None]).squeeze(1) >= loss.tight_from
    gap = (conjugate + loss.values(logits, labels) - (rows * logits).sum(1))[tight]
    assert len(gap) > 0
    assert gap.abs().max() < 1e-11


@pytest.mark.parametrize("loss", STATED_CONVEX, ids=lambda loss: loss.spec)
def test_convex_exactly_where_stated(loss):
    """Eigenvalues of the dense Hessian, from its products, against the stated threshold on p_y."""
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(400, 4, dtype=torch.float64, generator=generator)
    labels = torch.zeros(400, dtype=torch.int64)
    columns = [
        loss.hessian_vector(logits, labels, torch.eye(4, dtype=torch.float64)[k].repeat(400, 1)) * 400 for k in range(4)
    ]
    smallest = torch.linalg.eigvalsh(torch.stack(columns, dim=2))[:, 0]
    true = torch.softmax(logits, 1)[:, 0]
    clear = (true - loss.convex_from).abs() > 1e-3 * max(loss.convex_from, 1e-3)
    convex = true >= loss.convex_from
    assert (smallest[clear & convex] > -1e-12).all()
    assert (smallest[clear & ~convex] < 0).all()
    if not loss.is_convex:
        assert (clear & ~convex).sum() > 10


@pytest.mark.parametrize("loss", CONTRASTIVE, ids=lambda loss: loss.spec)
def test_contrastive_bound(loss):
    """loss(z) >= phi(sum_{j != y} (z_j - z_y)), with equality when the wrong logits agree; phi' by differences."""
    logits, labels, _ = example(loss, count=60)
    total = (logits - logits.gather(1, labels[:, None])).sum(1)
    assert (loss.values(logits, labels).numpy() >= loss.phi(total.numpy(), 5) - 1e-12).all()
    margins = torch.linspace(-4.1, 6.2, 21, dtype=torch.float64)  # not where a hinge may bend
    equal = torch.zeros(21, 5, dtype=torch.float64)
    equal[:, 2] = margins
    values = loss.values(equal, torch.full((21,), 2)).numpy()
    assert loss.margin_value(margins.numpy(), 5) == pytest.approx(values, rel=1e-13)
    assert loss.phi(-4 * margins.numpy(), 5) == pytest.approx(values, rel=1e-13)
    slope = first_derivative(lambda t: loss.margin_value(margins.numpy() + t, 5))
    assert loss.margin_derivative(margins.numpy(), 5) == pytest.approx(slope, rel=1e-8, abs=1e-10)
    slope = first_derivative(lambda t: loss.phi(-4 * margins.numpy() + t, 5))
    assert loss.phi_derivative(-4 * margins.numpy(), 5) == pytest.approx(slope, rel=1e-8, abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(
    index=st.integers(0, len(CONTRASTIVE) - 1),
    classes=st.integers(2, 300),
    log_slope=st.floats(-8, 0.5),
)
def test_optimal_margin_beats_a_scan(index, classes, log_slope):
    loss, slope = CONTRASTIVE[index], 10**log_slope
    best = loss.optimal_margin(slope, classes)
    grid = torch.cat([torch.linspace(0, 60, 6001), torch.logspace(-6, 2, 2000)]).double().numpy()
    scan = loss.margin_value(grid, classes) + slope * grid
    assert best.value <= scan.min() + 1e-12
    assert best.value >= scan.min() - 1e-3 * max(slope, 1e-3) - 1e-4
    assert best.value == pytest.approx(float(loss.margin_value(best.margin, classes)) + slope * best.margin, abs=1e-13)


def test_a_new_loss_gets_its_optimum_from_the_general_search():
    """The default scalar search agrees with the closed forms of the losses that have one."""
    for loss in CONTRASTIVE:
        for slope in (0.01, 0.3, 0.7, 2.0):
            for classes in (2, 10, 100):
                general = LogitLoss.optimal_margin(loss, slope, classes)
                own = loss.optimal_margin(slope, classes)
                assert general.value == pytest.approx(own.value, abs=1e-11)


def test_squared_error_has_no_margin_form():
    with pytest.raises(TypeError, match="squared-error does not depend on the margin alone"):
        losses.SquaredError().phi(0.0, 3)


def test_contrastive_loss_skips_samples_that_are_alone():
    loss = losses.SupervisedContrastive()
    features = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 0, 1, 2, 3])
    total = 0.0
    unit = torch.nn.functional.normalize(features, dim=1)
    for i, j in ((0, 1), (1, 0)):
        others = torch.cat([unit[:i], unit[i + 1 :]])
        total += float(torch.logsumexp(others @ unit[i], 0) - unit[i] @ unit[j]) / 2
    assert float(loss(features, labels)) == pytest.approx(total, rel=1e-6)
    features.requires_grad_()
    alone = loss(features, torch.arange(5))
    alone.backward()
    assert alone.item() == 0.0
    assert torch.equal(features.grad, torch.zeros(5, 3))


def test_contrastive_engine_is_the_same_in_blocks(monkeypatch):
    from neuralcollapse.losses import supervised_contrastive as module

    loss = losses.SupervisedContrastive(1.3)
    generator = torch.Generator().manual_seed(0)
    unit = torch.nn.functional.normalize(torch.randn(23, 4, dtype=torch.float64, generator=generator), dim=1)
    labels = torch.randint(0, 4, (23,), generator=generator)
    direction = torch.randn(23, 4, dtype=torch.float64, generator=generator)
    whole = loss.linearize(unit, labels)
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 100)
    parts = loss.linearize(unit, labels)
    assert parts.value == pytest.approx(whole.value, rel=1e-14)
    torch.testing.assert_close(parts.gradient, whole.gradient)
    torch.testing.assert_close(parts.hessian_vector(direction), whole.hessian_vector(direction))
    torch.testing.assert_close(parts.pair_gradient(), whole.pair_gradient())


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: losses.get("focl"), ValueError, "unknown loss 'focl'; did you mean 'focal'?"),
        (
            lambda: losses.get("focal:gama=2"),
            ValueError,
            "loss 'focal' has no parameter 'gama' .it takes: gamma.",
        ),
        (lambda: losses.get("focal:gamma=-1"), ValueError, "gamma must be at least 0, got -1"),
        (lambda: losses.get("focal:gamma=two"), TypeError, "gamma must be a real number, got 'two'"),
        (lambda: losses.get("focal:gamma"), ValueError, "expected key=value, got 'gamma'"),
        (lambda: losses.get("focal:gamma=1,gamma=2"), ValueError, "given twice"),
        (lambda: losses.get("ce:x=1"), ValueError, "it takes: class_weights"),
        (lambda: losses.LabelSmoothing(1.0), ValueError, "alpha must be less than 1"),
        (lambda: losses.SquaredError(alpha=0), ValueError, "alpha must be greater than 0"),
        (lambda: losses.SquaredError(target=math.nan), ValueError, "target must be finite"),
        (
            lambda: losses.CrossEntropy()(torch.zeros(3), torch.zeros(3)),
            ValueError,
            "logits must be floating",
        ),
        (lambda: losses.CrossEntropy()(torch.zeros(3, 1), torch.zeros(3).long()), ValueError, "K >= 2"),
        (lambda: losses.CrossEntropy()(torch.zeros(3, 4), torch.zeros(2).long()), ValueError, "shape .3,."),
        (
            lambda: losses.CrossEntropy()(torch.zeros(3, 4), torch.zeros(3)),
            ValueError,
            "labels must be integers",
        ),
        (
            lambda: losses.CrossEntropy()(torch.zeros(3, 4), torch.tensor([0, 4, 1])),
            ValueError,
            "in 0..3, got 4",
        ),
        (lambda: losses.Focal()(torch.zeros(3, 4), torch.tensor([0, -1, 1])), ValueError, "in 0..3, got -1"),
        (lambda: losses.Focal()(torch.zeros(0, 4), torch.zeros(0).long()), ValueError, "empty"),
        (
            lambda: losses.SupervisedContrastive()(torch.zeros(3), torch.zeros(3).long()),
            ValueError,
            "features must be",
        ),
        (lambda: losses.CrossEntropy()([1.0], torch.zeros(1)), TypeError, "takes tensors"),
    ],
)
@pytest.mark.unchecked
def test_bad_input_names_the_argument(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("gamma", [0.5, 3.0])
def test_the_focal_conjugate_is_infinite_outside_its_domain(gamma):
    """Rows r (q - e_y): finite for r up to 1, infinite beyond, where <u, z> - F grows without end."""
    loss, labels = losses.Focal(gamma), torch.tensor([0])
    row = torch.tensor([[-1.0, 0.25, 0.75]], dtype=torch.float64)
    assert torch.isfinite(loss.conjugate(row, labels)).all()
    assert float(loss.conjugate(1.5 * row, labels)) == math.inf
    assert float(loss.conjugate(row + torch.tensor([[0.0, -0.5, 0.5]]), labels)) == math.inf


@pytest.mark.parametrize("margin", [5.0, 8.0, 40.0, 300.0])
def test_a_small_cross_entropy_keeps_its_digits(margin):
    logits = torch.tensor([[margin, 0.0, 0.0]], dtype=torch.float64)
    value = losses.CrossEntropy().linearize(logits, torch.tensor([0])).value
    assert value == pytest.approx(math.log1p(2 * math.exp(-margin)), rel=1e-13, abs=0)
