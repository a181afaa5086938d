"""What the imbalance studies measure: how far a model tells classes of equal count apart."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...ufm import Point, RegularizedUFM

__all__ = ["GAP_LAW", "gap", "gap_rows", "groups_of", "law", "probabilities", "row_distance"]

GAP_LAW = "docs/theory.md, the gap law"


def groups_of(counts: Sequence[int]) -> dict[int, list[int]]:
    """The classes of each count that at least two classes share.

    >>> groups_of([9, 4, 4, 2])
    {4: [1, 2]}
    """
    found: dict[int, list[int]] = {}
    for index, count in enumerate(counts):
        found.setdefault(count, []).append(index)
    return {count: classes for count, classes in found.items() if len(classes) > 1}


def law(count: int, total: int, mu: float, weight: float = 1.0) -> float:
    """The gap max(0, 1 - N mu/(omega sqrt n)) of classes of one count.

    >>> law(4, 10, 0.1)
    0.5
    """
    return max(0.0, 1 - total * mu / (weight * math.sqrt(count)))


def gap(probabilities: Tensor, labels: Tensor, classes: Sequence[int]) -> float:
    """Mean of p_k(k) - p_k(k') over the samples of ``classes`` and the other classes k' among them."""
    among = torch.isin(labels, torch.tensor(classes))
    rows = probabilities[among]
    own = rows.gather(1, labels[among, None])[:, 0]
    others = (rows[:, classes].sum(1) - own) / (len(classes) - 1)
    return float((own - others).mean())


def row_distance(classifier: Tensor, classes: Sequence[int]) -> float:
    """The largest distance of two rows of ``classes``, relative to the longest row of all; 0 where all vanish."""
    longest = float(classifier.norm(dim=1).max())
    return float(torch.pdist(classifier[list(classes)]).max()) / longest if longest else 0.0


def probabilities(point: Point, adjustment: Sequence[float] | None = None) -> Tensor:
    """The softmax of every sample's logits, with what a loss adds to them."""
    logits = point.H @ point.classifier.T
    if point.b is not None:
        logits = logits + point.b
    return torch.softmax(logits if adjustment is None else logits + torch.tensor(adjustment, dtype=logits.dtype), dim=1)


def gap_rows(problem: RegularizedUFM, point: Point, adjustment: Sequence[float] | None = None) -> list[dict[str, Any]]:
    """Gap and row distance of each group of equal counts at ``point``, from the largest count on."""
    likely = probabilities(point, adjustment)
    return [
        {
            "count": count,
            "gap": gap(likely, problem.labels, classes),
            "distance": row_distance(point.classifier, classes),
        }
        for count, classes in sorted(groups_of(problem.counts).items(), reverse=True)
    ]
