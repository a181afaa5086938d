"""A classifier fixed to a simplex ETF (geometric, Section 5.3; mse, Section 4.3)."""

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import pad

from ..._support.checks import flag, integer, real
from ...frames import simplex_etf, simplex_gram
from . import heads

__all__ = ["SimplexETFHead"]


@heads.add("etf", "simplex-etf")
class SimplexETFHead(nn.Linear):
    """Logits ``features @ weight.T + bias`` with ``weight`` fixed to ``scale`` times a simplex ETF.

    The weight is a buffer: it moves with the module and is saved with it, but no optimizer sees it and it
    does not count among the parameters. It still is an ``nn.Linear``, so that tools which look for the last
    linear layer find it. Needs ``feature_dim >= num_classes - 1``.

    ``seed=None`` gives sqrt(K/(K-1)) (I - 11'/K) in the first K coordinates, as in the papers: features that come out
    of a ReLU can align with it, one coordinate a class. (With d = K-1 there is no room for it: then the canonical
    frame.) A seed gives one drawn from the Haar measure. The bias, when there is one, is learned and starts at zero.
    ``generator`` is accepted like in every head and draws nothing.
    """

    weight: Tensor

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        bias: bool = True,
        scale: float | int = 1.0,
        seed: int | None = None,
        generator: Generator | None = None,
    ):
        dim = integer("feature_dim", feature_dim, minimum=1)
        count = integer("num_classes", num_classes, minimum=2)
        if dim < count - 1:
            raise ValueError(f"feature_dim must be at least num_classes - 1 = {count - 1} for an ETF head, got {dim}")
        size = real("scale", scale, above=0.0)
        super().__init__(dim, count, bias=flag("bias", bias), device=torch.device("meta"))
        self.scale = size
        del self._parameters["weight"]
        self.to_empty(device="cpu")
        self.register_buffer("weight", (size * _frame(count, dim, seed)).to(torch.get_default_dtype()))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def prepare(self, features: Tensor) -> Tensor:
        """The features themselves."""
        return features

    def after_step(self) -> None:
        """Nothing to restore: no optimizer moves the weight."""

    def extra_repr(self) -> str:
        """Sizes and scale, for ``print(head)``."""
        return f"{super().extra_repr()}, scale={self.scale:g}, fixed"


def _frame(count: int, dim: int, seed: int | None) -> Tensor:
    if seed is None and dim >= count:
        return math.sqrt((count - 1) / count) * pad(simplex_gram(count), (0, dim - count))
    return simplex_etf(count, dim, seed)
