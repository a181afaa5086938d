"""Any counts n_k, N in all: global minima where a closed form is known, and which classes are learned at them."""

import math
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from ..._support.numerics import svd
from ...losses import CrossEntropy, LogitAdjusted, LogitLoss, SmoothedCrossEntropy, SquaredError
from ..results import Optimum, mean_margin
from .class_logits import from_class_logits
from .two_groups import GroupSolution, solve_two_groups

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["NoClosedFormError", "count_threshold", "imbalanced_optimum", "learned_classes"]

ALL_LEARNED: Final = "imbalanced collapse"
MINORITY: Final = "minority collapse"
LOW_RANK: Final = "low rank"
ZERO: Final = "zero"
APART = 1e-7
"""Logits closer than this share of the largest count as equal: they are equal or of order one apart."""


class NoClosedFormError(NotImplementedError):
    """None is known; ``program`` says whether the certified convex program may answer instead."""

    def __init__(self, message: str, program: bool = False):
        super().__init__(message)
        self.program = program


def imbalanced_optimum(problem: "RegularizedUFM") -> Optimum:
    """Squared error by shrunken singular values, two groups of cross-entropy by one root."""
    loss = problem.loss
    if isinstance(loss, SquaredError):
        free = problem.bias_decay == 0
        if problem.bias_decay is None and (problem.dim >= problem.num_classes or loss.alpha == 1):
            return _squared_without_bias(problem, loss)
        if free and loss.alpha == 1:
            return _squared_free_bias(problem, loss)
    groups = sorted(set(problem.counts), reverse=True)
    wide = problem.dim >= problem.num_classes - 1
    if isinstance(loss, SmoothedCrossEntropy) and loss.depends_on_margins and len(groups) == 2 and wide:
        return _two_groups(problem, loss, (groups[0], groups[1]))
    raise NoClosedFormError(f"no closed form is known for {loss.spec} and these counts and sizes", program=True)


def _squared_without_bias(problem: "RegularizedUFM", loss: SquaredError) -> Optimum:
    """Classes decouple: z_k = max(0, M - N mu/(alpha sqrt n_k)), wrong logits zero (mse, Lemma B.2, for d < K)."""
    counts, total, mu = problem.counts, problem.num_samples, problem.mu
    alpha, target = loss.alpha, loss.target
    order = sorted(range(len(counts)), key=lambda k: -counts[k])
    kept = set(order[: problem.dim])
    reached = [
        max(0.0, target - total * mu / (alpha * math.sqrt(n))) if k in kept else 0.0 for k, n in enumerate(counts)
    ]
    terms = zip(counts, reached, strict=True)
    value = math.fsum(alpha * n / (2 * total) * (z - target) ** 2 + mu * math.sqrt(n) * z for n, z in terms)
    learned = sum(z > 0 for z in reached)
    regime = ALL_LEARNED if learned == len(counts) else MINORITY if learned else ZERO
    note = ""
    if problem.dim < len(counts) and learned == problem.dim:
        regime, note = LOW_RANK, f"the {problem.dim} largest classes are learned"
        if counts[order[problem.dim - 1]] == counts[order[problem.dim]]:
            note += " (one of many minimisers: counts are tied)"
    nuclear = math.fsum(math.sqrt(n) * z for n, z in zip(counts, reached, strict=True))
    return from_class_logits(
        problem, value, regime, lambda: (torch.diag(torch.tensor(reached, dtype=torch.float64)), None),
        (math.fsum(reached) / len(counts), nuclear, total), note=note,
    )  # fmt: skip


def _squared_free_bias(problem: "RegularizedUFM", loss: SquaredError) -> Optimum:
    """Singular values of the centred targets, M^2 times the eigenvalues of D - nn'/N, shrunk by N mu; b = M n/N."""
    counts = torch.tensor(problem.counts, dtype=torch.float64)
    total, target = problem.num_samples, loss.target
    roots = counts.sqrt()[:, None]
    centred = target * (roots * (torch.eye(len(counts), dtype=torch.float64) - counts / total))
    left, singular, right = svd(centred)
    singular[-1] = 0.0  # the direction of the mean
    shrunk = (singular - total * problem.mu).clamp(min=0)
    shrunk[problem.dim :] = 0
    value = float(((singular - shrunk).square() / (2 * total) + problem.mu * shrunk).sum())
    logits = (left * shrunk) @ right / roots
    rank, full = int((shrunk > 0).sum()), len(counts) - 1
    regime = ZERO if rank == 0 else ALL_LEARNED if rank == full else LOW_RANK if rank == problem.dim else MINORITY
    return from_class_logits(
        problem,
        value,
        regime,
        lambda: (logits, target * counts / total),
        (mean_margin(logits), float(shrunk.sum()), total),
    )


