"""Initial weights from an explicit seed, by the papers' rule (Kaiming normal, fan-out, for convolutions)."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from .._support.checks import integer

__all__ = ["initialise", "kaiming_uniform_rows", "seeded"]


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


def initialise(build: Callable[[], nn.Module], generator: Generator) -> nn.Module:
    """The module that ``build`` makes, on the CPU, with every weight drawn from ``generator``.

    It is built on the meta device first, so that PyTorch's own initialisers draw nothing from the global
    state. Convolutions: normal with variance 2/(fan-out). Batch norm: scale 1, shift 0. Linear: PyTorch's
    uniform rule.
    """
    with torch.device("meta"):
        module = build()
    module.to_empty(device="cpu")
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1]
            with torch.no_grad():
                layer.weight.normal_(0.0, math.sqrt(2 / fan_out), generator=generator)
        elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.reset_parameters()
        elif isinstance(layer, nn.Linear):
            kaiming_uniform_rows(layer.weight, layer.bias, generator)
        elif next(layer.parameters(recurse=False), None) is not None:
            raise TypeError(f"no initialisation rule for {type(layer).__name__}")
    return module
