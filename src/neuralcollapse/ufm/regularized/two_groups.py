"""Cross-entropy and label smoothing with two group sizes, in closed form up to one scalar root.

kA classes of nA samples and kB of nB; K = kA + kB, N = kA nA + kB nB, mu = sqrt(lW lH), eps the smoothing. A sample of
a class in A gives p to its own class, alpha to each other class of A and beta to each of B; a sample of B gives gamma
to other classes of B and delta to those of A. The proof is that of the gap law (docs/theory.md): averaged over
exchanges within groups, the collapsed gradient has the differences within A, those within B and the contrast between
the groups as its singular directions, and each has singular value mu if it is used and at most mu if not:

- within A: p - alpha = max(0, 1 - eps - N mu/sqrt(nA)), and likewise in B;
- between: nA kB b^2 + nB kA d^2 = N^2 mu^2/K, with b = beta - eps/K and d = delta - eps/K (free bias: the contrast is
  centred, so b and d are known outright); what is left is one equation for the ratio of the contrasts.
"""

import math
from dataclasses import dataclass

from ..._support.numerics import root

__all__ = ["ClassGroup", "GroupSolution", "solve_two_groups"]

TINY = 1e-300
LARGEST_LOGIT = 700.0
"""Beyond any contrast: -log of the smallest probability."""


@dataclass(frozen=True)
class ClassGroup:
    """A group of classes of equal count, and what it gives away; ``rest`` is what its own classes share besides p."""

    classes: int
    count: int
    reserve: float
    """1 - (p - own): what is not the gap between the true class and another of the group."""

    def own(self, away: float, others: int) -> float:
        """The probability of another class of this group, when each of ``others`` classes elsewhere gets ``away``."""
        return (self.reserve - others * away) / self.classes

    def true(self, away: float, others: int) -> float:
        """The probability of the true class."""
        return 1 - self.reserve + self.own(away, others)

    def contrast(self, away: float, others: int) -> float:
        """tau: the mean logit of this group's classes less that of the others, log p being the logits."""
        own = (self.reserve - others * away) / self.classes
        if own <= 0:
            return -math.inf
        spread = math.log1p((1 - self.reserve) / own) / self.classes if self.classes > 1 else 0.0
        return math.log(own / max(away, TINY)) + spread

    def spread(self, away: float, others: int) -> float:
        """The logit of the true class less that of another of the group (0 for a group of one or a collapsed one)."""
        if self.classes == 1 or self.reserve >= 1:
            return 0.0
        return math.log1p((1 - self.reserve) / self.own(away, others))

    def entropy(self, away: float, others: int) -> float:
        """The entropy of a sample's probabilities."""
        own, true = self.own(away, others), self.true(away, others)
        wrong = sum(times * p * math.log(p) for times, p in ((self.classes - 1, own), (others, away)) if p > 0)
        if true <= 0:
            return -wrong
        # Where p is nearly 1, its logarithm has the digits of what is left for the others.
        log_true = math.log(true) if true < 0.5 else math.log1p(-(self.classes - 1) * own - others * away)
        return -wrong - true * log_true


@dataclass(frozen=True)
class GroupSolution:
    """Logits of the class means: ``spreads`` within the groups, ``contrasts`` between them (both without the bias)."""

    value: float
    spreads: tuple[float, float]
    contrasts: tuple[float, float]
    bias_shift: float
    """The bias of group A less that of group B."""