def _two_groups(problem: "RegularizedUFM", loss: SmoothedCrossEntropy, counts: tuple[int, int]) -> Optimum:
    sizes = problem.counts.count(counts[0]), problem.counts.count(counts[1])
    found = solve_two_groups(sizes, counts, problem.mu, loss.smoothing, problem.bias_decay)
    collapsed = [k > 1 and spread == 0 for k, spread in zip(sizes, found.spreads, strict=True)]
    nothing = max(*found.spreads, *found.contrasts) == 0
    regime = ZERO if nothing else MINORITY if any(collapsed) else ALL_LEARNED
    note = ""
    if any(collapsed) and not nothing:
        which = [f"{k} classes of {n}" for k, n, gone in zip(sizes, counts, collapsed, strict=True) if gone]
        note = f"the {' and the '.join(which)} samples are not told apart"
    classes = problem.num_classes
    within = [n**0.5 * (k - 1) * x for k, n, x in zip(sizes, counts, found.spreads, strict=True)]
    across = math.fsum(k * n * t**2 for k, n, t in zip(sizes, counts, found.contrasts, strict=True))
    between = math.sqrt(sizes[0] * sizes[1] / classes * across)
    margins = [
        ((k - 1) * spread + (classes - k) * (t + spread * (k - 1) / k)) / (classes - 1)
        for k, spread, t in zip(sizes, found.spreads, found.contrasts, strict=True)
    ]
    margin = sum(k * m for k, m in zip(sizes, margins, strict=True)) / classes
    bias = 0.0 if problem.has_bias and found.bias_shift == 0 else None
    return from_class_logits(
        problem, found.value, regime, lambda: _group_logits(problem, found, counts[0]),
        (margin, sum(within) + between, problem.num_samples), bias=bias, note=note,
    )  # fmt: skip


def _group_logits(problem: "RegularizedUFM", found: GroupSolution, large: int) -> tuple[Tensor, Tensor]:
    """Class logits: spreads within the groups, contrasts of mean zero between them; and the bias, of mean zero."""
    first = torch.tensor([n == large for n in problem.counts])
    classes = len(first)
    logits = torch.zeros(classes, classes, dtype=torch.float64)
    for inside, spread, contrast in ((first, found.spreads[0], found.contrasts[0]),
                                     (~first, found.spreads[1], found.contrasts[1])):  # fmt: skip
        size = int(inside.sum())
        rows = inside.nonzero().flatten()
        logits[rows[:, None], rows] -= spread / size
        logits[rows, rows] += spread
        logits[rows] += contrast * (inside.to(torch.float64) - size / classes)
    share = int(first.sum()) / classes
    bias = found.bias_shift * (first.to(torch.float64) - share)
    return logits, bias


def count_threshold(problem: "RegularizedUFM") -> float | tuple[float, ...]:
    """N^2 lW lH/(omega_k (1-eps))^2 for cross-entropy (the gap law), N^2 lW lH/(alpha M)^2 for the squared error.

    With non-negative features that of cross-entropy is K/(K-1) times as large.
    """
    strength = _strength(problem, problem.loss)
    base = problem.num_samples * problem.mu
    if isinstance(strength, tuple):
        return tuple((base / one) ** 2 for one in strength)
    return (base / strength) ** 2


def _strength(problem: "RegularizedUFM", loss: LogitLoss) -> float | tuple[float, ...]:
    """The pull of a sample on its class at zero logits, beyond what the decays must not exceed.

    Non-negative features do not learn the difference of two classes but each class alone, along e_k - 1/K, and only
    where all probabilities are 1/K before: a bias that differs from class to class or a prior changes that.
    """
    if isinstance(loss, LogitAdjusted):
        inner = loss.loss if isinstance(loss.loss, SmoothedCrossEntropy) and not problem.nonnegative else None
        return _unknown(loss) if inner is None else _strength(problem, inner)
    if isinstance(loss, SmoothedCrossEntropy):
        weights = loss.class_weights if isinstance(loss, CrossEntropy) else None
        if problem.nonnegative and problem.has_bias and not (problem.balanced and weights is None):
            return _unknown(loss)
        share = math.sqrt((problem.num_classes - 1) / problem.num_classes) if problem.nonnegative else 1.0
        if weights is not None:
            return tuple(share * float(weight) for weight in weights)
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
