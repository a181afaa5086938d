"""From the logits of the class means to a whole optimum: the balanced factorisation of a collapsed minimiser.

Z (K, K) has the logits of class k's mean, less the bias, in row k. With D the counts and D^(1/2) Z = U S V', the least
lW/2 |W|^2 + lH/2 sum_k n_k |h_k|^2 over W, H with H W' = Z is mu tr S, attained by W = (lH/lW)^(1/4) V S^(1/2) and
D^(1/2) H = (lW/lH)^(1/4) U S^(1/2).
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ..point import Point
from ..results import Optimum

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["factored", "from_class_logits"]


def factored(
    problem: "RegularizedUFM", logits: Float[Tensor, "K K"], rank: int | None = None
) -> tuple[Float[Tensor, "K d"], Float[Tensor, "K d"]]:
    """(W, class means) of least penalty with these class logits; at most ``rank`` (default d) directions are kept."""
    roots = torch.tensor(problem.counts, dtype=torch.float64).sqrt()[:, None]
    left, singular, right = torch.linalg.svd(roots * logits)
    kept = min(problem.dim, problem.num_classes, problem.dim if rank is None else rank)
    balance = (problem.feature_decay / problem.weight_decay) ** 0.25
    root = singular[:kept].sqrt()
    weight, means = (torch.zeros(problem.num_classes, problem.dim, dtype=torch.float64) for _ in range(2))
    weight[:, :kept] = balance * right[:kept].T * root
    means[:, :kept] = left[:, :kept] * root / (roots * balance)
    return weight, means


def from_class_logits(
    problem: "RegularizedUFM",
    value: float,
    regime: str,
    logits: Callable[[], tuple[Float[Tensor, "K K"], Float[Tensor, " K"] | None]],
    sizes: tuple[float, float, float],
    bias: float | None = None,
    note: str = "",
    proved: bool = True,
) -> Optimum:
    """The optimum whose class logits (and bias) ``logits`` gives when they are asked for.

    ``sizes`` are the mean margin, the nuclear norm of D^(1/2) Z, and N, from which the norms of one row follow.
    """
    margin, nuclear, samples = sizes
    ratio = math.sqrt(problem.feature_decay / problem.weight_decay)

    def build() -> tuple[Tensor, Tensor, Tensor | None]:
        array, shift = logits()
        return *factored(problem, array), shift

    def build_point() -> Point:
        weight, means, shift = build()
        return Point(weight, means[problem.labels], shift if problem.has_bias else None)

    def build_grams() -> tuple[Tensor, Tensor]:
        weight, means, _ = build()
        return weight @ weight.T, means @ means.T

    return Optimum(
        value=value,
        regime=regime,
        logit_scale=margin,
        weight_norm=math.sqrt(ratio * nuclear / problem.num_classes),
        feature_norm=math.sqrt(nuclear / ratio / samples),
        bias=bias,
        proved=proved,
        note=note,
        build_point=build_point,
        build_grams=build_grams,
    )
