"""Every head of the registry under training; then what is special to each."""

import pytest
import torch
from scipy.optimize import linprog

import neuralcollapse as nc
from neuralcollapse.frames import simplex_gram
from neuralcollapse.models import LinearHead, NormalizedHead, SimplexETFHead, heads
from neuralcollapse.models._heads import create_head


def make(spec: str, dim: int = 6, classes: int = 4, seed: int = 0) -> torch.nn.Module:
    return create_head(spec, dim, classes, torch.Generator().manual_seed(seed))


def step(head: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(20, 6, generator=generator)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(head(features), torch.arange(20) % 4).backward()
    optimizer.step()


@pytest.mark.parametrize("name", list(heads))
def test_every_head_learns_saves_and_prepares(name):
    head = make(name)
    features = torch.randn(5, 6, requires_grad=True, generator=torch.Generator().manual_seed(1))
    logits = head(features)
    bias = 0 if head.bias is None else head.bias
    torch.testing.assert_close(logits, head.prepare(features) @ head.weight.T + bias)
    torch.testing.assert_close(head.prepare(head.prepare(features)), head.prepare(features))
    logits.square().sum().backward()
    assert features.grad.abs().sum() > 0
    copy = make(name)
    copy.load_state_dict(head.state_dict())
    assert torch.equal(copy.weight, head.weight)
    head.after_step()
    assert isinstance(head.to(torch.float64).weight, torch.Tensor)
    assert head.weight.dtype == torch.float64


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.AdamW])
def test_etf_is_fixed_under_an_optimizer_step_with_weight_decay(optimizer_class):
    head = SimplexETFHead(6, 4)
    before = head.weight.clone()
    step(head, optimizer_class(head.parameters(), lr=0.5, weight_decay=0.1))
    assert torch.equal(head.weight, before)
    assert head.bias.abs().sum() > 0
    assert [name for name, _ in head.named_parameters()] == ["bias"]
    assert "weight" in head.state_dict()


@pytest.mark.parametrize("dim", [3, 4, 9])
def test_etf_has_the_simplex_gram_matrix(dim):
    head = SimplexETFHead(dim, 4, bias=False, scale=3.0, seed=1)
    torch.testing.assert_close((head.weight @ head.weight.T).double(), 9 * simplex_gram(4), atol=1e-5, rtol=0)
    assert head.bias is None
    assert list(head.parameters()) == []
    assert "fixed" in repr(head)


def test_nonnegative_features_can_align_with_the_etf():
    """One coordinate a class: centred class means are then proportional to the rows (self-duality)."""
    head = SimplexETFHead(6, 4)
    means = torch.eye(4, 6)
    cosine = torch.nn.functional.cosine_similarity(means - means.mean(0), head.weight)
    torch.testing.assert_close(cosine, torch.ones(4))


def test_etf_can_be_canonical_or_random():
    canonical, random = SimplexETFHead(6, 4).weight, SimplexETFHead(6, 4, seed=0).weight
    assert torch.equal(canonical, SimplexETFHead(6, 4).weight)
    assert torch.equal(random, SimplexETFHead(6, 4, seed=0).weight)
    assert not torch.equal(canonical, random)
    assert torch.equal(SimplexETFHead(40, 4, frame="canonical").weight[:, :4], SimplexETFHead(4, 4).weight)


@pytest.mark.unchecked
def test_a_bad_frame_is_named():
    with pytest.raises(ValueError, match="frame must be one of auto, canonical, random, got 'helmert'"):
        SimplexETFHead(6, 4, frame="helmert")
    with pytest.raises(ValueError, match="no seed with frame='canonical'"):
        SimplexETFHead(6, 4, frame="canonical", seed=1)


