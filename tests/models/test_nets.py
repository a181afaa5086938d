"""Every net of the registry: shapes, gradients, seeds, sizes; then the papers' own counts."""

import inspect
import os
import subprocess
import sys

import pytest
import torch

import neuralcollapse as nc
from neuralcollapse.models import create, nets, parameter_count

NARROW = {"mlp": 12, "resnet18": 2, "resnet50": 1, "resnet8": 2, "wide-resnet18": 0.02, "wide-resnet50": 0.02}
HEADS = ("linear", "etf", "etf:bias=False,seed=3,scale=2.5", "normalized:temperature=5", "linear:bias=False")


def narrow(name: str, shape: tuple[int, int, int] = (1, 8, 8), **arguments) -> nc.models.Classifier:
    feature_dim = arguments.pop("feature_dim", None)
    sizes = {"width": NARROW.get(name), "feature_dim": feature_dim}
    spec = f"{name}:" + ",".join(f"{key}={value}" for key, value in sizes.items() if value is not None)
    return create(spec, shape, arguments.pop("num_classes", 4), **arguments)


def test_registry_lists_the_nets_of_the_contract():
    assert {"resnet18", "resnet50", "wide-resnet18", "wide-resnet50", "mlp"} <= set(nets)
    assert inspect.unwrap(nets["wide_resnet50"]) is inspect.unwrap(nc.models.wide_resnet50)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", list(nets))
def test_logits_are_features_times_weight_plus_bias(name, head):
    model = narrow(name, head=head, feature_dim=5).eval()
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    features, logits = model.features(images), model(images)
    assert features.shape == (3, 5)
    assert logits.shape == (3, 4)
    assert (model.feature_dim, model.num_classes) == (5, 4)
    expected = features @ model.head.weight.T + (0 if model.head.bias is None else model.head.bias)
    torch.testing.assert_close(logits, expected)
    assert isinstance(model.head, nc.models.Head)