def solve_two_groups(
    sizes: tuple[int, int], counts: tuple[int, int], mu: float, smoothing: float, bias_decay: float | None
) -> GroupSolution:
    """The global minimum for ``sizes`` = (kA, kB) classes of ``counts`` = (nA, nB) samples; d >= K-1."""
    total = sizes[0] * counts[0] + sizes[1] * counts[1]
    groups = [
        ClassGroup(k, n, min(1.0, smoothing + total * mu / math.sqrt(n)) if k > 1 else 1.0)
        for k, n in zip(sizes, counts, strict=True)
    ]
    between = _Between(groups[0], groups[1], total, mu, smoothing / sum(sizes), bias_decay)
    b, d, shift, contrasts = between.solve()
    first, second = groups
    away = b + between.floor, d + between.floor
    spreads = first.spread(away[0], second.classes), second.spread(away[1], first.classes)
    decay = 0.0 if bias_decay is None else bias_decay
    value = first.classes * first.count / total * first.entropy(away[0], second.classes)
    value += second.classes * second.count / total * second.entropy(away[1], first.classes)
    value -= decay / 2 * first.classes * second.classes / sum(sizes) * shift**2
    return GroupSolution(value, spreads, contrasts, shift)


@dataclass(frozen=True)
class _Between:
    """The one direction between the groups: unknowns b = beta - floor and d = delta - floor, floor = eps/K."""

    first: ClassGroup
    second: ClassGroup
    total: int
    mu: float
    floor: float
    bias_decay: float | None

    @property
    def classes(self) -> int:
        return self.first.classes + self.second.classes

    def taus(self, b: float, d: float) -> tuple[float, float]:
        """The contrasts of the probabilities, bias included."""
        first = self.first.contrast(b + self.floor, self.second.classes)
        return first, self.second.contrast(d + self.floor, self.first.classes)

    @property
    def stiffness(self) -> float:
        """c in c (b_A - b_B) = nA b - nB d, the bias's stationarity; infinite without a bias."""
        return math.inf if self.bias_decay is None else self.total * self.bias_decay / self.classes

    def solve(self) -> tuple[float, float, float, tuple[float, float]]:
        """(b, d, b_A - b_B, contrasts without the bias)."""
        if self.bias_decay == 0:
            b, d = self._free()
            tau = self.taus(b, d)
            # The contrasts are as kB b : kA d, the singular vector's entries; what they leave is the bias.
            whole = max(tau[0] + tau[1], 0.0)
            share = self.second.classes * b / (self.second.classes * b + self.first.classes * d)
            return b, d, tau[0] - whole * share, (whole * share, whole * (1 - share))
        used = self._on_ellipse() if self.stiffness >= 1 else self._on_ellipse_by_shift()
        if used is not None:
            b, d, shift = used
            tau = self.taus(b, d)
            if tau[0] - shift > 0 and tau[1] + shift > 0:
                return b, d, shift, (tau[0] - shift, tau[1] + shift)
        return *self._unused(), (0.0, 0.0)

    def _free(self) -> tuple[float, float]:
        """b and d at once if the contrast is used, else the root of tau_A + tau_B = 0 on nA b = nB d."""
        size = self.mu * math.sqrt(self.total / self.classes)
        ratio = math.sqrt(self.second.count / self.first.count)
        b, d = size * ratio, size / ratio
        inside = b < self._most(self.first, self.second) and d < self._most(self.second, self.first)
        if inside and sum(self.taus(b, d)) > 0:
            return b, d
        ratio = self.first.count / self.second.count
        top = min(self._most(self.first, self.second), self._most(self.second, self.first) / ratio)
        b = root(lambda b: _clip(sum(self.taus(b, ratio * b))), self._least(top), top * (1 - 1e-15))
        return b, ratio * b

    def _most(self, group: ClassGroup, other: ClassGroup) -> float:
        """The b at which a group has given everything away."""
        return group.reserve / other.classes - self.floor

    def _least(self, top: float) -> float:
        """A b at which the contrast is surely positive."""
        return top * 1e-300 if self.floor == 0 else -self.floor * (1 - 1e-12)

    def _angles(self) -> tuple[float, float]:
        """Radii of the ellipse nA kB b^2 + nB kA d^2 = N^2 mu^2/K along b and d."""
        size = self.total * self.mu / math.sqrt(self.classes)
        return (
            size / math.sqrt(self.first.count * self.second.classes),
            size / math.sqrt(self.second.count * self.first.classes),
        )

    def _balance(self, b: float, d: float, shift: float) -> float:
        """kA d t_A - kB b t_B, zero for the singular vector's entries."""
        first, second = self.taus(b, d)
        ours, theirs = self.first.classes * d * (first - shift), self.second.classes * b * (second + shift)
        return 0.0 if math.isnan(ours - theirs) else _clip(ours - theirs)

    def _on_ellipse(self) -> tuple[float, float, float] | None:
        """(b, d, shift) at the root of kA d t_A = kB b t_B, which is the solution where both contrasts t are positive.

        With the angle from the b axis t_A rises and t_B falls. The difference of both sides is negative where only t_B
        is positive and positive where only t_A is, so it has one root, between their zeros: on the side where both are
        positive, or else where neither is.
        """
        long, high = self._angles()

        def at(angle: float) -> tuple[float, float, float]:
            b, d = long * math.cos(angle), high * math.sin(angle)
            return b, d, (self.first.count * b - self.second.count * d) / self.stiffness

        return at(root(lambda angle: self._balance(*at(angle)), 1e-18, math.pi / 2))

    def _on_ellipse_by_shift(self) -> tuple[float, float, float] | None:
        """The same by the shift: with a small decay nA b and nB d are nearly equal, and their difference has no digits.

        With the shift b rises and d falls, so t_A falls and t_B rises. None if the signs at the ends say that there is
        no contrast.
        """
        long, high = self._angles()
        n_a, n_b, k_a, k_b = self.first.count, self.second.count, self.first.classes, self.second.classes
        square = (self.total * self.mu) ** 2 / self.classes

        def at(shift: float) -> tuple[float, float, float]:
            u = self.stiffness * shift
            return _meet(u, n_a, k_b, k_a / n_b, square), _meet(-u, n_b, k_a, k_b / n_a, square), shift

        low = max(-n_b * high / self.stiffness, -LARGEST_LOGIT)
        top = min(n_a * long / self.stiffness, LARGEST_LOGIT)
        if not self._balance(*at(low)) > 0 > self._balance(*at(top)):
            return None
        return at(root(lambda shift: self._balance(*at(shift)), low, top))

    def _unused(self) -> tuple[float, float, float]:
        """(b, d, shift) without a contrast: tau_A = shift and tau_B = -shift, and c shift = nA b - nB d.

        The unknown is the smaller of the shift and c times it, which has all its digits for any decay.
        """
        unit, weight = 1 / max(self.stiffness, 1.0), min(self.stiffness, 1.0)

        def at(x: float) -> tuple[float, float, float]:
            shift = x * unit
            b = self._without_contrast(self.first, self.second, shift)
            return b, self._without_contrast(self.second, self.first, -shift), shift

        def excess(x: float) -> float:
            b, d, _ = at(x)
            return self.first.count * b - self.second.count * d - weight * x

        reach = LARGEST_LOGIT + self.first.count + self.second.count
        return at(root(excess, -reach, reach))

    def _without_contrast(self, group: ClassGroup, other: ClassGroup, tau: float) -> float:
        """The b at which the contrast of ``group`` is tau: it falls with b."""
        top = self._most(group, other) * (1 - 1e-15)
        least = self._least(top)

        def excess(b: float) -> float:
            return _clip(group.contrast(b + self.floor, other.classes) - tau)

        if excess(least) <= 0:
            return least
        return top if excess(top) >= 0 else root(excess, least, top)


def _meet(u: float, count: int, others: int, ratio: float, square: float) -> float:
    """The larger b with ``ratio`` (count b - u)^2 + count others b^2 = ``square``."""
    quadratic, half, rest = ratio * count**2 + count * others, ratio * u * count, square - ratio * u**2
    spread = math.sqrt(max(half**2 + quadratic * rest, 0.0))
    return max((half + spread) / quadratic if half >= 0 else rest / (spread - half), 0.0)


def _clip(value: float) -> float:
    """Infinities as large numbers, for a bracketing root finder."""
    return min(max(value, -1e300), 1e300)
