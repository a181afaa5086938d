"""Losses of margins that are not convex, with a bias, near the first-order transition.

There the symmetric solution need not be global (losses, Theorem 1, does not hold for the focal loss): it can pay to
learn only m of the K classes and to shift the bias between learned and unlearned ones. The family searched here has
class logits a (I_m - 11'/m) on the learned classes, 0 elsewhere, and bias delta (K-m)/K on learned, -delta m/K on
unlearned classes (mean zero, which is best for any bias decay and arbitrary for none).
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from scipy.optimize import minimize

from ..._support.numerics import svd
from ...losses import Curve, LogitLoss
from ..point import Point
from ..results import Optimum

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["broken_symmetry_optimum"]

Reals = np.ndarray | float

BROKEN: Final = "broken symmetry"
NOT_PROVED = "not proved to be global: the loss is not convex here and there is a bias"


def broken_symmetry_optimum(problem: "RegularizedUFM", loss: LogitLoss, symmetric: Optimum) -> Optimum:
    """The lower of the symmetric solution and the best of the partly collapsed family; never marked as proved."""
    candidates = [_best_of_family(problem, loss, m) for m in _promising_counts(problem, loss)]
    value, learned, margin, shift = min(candidates, default=(math.inf, 0, 0.0, 0.0))
    if value >= symmetric.value - 1e-12:
        return replace(symmetric, proved=False, note=NOT_PROVED)
    ratio = math.sqrt(problem.counts[0] * problem.feature_decay / problem.weight_decay)
    mean_square = margin * (learned - 1) / problem.num_classes

    def rows() -> torch.Tensor:
        block = math.sqrt(margin) * (torch.eye(learned, dtype=torch.float64) - 1 / learned)
        basis, singular, _ = svd(block)
        result = torch.zeros(problem.num_classes, problem.dim, dtype=torch.float64)
        result[:learned, : learned - 1] = basis[:, : learned - 1] * singular[: learned - 1]
        return result

    def build_point() -> Point:
        frame = rows()
        bias = torch.full((problem.num_classes,), -shift * learned / problem.num_classes, dtype=torch.float64)
        bias[:learned] += shift
        return Point(math.sqrt(ratio) * frame, (frame / math.sqrt(ratio))[problem.labels], bias)

    def build_grams() -> tuple[torch.Tensor, torch.Tensor]:
        gram = rows() @ rows().T
        return ratio * gram, gram / ratio

    return Optimum(
        value=value,
        regime=BROKEN,
        logit_scale=margin,
        weight_norm=math.sqrt(ratio * mean_square),
        feature_norm=math.sqrt(mean_square / ratio),
        bias=None,
        proved=False,
        note=f"only {learned} of {problem.num_classes} classes are learned, bias shift {shift:.6g}; {NOT_PROVED}",
        build_point=build_point,
        build_grams=build_grams,
    )


def _objective(
    problem: "RegularizedUFM",
    loss: LogitLoss,
    learned: Reals,
    margin: Reals,
    shift: Reals,
) -> Curve:
    """The full objective in the family, for arrays of m, a and delta."""
    count = problem.num_classes
    first = np.logaddexp(np.log(learned - 1.0) - margin, np.log(count - learned) - margin * (1 - 1 / learned) - shift)
    rest = count - learned - 1.0
    second = np.logaddexp(np.log(np.maximum(rest, 1e-300)), np.log(learned) + shift)
    base = math.log(count - 1)
    mean = learned * loss.margin_value(base - first, count) + (count - learned) * loss.margin_value(
        base - second, count
    )
    decay = (problem.bias_decay or 0.0) * shift**2 * learned * (count - learned) / (2 * count)
    return mean / count + problem.s * (learned - 1) * margin + decay


def _promising_counts(problem: "RegularizedUFM", loss: LogitLoss) -> list[int]:
    """The numbers of learned classes whose best grid value is lowest: the local search starts from these.

    m classes at a simplex need m - 1 dimensions, so fewer than K - 1 leave room for some of the family.
    """
    learned = np.arange(2, min(problem.num_classes, problem.dim + 2))[:, None, None]
    if learned.size == 0:
        return []
    margin = np.linspace(0.2, 12, 60)[None, :, None]
    shift = np.concatenate([[0.0], np.geomspace(0.01, 2.0, 12)])[None, None, :]
    best = _objective(problem, loss, learned, margin, shift).min(axis=(1, 2))
    order = np.argsort(best)[:8]
    near = (order[:, None] + np.arange(-2, 3)).ravel().clip(0, len(best) - 1)
    return sorted({int(index) + 2 for index in near})


def _best_of_family(problem: "RegularizedUFM", loss: LogitLoss, learned: int) -> tuple[float, int, float, float]:
    margins = np.linspace(0.2, 12, 60)
    values = _objective(problem, loss, learned, margins, 0.05)
    start = [float(margins[int(np.argmin(values))]), 0.05]
    found = minimize(
        lambda v: float(_objective(problem, loss, learned, abs(v[0]), v[1])),
        start,
        method="Nelder-Mead",
        options={"xatol": 1e-11, "fatol": 1e-15, "maxiter": 1000},
    )
    return float(found.fun), int(learned), abs(float(found.x[0])), float(found.x[1])
