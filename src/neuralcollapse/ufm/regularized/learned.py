"""Which classes are learned: minority collapse at the predicted count."""

import math
from typing import TYPE_CHECKING

from ...losses import CrossEntropy, LogitAdjusted, LogitLoss, SmoothedCrossEntropy, SquaredError

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["count_threshold", "learned_classes"]

APART = 1e-7
"""Logits closer than this share of the largest count as equal: they are equal or of order one apart."""


def count_threshold(problem: "RegularizedUFM") -> float | tuple[float, ...]:
    """N^2 lW lH/(omega_k (1-eps))^2 for cross-entropy (the gap law), N^2 lW lH/(alpha M)^2 for the squared error."""
    strength = _strength(problem, problem.loss)
    base = problem.num_samples * problem.mu
    if isinstance(strength, tuple):
        return tuple((base / one) ** 2 for one in strength)
    return (base / strength) ** 2


def _strength(problem: "RegularizedUFM", loss: LogitLoss) -> float | tuple[float, ...]:
    """The pull of a sample on its class at zero logits, beyond what the decays must not exceed."""
    if isinstance(loss, LogitAdjusted):
        return _strength(problem, loss.loss) if isinstance(loss.loss, SmoothedCrossEntropy) else _unknown(loss)
    if isinstance(loss, CrossEntropy) and loss.class_weights is not None:
        return tuple(float(weight) for weight in loss.class_weights)
    if isinstance(loss, SmoothedCrossEntropy):
        share = math.sqrt((problem.num_classes - 1) / problem.num_classes) if problem.nonnegative else 1.0
        return share * (1 - loss.smoothing)
    if isinstance(loss, SquaredError) and not problem.has_bias:
        return loss.alpha * loss.target
    return _unknown(loss)


def _unknown(loss: LogitLoss) -> float:
    raise NotImplementedError(f"no count threshold is known for {loss.spec} in this model")


def learned_classes(problem: "RegularizedUFM") -> tuple[int, ...]:
    """The classes whose own logit, without the bias, is above every other at their features, at the optimum."""
    point = problem.optimum().point
    starts = [sum(problem.counts[:k]) for k in range(problem.num_classes)]
    logits = point.H[starts] @ point.classifier.T
    own = logits.diagonal().clone()
    rest = logits.clone().fill_diagonal_(-math.inf).max(dim=1).values
    clear = APART * float(logits.abs().max())
    return tuple(k for k in range(problem.num_classes) if float(own[k] - rest[k]) > clear)