@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 8, 8), (3, 32, 32), (2, 5, 9)])
@pytest.mark.parametrize("name", list(nets))
def test_any_image_size(name, shape):
    model = narrow(name, shape).eval()
    assert model(torch.zeros(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_stems_reduce_the_image_as_stated(stem):
    model = nc.models.resnet18(width=2, stem=stem)
    assert model.encoder.stem(torch.zeros(2, 3, 32, 32)).shape == (
        2,
        2,
        *((32, 32) if stem == "cifar" else (8, 8)),
    )


@pytest.mark.parametrize("name", list(nets))
def test_gradients_reach_every_parameter(name):
    model = narrow(name, (3, 16, 16))
    images = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    torch.nn.functional.cross_entropy(model(images), torch.arange(8) % 4).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
    assert sum(float(p.grad.abs().sum()) for p in model.encoder.parameters()) > 0


@pytest.mark.parametrize("name", list(nets))
def test_seed_decides_the_weights_and_global_state_is_untouched(name):
    before = torch.random.get_rng_state()
    first, again, other = narrow(name, seed=1), narrow(name, seed=1), narrow(name, seed=2)
    assert torch.equal(before, torch.random.get_rng_state())
    states = [model.state_dict() for model in (first, again, other)]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert not all(torch.equal(states[0][key], states[2][key]) for key in states[0])


@pytest.mark.parametrize("name", list(nets))
def test_features_end_in_a_relu(name):
    features = narrow(name).eval().features(torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(2)))
    assert features.min() >= 0


NARROW_STEPS = """
import torch
import neuralcollapse as nc
torch.set_num_threads(1)
for width in (1, 2, 3, 5, 7):
    model = nc.models.resnet18(width=width, in_channels=1).to(memory_format=torch.channels_last)
    for _ in range(5):
        images = torch.randn(50, 1, 8, 8).to(memory_format=torch.channels_last)
        model(images).square().sum().backward()
"""


def test_narrow_nets_in_channels_last_layout_do_not_corrupt_memory():
    """A strided 1x1 convolution of few channels would, in PyTorch 2.13: glibc's checks end the process then."""
    environment = {**os.environ, "MALLOC_CHECK_": "3"}
    subprocess.run([sys.executable, "-c", NARROW_STEPS], env=environment, check=True, timeout=120)


def test_the_shortcut_equals_a_strided_convolution():
    block = nc.models.resnet18(width=4).encoder.stages[1][0]
    images = torch.randn(2, 4, 7, 8, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.conv2d(images, block.shortcut[1].weight, stride=2)
    torch.testing.assert_close(block.shortcut[1](block.shortcut[0](images)), expected)


def test_kaiming_fan_out_initialisation():
    convolution = nc.models.resnet18(width=64).encoder.stages[2][1].body[0]
    expected = (2 / (256 * 9)) ** 0.5
    assert abs(float(convolution.weight.detach().std()) / expected - 1) < 0.01
    wider = nc.models.resnet18(width=64).encoder.stages[2][0].body[0]  # from 128 channels to 256
    assert wider.weight.shape[:2] == (256, 128)
    assert abs(float(wider.weight.detach().std()) / expected - 1) < 0.01


@pytest.mark.parametrize(("width", "millions"), [(0.25, 6.1), (0.5, 10.5), (1.0, 23.7), (2.0, 67.0)])
def test_wide_resnet50_has_the_losses_papers_parameter_counts(width, millions):
    """Counted for CIFAR-100; d = 2048 whatever the width."""
    model = nc.models.wide_resnet50(width=width, num_classes=100)
    assert model.feature_dim == 2048
    assert round(parameter_count(model).trainable / 1e6, 1) == millions


def test_wide_resnet18_scales_inner_planes_only():
    narrow_net, wide_net = nc.models.wide_resnet18(width=0.25), nc.models.wide_resnet18(width=2)
    assert narrow_net.feature_dim == wide_net.feature_dim == 512
    assert wide_net.encoder.stages[0][0].body[0].out_channels == 128
    assert parameter_count(nc.models.wide_resnet18(width=1)) == parameter_count(nc.models.resnet18())


def test_fixed_etf_with_d_equal_k_saves_the_geometric_papers_share():
    """20.7 % of ResNet18's parameters (geometric, Section 5.3): which fixes how d = K is reached."""
    whole = parameter_count(nc.models.resnet18())
    saved = parameter_count(nc.models.resnet18(feature_dim=10, head="etf"))
    assert saved.fixed == 100
    assert saved.head == 10
    assert 1 - saved.trainable / whole.trainable == pytest.approx(0.207, abs=5e-4)


def test_resnet50_with_the_imagenet_stem_has_the_well_known_count():
    assert parameter_count(nc.models.resnet50(num_classes=1000, stem="imagenet")).trainable == 25_557_032


def test_resnet8_counted_by_hand():
    norms = lambda *channels: 2 * sum(channels)  # noqa: E731
    stem = 9 * 3 * 16 + norms(16)
    first = 2 * 9 * 16 * 16 + norms(16, 16)
    second = 9 * 16 * 32 + 9 * 32 * 32 + 16 * 32 + norms(32, 32, 32)
    third = 9 * 32 * 64 + 9 * 64 * 64 + 32 * 64 + norms(64, 64, 64)
    assert parameter_count(nc.models.resnet8()).trainable == stem + first + second + third + 64 * 10 + 10


def test_resnet18_of_width_k_has_channels_k_2k_4k_8k():
    stages = nc.models.resnet18(width=3).encoder.stages
    assert [stage[-1].body[-1].num_features for stage in stages] == [3, 6, 12, 24]


def test_mlp_is_depth_times_linear_batchnorm_relu():
    layers = nc.models.mlp(depth=3, width=7, image_size=(2, 5), in_channels=1).encoder.layers
    assert [type(layer).__name__ for layer in layers] == ["Linear", "BatchNorm1d", "ReLU"] * 3
    assert layers[0].in_features == 10


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nc.models.resnet18(width=0), "width must be at least 1, got 0"),
        (lambda: nc.models.resnet18(num_classes=1), "num_classes must be at least 2, got 1"),
        (lambda: nc.models.resnet18(stem="vgg"), "stem must be one of cifar, imagenet, got 'vgg'"),
        (lambda: nc.models.resnet18(seed=-1), "seed must be at least 0"),
        (lambda: nc.models.resnet18(head="liner"), "unknown head 'liner'; did you mean 'linear'"),
        (lambda: nc.models.resnet18(head="linear:num_classes=3"), "comes from the net"),
        (
            lambda: nc.models.resnet18(width=1, feature_dim=3, head="etf"),
            "feature_dim must be at least num_classes - 1",
        ),
        (lambda: nc.models.wide_resnet50(width=0.0), "width must be greater than 0"),
        (lambda: nc.models.mlp(depth=0), "depth must be at least 1"),
        (lambda: nc.models.mlp(width=4)(torch.zeros(2, 1, 8, 8)), "set in_channels and image_size"),
        (lambda: create("resnet19", (3, 32, 32), 10), "unknown net 'resnet19'; did you mean 'resnet1"),
        (lambda: create("resnet18:head=etf", (3, 32, 32), 10), "is an argument of its own"),
        (lambda: create("resnet18:witdh=3", (3, 32, 32), 10), "has no parameter 'witdh'"),
    ],
)
def test_bad_arguments_get_one_clear_line(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_parameter_count_takes_our_models_only():
    with pytest.raises(TypeError):
        parameter_count(torch.nn.Linear(2, 2))
