"""The focal loss: margin form, exact convexity region, first-order transition.

m = log sum_{j != y} exp(z_j) - z_y is the log odds against the true class, so p = p_y = 1/(1 + e^m), and
FL = F(m) = (1-p)^g (-log p). Its slope is F'(m) = h(p) = (1-p)^g [(1-p) - g p log p].
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit
from torch import Tensor

from .._support.checks import real
from .._support.numerics import root
from ._base import Curve, Linearization, LogitLoss, MarginOptimum, Transition, entropy, log_wrong, losses
from ._stack import LossStack, one_hot

__all__ = ["Focal"]


class FocalLinearization(Linearization):
    """The focal loss around one array of logits; keeps q, the softmax over wrong classes."""

    def __init__(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"], gamma: float):
        self.labels = labels[:, None]
        self.gamma = gamma
        self.odds, self.wrong = _odds_and_wrong(logits, self.labels)

    @property
    def value(self) -> float:
        """F(m), averaged."""
        return float(_focal_value(self.odds, self.gamma).mean())

    @cached_property
    def slope(self) -> Float[Tensor, "N 1"]:
        """F'(m)."""
        return _focal_slope(self.odds, self.gamma)[:, None]

    @cached_property
    def curvature(self) -> Float[Tensor, "N 1"]:
        """F''(m)."""
        return _focal_curvature(self.odds, self.gamma)[:, None]

    @property
    def gradient(self) -> Float[Tensor, "N K"]:
        """h(p) (q - e_y) / N."""
        slope = self.slope / self.wrong.shape[0]
        return (slope * self.wrong).scatter_add_(1, self.labels, -slope)

    def hessian_vector(self, direction: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """[ F''(m) (q-e_y)(q-e_y)' + F'(m) (diag(q) - qq') ] v / N of each row."""
        mean = torch.linalg.vecdot(self.wrong, direction, dim=1)[:, None]
        along = self.curvature * (mean - direction.gather(1, self.labels))
        direction -= mean
        direction *= self.slope
        direction += along
        direction *= self.wrong
        direction.scatter_add_(1, self.labels, -along)
        direction /= self.wrong.shape[0]
        return direction


class FocalStack(LossStack):
    """The focal loss of many trials; ``arrays`` are m (T, N) and q (T, K, N)."""

    def __init__(self, labels: Int[Tensor, " N"], num_classes: int, gamma: float):
        self._true = one_hot(labels, num_classes)
        self._hidden = torch.zeros_like(self._true).masked_fill_(self._true > 0, -math.inf)
        self._place = labels[None, None]
        self._gamma = gamma
        self.arrays = []

    def at(self, logits: Float[Tensor, "T K N"]) -> LossStack:
        """The softmax over wrong classes, and the log odds against the true one."""
        true = self._of_true_class(logits)
        wrong = logits + self._hidden
        log_wrong_softmax = torch.log_softmax(wrong, dim=1)
        # log-sum-exp of the wrong logits, read off at the largest of them.
        total = wrong.amax(1) - log_wrong_softmax.amax(1)
        return self._with([_within_range(total - true), log_wrong_softmax.exp_()])

    @property
    def values(self) -> Float[Tensor, " T"]:
        """F(m), averaged."""
        return _focal_value(self.arrays[0], self._gamma).mean(1)

    @property
    def gradient(self) -> Float[Tensor, "T K N"]:
        """h(p) (q - e_y) / N."""
        odds, wrong = self.arrays
        return (wrong - self._true).mul_((_focal_slope(odds, self._gamma) / odds.shape[1])[:, None])

    def curvature(self, direction: Float[Tensor, "T K N"]) -> Float[Tensor, " T"]:
        """F''(m) <q - e_y, v>^2 + F'(m) sum_j q_j (v_j - <q, v>)^2, averaged."""
        odds, wrong = self.arrays
        mean = (wrong * direction).sum(1)
        spread = (direction - mean[:, None]).square_().mul_(wrong).sum(1)
        along = (mean - self._of_true_class(direction)).square_()
        return (_focal_curvature(odds, self._gamma) * along + _focal_slope(odds, self._gamma) * spread).mean(1)

    def _of_true_class(self, array: Float[Tensor, "T K N"]) -> Float[Tensor, "T N"]:
        return array.gather(1, self._place.expand(len(array), 1, -1)).squeeze(1)


@losses.add("focal", "fl")
@dataclass(frozen=True)
class Focal(LogitLoss):
    """-(1 - p_y)^gamma log p_y, gamma >= 0 (losses, eq. (4)).

    Convex in z exactly where p_y >= :attr:`convex_from` (the sup over gamma is 0.0584; the paper's bound is 0.21).

    >>> Focal(gamma=2)(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0])).item()  # log(2)/4
    0.17328679513998632
    """

    gamma: float = 3.0

    name: ClassVar[str] = "focal"
    summary: ClassVar[str] = "-(1 - p_y)^gamma log p_y"

    def __post_init__(self) -> None:
        gamma = real("gamma", self.gamma, minimum=0, maximum=1e6)
        if 0 < gamma < 1e-9:
            raise ValueError(f"gamma must be 0 (cross-entropy) or at least 1e-9, got {gamma:g}")
        object.__setattr__(self, "gamma", gamma)

    @property
    def depends_on_margins(self) -> bool:
        """True: a function of the log odds m."""
        return True

    def collapse_survives_bias(self, slope: float, num_classes: int) -> bool:
        """Also where slope <= 1: the envelope's largest slope is 1, so the minimiser has p >= p_1."""
        return slope <= 1 or super().collapse_survives_bias(slope, num_classes)

    def _values(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        true = logits.gather(1, labels[:, None]).squeeze(1)
        rest = logits.scatter(1, labels[:, None], -math.inf)
        return _focal_value(_within_range(torch.logsumexp(rest, dim=1) - true), self.gamma)

    def linearize(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> FocalLinearization:
        """Value and derivatives, sharing the softmax over wrong classes."""
        return FocalLinearization(logits, labels, self.gamma)

    def stack(self, labels: Int[Tensor, " N"], num_classes: int) -> FocalStack:
        """The loss for many trials at once."""
        return FocalStack(labels, num_classes, self.gamma)

    @property
    def convex_from(self) -> float:
        """p_inf: the root of g (1 - (g+1) p) log p + (2g+1)(1-p) = 0 below 1/(g+1) (0 for gamma = 0)."""
        return _inflection(self.gamma)

    @property
    def tight_from(self) -> float:
        """p_1: the root of h(p) = 1 above p_inf, where the envelope's slope-one ray ends (0 for gamma = 0)."""
        return _envelope_end(self.gamma)

    def conjugate(self, dual: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """F*(r) - r H(q) for rows u = r (q - e_y) with 0 <= r <= 1, infinity elsewhere.

        F*(r) = r m - F(m) at the m with h = r, p >= p_1: the conjugate of F's convex envelope.
        """
        wrong = dual.scatter(1, labels[:, None], 0.0)
        rate = wrong.sum(1)
        inside = (wrong >= 0).all(1) & (rate <= 1)
        safe = torch.where(rate > 0, rate, 1.0)
        spread = rate * entropy(wrong.clamp(min=0) / safe[:, None])
        return torch.where(inside, self._scalar_conjugate(rate.clamp(0, 1)) - spread, math.inf)

    def dual_rows(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, "N K"]:
        """min(h(p), 1) (q - e_y) where the loss is convex, q - e_y (the envelope's slope) below p_1."""
        odds, wrong = _odds_and_wrong(logits, labels[:, None])
        edge = _odds_of(self.tight_from)
        rate = torch.where(odds > edge, 1.0, _focal_slope(odds, self.gamma)).clamp(max=1.0)[:, None]
        return (rate * wrong).scatter_add_(1, labels[:, None], -rate)

    def _scalar_conjugate(self, rate: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """F*(r) = r m - F(m) for 0 <= r <= 1, at the m on the convex branch with h = r.

        Newton's method on log h, kept inside a bracket whose lower end comes from h <= (1+g) (1-p)^(1+g); the error of
        F* is of second order in that of m.
        """
        edge = min(_odds_of(self.tight_from), 80.0)
        safe = rate.clamp(min=1e-300)
        low = torch.logit((safe / (1 + self.gamma)).pow(1 / (1 + self.gamma))).clamp(max=edge)
        high = torch.full_like(rate, edge)
        odds = low
        for _ in range(20):
            slope = _focal_slope(odds, self.gamma)
            below = slope < rate
            low = torch.where(below, odds, low)
            high = torch.where(below, high, odds)
            newton = odds + slope / _focal_curvature(odds, self.gamma) * (safe / slope.clamp(min=1e-300)).log()
            odds = torch.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        return torch.where(rate > 0, rate * odds - _focal_value(odds, self.gamma), 0.0)

    # Margin form ------------------------------------------------------------------------------------------------

    def margin_value(self, margin: ArrayLike, num_classes: int) -> Curve:
        """F(log(K-1) - a)."""
        odds = log_wrong(num_classes) - np.asarray(margin, dtype=np.float64)
        return np.exp(self.gamma * log_expit(odds)) * -log_expit(-odds)

    def margin_derivative(self, margin: ArrayLike, num_classes: int) -> Curve:
        """-h(p) at p = 1/(1 + (K-1) e^{-a})."""
        return -self.slope_at_odds(log_wrong(num_classes) - np.asarray(margin, dtype=np.float64))

    def slope_at_odds(self, odds: ArrayLike) -> Curve:
        """h(p) as a function of m = log((1-p)/p), accurate for p near 0 and 1."""
        odds = np.asarray(odds, dtype=np.float64)
        bracket = expit(odds) - self.gamma * expit(-odds) * log_expit(-odds)
        return np.exp(self.gamma * log_expit(odds)) * bracket

    def optimal_margin(self, slope: float, num_classes: int) -> MarginOptimum:
        """The largest root p of h(p) = slope in [max(1/K, p_inf), 1), unless the zero state has the smaller value."""
        slope = real("slope", slope, above=0)
        start = log_wrong(num_classes)
        zero = MarginOptimum(0.0, float(self.margin_value(0.0, num_classes)))
        top = min(start, _odds_of(self.convex_from))
        if self.slope_at_odds(top) <= slope:
            return zero
        odds = self._odds_with_slope(slope, top)
        margin = start - odds
        value = float(self.margin_value(margin, num_classes)) + slope * margin
        return MarginOptimum(margin, value) if value < zero.value else zero

    def transition(self, num_classes: int) -> Transition:
        """s_lo = h(1/K)/(K-1), the exchange s_t of equal values, s_hi = h(p_inf)/(K-1); equal where 1/K >= p_inf."""
        wrong = num_classes - 1
        start = log_wrong(num_classes)
        low = float(self.slope_at_odds(start)) / wrong
        if 1 / num_classes >= self.convex_from:
            return Transition(low, low, low)
        top = _odds_of(self.convex_from)
        high = float(self.slope_at_odds(top)) / wrong
        zero = float(self.margin_value(0.0, num_classes))

        def excess(s: float) -> float:
            margin = start - self._odds_with_slope(wrong * s, top)
            return float(self.margin_value(margin, num_classes)) + wrong * s * margin - zero

        ends = low, high * (1 - 1e-13)
        if excess(ends[0]) >= 0 or excess(ends[1]) <= 0:  # the window is below rounding
            return Transition(low, high, high)
        return Transition(low, root(excess, *ends), high)

    def _odds_with_slope(self, slope: float, top: float) -> float:
        """The m <= top on the convex branch with h = slope."""
        bottom = min(top, math.log(slope / (1 + self.gamma)) / (1 + self.gamma)) - 10.0

        def difference(m: float) -> float:
            return math.log(max(float(self.slope_at_odds(m)), 1e-320)) - math.log(slope)

        return root(difference, bottom, top)


def _odds_and_wrong(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """m (N,) and q (N, K) with q_y = 0."""
    true = logits.gather(1, labels).squeeze(1)
    log_wrong_softmax = torch.log_softmax(logits.scatter(1, labels, -math.inf), dim=1)
    # log-sum-exp of the wrong logits, read off at the largest of them.
    largest, where = logits.scatter(1, labels, -math.inf).max(dim=1)
    total = largest - log_wrong_softmax.gather(1, where[:, None]).squeeze(1)
    return _within_range(total - true), log_wrong_softmax.exp_()


def _within_range(odds: Tensor) -> Tensor:
    """Odds that overflow (logits near the largest number there is) at a size whose powers and products are finite."""
    limit = torch.finfo(odds.dtype).max / 16
    return odds.clamp(-limit, limit)


def _focal_value(odds: Tensor, gamma: float) -> Tensor:
    """F(m) = (1-p)^g (-log p), finite with finite slopes for every m."""
    log_sigmoid = torch.nn.functional.logsigmoid
    return torch.exp(gamma * log_sigmoid(odds)) * -log_sigmoid(-odds)


def _focal_slope(odds: Tensor, gamma: float) -> Tensor:
    """F'(m) = h(p)."""
    log_sigmoid = torch.nn.functional.logsigmoid
    bracket = torch.sigmoid(odds) - gamma * torch.sigmoid(-odds) * log_sigmoid(-odds)
    return torch.exp(gamma * log_sigmoid(odds)) * bracket


def _focal_curvature(odds: Tensor, gamma: float) -> Tensor:
    """F''(m) = p (1-p)^g [ (2g+1)(1-p) + g (1 - (g+1) p) log p ]."""
    log_sigmoid = torch.nn.functional.logsigmoid
    true, log_true = torch.sigmoid(-odds), log_sigmoid(-odds)
    bracket = (2 * gamma + 1) * torch.sigmoid(odds) + gamma * (1 - (gamma + 1) * true) * log_true
    return true * torch.exp(gamma * log_sigmoid(odds)) * bracket


def _odds_of(probability: float) -> float:
    """m = log((1-p)/p)."""
    return math.log1p(-probability) - math.log(probability) if probability > 0 else math.inf


@lru_cache(maxsize=256)
def _inflection(gamma: float) -> float:
    if gamma == 0:
        return 0.0

    def bracket(log_p: float) -> float:
        p = math.exp(log_p)
        return gamma * (1 - (gamma + 1) * p) * log_p + (2 * gamma + 1) * (1 - p)

    lowest = -2 * (2 * gamma + 1) / gamma - 10 if gamma > 1e-300 else -math.inf
    if lowest < -1400:
        return 0.0  # below the smallest probability there is
    return math.exp(root(bracket, lowest, -math.log(gamma + 1)))


@lru_cache(maxsize=256)
def _envelope_end(gamma: float) -> float:
    inflection = _inflection(gamma)
    if inflection == 0:
        return 0.0
    loss = Focal(gamma)
    odds = root(lambda m: float(loss.slope_at_odds(m)) - 1, -60.0, _odds_of(inflection))
    return float(expit(-odds))
