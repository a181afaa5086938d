"""A classifier fixed to a simplex ETF (geometric, Section 4.3 and Figures 5 and 10; mse, Figure 5)."""

import math
from typing import Literal, get_args

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import pad

from ..._support.checks import describe, flag, integer, real
from ...frames import simplex_etf, simplex_gram
from .._initialise import seeded
from . import heads

__all__ = ["SimplexETFHead"]

Frame = Literal["auto", "canonical", "random"]
WIDE = 4
"""Features of at least this many dimensions for each of the K - 1 of the ETF are wide."""


@heads.add("etf", "simplex-etf")
class SimplexETFHead(nn.Linear):
    """Logits ``features @ weight.T + bias`` with ``weight`` fixed to ``scale`` times a simplex ETF.

    The weight is a buffer: it moves with the module and is saved with it, but no optimizer sees it and it
    does not count among the parameters. It still is an ``nn.Linear``, so that tools which look for the last
    linear layer find it. Needs ``feature_dim >= num_classes - 1``.

    ``frame`` says how the ETF lies among features that come out of a ReLU, which cannot be negative.

    - ``"canonical"``: sqrt(K/(K-1)) (I - 11'/K) in the first K coordinates, as in the papers; features can align with
      it exactly, but each class hangs on one unit: a ReLU that dies there takes its class with it. (With d = K-1 there
      is no room for it: then the canonical frame of :func:`neuralcollapse.frames.simplex_etf`.)
    - ``"random"``: drawn from the Haar measure, so each class is spread over all d units. Non-negative features can
      align with it when the ETF's null space holds a positive vector, which in wide features (d >= 4 (K-1)) is as good
      as certain.
    - ``"auto"``: random in wide features, canonical in others.

    A ``seed`` draws a random frame by itself; else it is drawn from ``generator`` (a fresh one from seed 0 when not
    given). The bias, when there is one, is learned and starts at zero.
    """

    weight: Tensor

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        bias: bool = True,
        scale: float = 1.0,
        seed: int | None = None,
        generator: Generator | None = None,
        frame: Frame = "auto",
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
        rows = _frame(count, dim, seed, frame, generator)
        self.register_buffer("weight", (size * rows).to(torch.get_default_dtype()))
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


def _frame(count: int, dim: int, seed: int | None, frame: Frame, generator: Generator | None) -> Tensor:
    if frame not in get_args(Frame):
        raise ValueError(f"frame must be one of {', '.join(get_args(Frame))}, got {describe(frame)}")
    if seed is not None and frame == "canonical":
        raise ValueError("seed draws a random frame: give no seed with frame='canonical'")
    if seed is not None:
        return simplex_etf(count, dim, seed)
    if frame == "random" or (frame == "auto" and dim >= WIDE * (count - 1)):
        return simplex_etf(count, dim, seeded(0) if generator is None else generator)
    if dim >= count:
        return math.sqrt((count - 1) / count) * pad(simplex_gram(count), (0, dim - count))
    return simplex_etf(count, dim)