@pytest.mark.parametrize(("dim", "classes"), [(64, 10), (12, 4), (36, 10), (512, 100)])
def test_nonnegative_features_can_align_with_the_default_etf_on_wide_features(dim, classes):
    """Each class hangs on many units, and some v > 0 with E v = 0 makes the rows non-negative at equal logits."""
    weight = make("etf", dim, classes).weight.double()
    assert int((weight.abs() > 0.1 / dim**0.5).sum(1).min()) > dim / 2
    lift = linprog(
        c=torch.zeros(dim).numpy(), A_eq=weight.numpy(), b_eq=torch.zeros(classes).numpy(), bounds=[(1.0, None)] * dim
    )
    assert lift.success
    assert not torch.equal(weight, make("etf", dim, classes, seed=1).weight.double())


def test_normalized_rows_stay_unit_when_the_loop_projects():
    head = NormalizedHead(6, 4, temperature=5.0)
    optimizer = torch.optim.SGD(head.parameters(), lr=1.0, momentum=0.9)
    for _ in range(5):
        step(head, optimizer)
        head.after_step()
        torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(4))


def test_normalized_rows_stay_unit_when_attached_to_an_optimizer():
    head = NormalizedHead(6, 4)
    optimizer = torch.optim.SGD(head.parameters(), lr=1.0)
    handle = head.attach(optimizer)
    before = head.weight.detach().clone()
    step(head, optimizer)
    torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(4))
    assert not torch.allclose(head.weight, before)
    handle.remove()
    step(head, optimizer)
    assert not torch.allclose(head.weight.norm(dim=1), torch.ones(4))


def test_normalized_features_lie_on_the_sphere_of_radius_temperature():
    model = nc.models.mlp(width=8, in_channels=1, image_size=4, head="normalized:temperature=2.5")
    images = torch.randn(16, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    features = model.features(images)
    torch.testing.assert_close(features.norm(dim=1), torch.full((16,), 2.5))
    assert (model.head(torch.zeros(1, 8)) == 0).all()
    assert model.head.temperature == 2.5
    assert (model.head.in_features, model.head.out_features, model.head.bias) == (8, 10, None)


def test_the_last_linear_layer_of_every_head_sees_the_prepared_features():
    """Tools that hook the last ``nn.Linear`` measure what ``features`` returns."""
    for name in heads:
        model = nc.models.mlp(width=12, in_channels=1, image_size=4, head=name).eval()
        linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
        seen = []
        linear.register_forward_pre_hook(lambda module, inputs, seen=seen: seen.append(inputs[0]))
        images = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
        model(images)
        torch.testing.assert_close(seen[0], model.features(images))


def test_linear_head_starts_within_pytorchs_bound():
    head = LinearHead(64, 10)
    assert float(head.weight.detach().abs().max()) <= 1 / 8
    assert torch.equal(head.weight, LinearHead(64, 10).weight)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SimplexETFHead(2, 4), "feature_dim must be at least num_classes - 1 = 3"),
        (lambda: SimplexETFHead(6, 4, scale=0.0), "scale must be greater than 0"),
        (lambda: NormalizedHead(6, 4, temperature=-1.0), "temperature must be greater than 0"),
        (lambda: LinearHead(0, 4), "feature_dim must be at least 1"),
        (lambda: make("normalized:tau=3"), "has no parameter 'tau'"),
        (lambda: make("etf:scale=nan"), "scale"),
    ],
)
def test_bad_arguments_get_one_clear_line(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize(
    ("dim", "frame"), [(3, "canonical"), (4, "canonical"), (9, "canonical"), (9, "random"), (40, "auto")]
)
def test_every_frame_is_a_simplex_of_the_stated_scale(dim, frame):
    weight = SimplexETFHead(dim, 4, scale=3.0, frame=frame).weight.double()
    torch.testing.assert_close(weight @ weight.T, 9 * simplex_gram(4), atol=1e-5, rtol=0)


def test_a_normalized_heads_bias_starts_within_pytorchs_bound_on_both_sides():
    bias = NormalizedHead(25, 400, bias=True).bias.detach()
    assert -0.2 <= float(bias.min()) < -0.19
    assert 0.19 < float(bias.max()) <= 0.2
