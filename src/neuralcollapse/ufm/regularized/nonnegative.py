"""Non-negative features, cross-entropy without a bias (geometric, footnote 17; Dang et al. 2024): any counts, d >= K.

Features of different classes are orthogonal, because entries cannot be negative, so every class pays alone:

    f* = sum_k min_{x >= 0} (n_k/N) log(1 + (K-1) e^(-x)) + mu sqrt(n_k (K-1)/K) x,

with class logits x_k (e_k - 1/K): the minimiser has p_other = min(1/K, N mu/(sqrt(n_k) sqrt(K(K-1)))).
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...losses import CrossEntropy
from ..point import Point
from ..results import Optimum

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["nonnegative_optimum", "nonnegative_value"]


def class_margins(problem: "RegularizedUFM") -> list[float]:
    """x_k = log((1 - (K-1) q_k)/q_k) of each class."""
    classes, total = problem.num_classes, problem.num_samples
    margins = []
    for count in problem.counts:
        other = total * problem.mu / math.sqrt(count * classes * (classes - 1))
        margins.append(math.log(1 / other - classes + 1) if other * classes < 1 else 0.0)
    return margins


def nonnegative_value(problem: "RegularizedUFM") -> float | None:
    """f* (a lower bound for d < K, where it need not be attained), or None where it is not known."""
    loss = problem.loss
    if problem.mu == 0 or problem.has_bias or not isinstance(loss, CrossEntropy) or loss.class_weights is not None:
        return None
    classes = problem.num_classes
    terms = []
    for count, margin in zip(problem.counts, class_margins(problem), strict=True):
        fit = math.log1p((classes - 1) * math.exp(-margin))
        terms.append(count / problem.num_samples * fit)
        terms.append(problem.mu * math.sqrt(count * (classes - 1) / classes) * margin)
    return math.fsum(terms)


def nonnegative_optimum(problem: "RegularizedUFM") -> Optimum:
    """The closed form; NotImplementedError for other losses, a bias or d < K."""
    value, classes = nonnegative_value(problem), problem.num_classes
    if value is None:
        raise NotImplementedError(
            "with non-negative features a closed form is known for cross-entropy without a bias (and positive decays)"
        )
    if problem.dim < classes:
        raise NotImplementedError(
            f"no closed form is known for non-negative features with dim = {problem.dim} < num_classes = {classes}"
        )
    margins = class_margins(problem)
    learned = sum(margin > 0 for margin in margins)
    sizes = [
        math.sqrt(margin * math.sqrt(problem.weight_decay * (classes - 1) / (classes * problem.feature_decay * count)))
        for margin, count in zip(margins, problem.counts, strict=True)
    ]

    def arrays() -> tuple[Tensor, Tensor]:
        means = torch.zeros(classes, problem.dim, dtype=torch.float64)
        weight = torch.zeros(classes, problem.dim, dtype=torch.float64)
        for k, (size, margin) in enumerate(zip(sizes, margins, strict=True)):
            if margin > 0:
                means[k, k] = size
                weight[:, k] = -margin / (classes * size)
                weight[k, k] += margin / size
        return weight, means

    def build_point() -> Point:
        weight, means = arrays()
        return Point(weight, means[problem.labels])

    def build_grams() -> tuple[Tensor, Tensor]:
        weight, means = arrays()
        return weight @ weight.T, means @ means.T

    squares = [(m / s) ** 2 * (classes - 1) / classes if m > 0 else 0.0 for m, s in zip(margins, sizes, strict=True)]
    spread = math.fsum(n * s**2 for n, s in zip(problem.counts, sizes, strict=True)) / problem.num_samples
    return Optimum(
        value=value,
        regime="orthogonal features" if learned == classes else "minority collapse" if learned else "zero",
        logit_scale=math.fsum(margins) / classes,
        weight_norm=math.sqrt(math.fsum(squares) / classes),
        feature_norm=math.sqrt(spread),
        note="" if learned == classes else f"{learned} of {classes} classes are learned",
        build_point=build_point,
        build_grams=build_grams,
    )
