"""What the softmax losses share: cross-entropy against (1-alpha) e_y + alpha/K."""

import math
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import expit
from torch import Tensor

from .._support.checks import real
from ._base import Curve, Linearization, LogitLoss, MarginOptimum, entropy, log_wrong
from ._stack import LossStack, one_hot

__all__ = ["SmoothedCrossEntropy"]

SMALL = 0.01
"""Mean losses below this are computed again from the log odds: 1 - p has no digits to spare where p is nearly 1."""


class SoftmaxLinearization(Linearization):
    """Cross-entropy with smoothed targets around one array of logits; ``weights`` has one number a sample, if any."""

    def __init__(
        self,
        logits: Float[Tensor, "N K"],
        labels: Int[Tensor, " N"],
        alpha: float,
        weights: Float[Tensor, " N"] | None = None,
    ):
        self.logits = logits
        self.labels = labels[:, None]
        self.alpha = alpha
        self.weights = None if weights is None else weights[:, None]

    @property
    def value(self) -> float:
        """-(1-alpha) mean log p_y - alpha mean log p."""
        log_probabilities = torch.log_softmax(self.logits, dim=1)
        if self.weights is not None:
            log_probabilities = log_probabilities * self.weights
        value = -(1 - self.alpha) * log_probabilities.gather(1, self.labels).mean().item()
        if self.alpha:
            return value - self.alpha * log_probabilities.mean().item()
        return self._small_value() if value < SMALL else value

    def _small_value(self) -> float:
        """log(1 + e^m), averaged, m = log sum_{j != y} e^(z_j) - z_y: exact to the last digits however small."""
        wrong = torch.logsumexp(self.logits.scatter(1, self.labels, -math.inf), dim=1, keepdim=True)
        values = -torch.nn.functional.logsigmoid(self.logits.gather(1, self.labels) - wrong)
        return (values if self.weights is None else values * self.weights).mean().item()

    @cached_property
    def probabilities(self) -> Float[Tensor, "N K"]:
        """softmax(z)."""
        return torch.softmax(self.logits, dim=1)

    @cached_property
    def shares(self) -> Float[Tensor, "N K"]:
        """softmax(z) / N (times the sample's weight), for many Hessian products."""
        shares = self.probabilities / self.probabilities.shape[0]
        return shares if self.weights is None else shares * self.weights

    @property
    def gradient(self) -> Float[Tensor, "N K"]:
        """(softmax(z) - target) / N, times the sample's weight."""
        count, classes = self.probabilities.shape
        result = self.probabilities / count
        if self.alpha:
            result -= self.alpha / (classes * count)
        step = torch.full_like(self.labels, -(1 - self.alpha) / count, dtype=result.dtype)
        result.scatter_add_(1, self.labels, step)
        return result if self.weights is None else result.mul_(self.weights)

    def hessian_vector(self, direction: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """(diag(p) - pp') v / N of each row, times its weight."""
        inner = torch.linalg.vecdot(self.probabilities, direction, dim=1)
        direction -= inner[:, None]
        direction *= self.shares
        return direction


class SoftmaxStack(LossStack):
    """-sum_j t_j log p_j of many trials; ``arrays`` are p (T, K, N) and the loss of each sample (T, N)."""

    def __init__(self, labels: Int[Tensor, " N"], num_classes: int, alpha: float, weights: Float[Tensor, " N"]):
        self._alpha = alpha
        self._place = labels.numpy() * len(labels) + np.arange(len(labels))
        self._shares = weights / len(labels)
        self._target = self._shares * ((1 - alpha) * one_hot(labels, num_classes) + alpha / num_classes)
        self.arrays = []

    def at(self, logits: Float[Tensor, "T K N"]) -> LossStack:
        """log p_y is the logarithm of p_y, unless that is too small for a number."""
        probabilities = torch.softmax(logits, dim=1)
        true = self._of_true_class(probabilities)
        log_true = np.log(true, out=true) if true.min() > 1e-290 else self._of_true_class(logits.log_softmax(1))
        losses = torch.from_numpy(np.negative(log_true, out=log_true))
        if self._alpha:
            # log p_j = z_j - z_y + log p_y.
            mean = logits.mean(1).sub_(torch.from_numpy(self._of_true_class(logits)))
            losses.sub_(mean, alpha=self._alpha)
        return self._with([probabilities, losses])

    def _of_true_class(self, array: Float[Tensor, "T K N"]) -> np.ndarray:
        """The entry of each sample's class, (T, N)."""
        return array.flatten(1).numpy()[:, self._place]

    @property
    def values(self) -> Float[Tensor, " T"]:
        """The samples' losses, weighted and averaged."""
        return self.arrays[1] @ self._shares

    @property
    def gradient(self) -> Float[Tensor, "T K N"]:
        """(p - t) times the sample's weight over N."""
        return torch.mul(self.arrays[0], self._shares).sub_(self._target)

    def curvature(self, direction: Float[Tensor, "T K N"]) -> Float[Tensor, " T"]:
        """sum_j p_j (v_j - <p, v>)^2, weighted and averaged."""
        probabilities = self.arrays[0]
        mean = (probabilities * direction).sum(1, keepdim=True)
        squares = (direction - mean).square_().mul_(probabilities)
        return squares.sum(1) @ self._shares


class SmoothedCrossEntropy(LogitLoss):
    """-sum_j t_j log p_j with t = (1-alpha) e_y + alpha/K; convex, with entropy as its dual."""

    @property
    def _alpha(self) -> float:
        return 0.0

    @property
    def smoothing(self) -> float:
        """The share alpha of the target that is spread over all classes."""
        return self._alpha

    @property
    def depends_on_margins(self) -> bool:
        """True: -log p_y is a function of the differences z_j - z_y."""
        return True

    @property
    def convex_from(self) -> float:
        """0: convex everywhere."""
        return 0.0

    def _values(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none", label_smoothing=self._alpha)

    def _mean(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, ""]:
        return torch.nn.functional.cross_entropy(logits, labels, label_smoothing=self._alpha)

    def linearize(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> SoftmaxLinearization:
        """Value and derivatives, sharing the softmax."""
        return SoftmaxLinearization(logits, labels, self._alpha)

    def stack(self, labels: Int[Tensor, " N"], num_classes: int) -> SoftmaxStack:
        """The loss for many trials at once."""
        return SoftmaxStack(labels, num_classes, self._alpha, torch.ones(len(labels), dtype=torch.float64))

    def conjugate(self, dual: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """-H(u + t) where u + t is a probability vector, infinity elsewhere.

        Rows sum to zero, so the true class's probability is what the others leave: that keeps the digits of a small
        entropy.
        """
        wrong = (dual + self._alpha / dual.shape[1]).scatter_(1, labels[:, None], 0.0)
        rest = wrong.sum(1)
        true = torch.where(rest < 0.5, (rest - 1) * torch.log1p(-rest.clamp(max=0.5)), torch.special.entr(1 - rest))
        return -(entropy(wrong) + true)

    def dual_rows(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, "N K"]:
        """The per-sample gradients; the true class's entry is minus the sum of the others."""
        wrong = super().dual_rows(logits, labels).scatter_(1, labels[:, None], 0.0)
        return wrong.scatter_(1, labels[:, None], -wrong.sum(1, keepdim=True))

    def dual_centre(self, labels: Int[Tensor, " N"], num_classes: int) -> Float[Tensor, "N K"]:
        """(1-alpha) (pi - e_y): u + t = (1-alpha) pi + alpha/K."""
        return (1 - self._alpha) * super().dual_centre(labels, num_classes)

    def margin_value(self, margin: ArrayLike, num_classes: int) -> Curve:
        """log(1 + (K-1) e^{-a}) + alpha (K-1)/K a."""
        margin = np.asarray(margin, dtype=np.float64)
        linear = self._alpha * (num_classes - 1) / num_classes * margin
        return np.logaddexp(0.0, log_wrong(num_classes) - margin) + linear

    def margin_derivative(self, margin: ArrayLike, num_classes: int) -> Curve:
        """-(1 - p) + alpha (K-1)/K."""
        margin = np.asarray(margin, dtype=np.float64)
        return self._alpha * (num_classes - 1) / num_classes - expit(log_wrong(num_classes) - margin)

    def optimal_margin(self, slope: float, num_classes: int) -> MarginOptimum:
        """p_other = slope/(K-1) + alpha/K, a = log(1/p_other - K + 1), value = entropy of p."""
        other = real("slope", slope, above=0) / (num_classes - 1) + self._alpha / num_classes
        if other * num_classes >= 1:
            return MarginOptimum(0.0, math.log(num_classes))
        true = 1 - (num_classes - 1) * other
        value = -true * math.log1p(-(num_classes - 1) * other) - (num_classes - 1) * other * math.log(other)
        return MarginOptimum(math.log(true / other), value)
