"""Initial weights from an explicit seed, by the rule of one paper or the other.

The rules differ in convolutions only. ``kaiming-fan-out`` (geometric, mse): normal with variance 2/(fan-out).
``torch`` (losses, normalized): PyTorch's default, uniform in +-1/sqrt(fan-in), so variance 1/(3 fan-in): six times less
in a 3x3 layer that keeps its width. Under batch norm smaller weights make larger effective steps.
"""

import math
from collections.abc import Callable
from typing import get_args

import torch
from torch import Generator, Tensor, nn

from .._support.checks import describe, integer
from .._support.fields.plan import Init
from .._support.machine import check_room

__all__ = ["Init", "initialise", "kaiming_uniform_rows", "seeded"]


def seeded(seed: object) -> Generator:
    """A generator that starts at ``seed``; global random state stays as it is."""
    return torch.Generator().manual_seed(integer("seed", seed, minimum=0))


def kaiming_uniform_rows(weight: Tensor, bias: Tensor | None, generator: Generator) -> None:
    """PyTorch's own rule for a linear layer: uniform in +-1/sqrt(inputs), for the weight and for the bias."""
    bound = 1 / math.sqrt(weight.shape[1])
    with torch.no_grad():
        weight.uniform_(-bound, bound, generator=generator)
        if bias is not None:
            bias.uniform_(-bound, bound, generator=generator)


def initialise(build: Callable[[], nn.Module], generator: Generator, init: Init = "kaiming-fan-out") -> nn.Module:
    """The module that ``build`` makes, on the CPU, with every weight drawn from ``generator``.

    It is built on the meta device first, so that PyTorch's own initialisers draw nothing from the global
    state. Convolutions: by the rule ``init``. Batch norm: scale 1, shift 0. Linear: PyTorch's uniform rule.
    """
    if init not in get_args(Init):
        raise ValueError(f"init must be one of {', '.join(get_args(Init))}, got {describe(init)}")
    with torch.device("meta"):
        module = build()
    size = sum(tensor.numel() for tensor in module.state_dict().values())
    check_room(f"a net of {size:.3g} parameters", 4 * size)
    module.to_empty(device="cpu")
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            _initialise_convolution(layer, generator, init)
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.reset_parameters()
        elif isinstance(layer, nn.Linear):
            kaiming_uniform_rows(layer.weight, layer.bias, generator)
        elif next(layer.parameters(recurse=False), None) is not None:
            raise TypeError(f"no initialisation rule for {type(layer).__name__}")
    return module


@torch.no_grad()
def _initialise_convolution(layer: nn.Conv2d, generator: Generator, init: Init) -> None:
    area = layer.kernel_size[0] * layer.kernel_size[1]
    if init == "torch":
        bound = 1 / math.sqrt(layer.in_channels * area)
        layer.weight.uniform_(-bound, bound, generator=generator)
    else:
        layer.weight.normal_(0.0, math.sqrt(2 / (layer.out_channels * area)), generator=generator)
