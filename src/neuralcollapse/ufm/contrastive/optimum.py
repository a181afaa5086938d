"""Closed form for the supervised contrastive model, balanced classes.

The loss is convex in the similarities S = tau^2 H H' and unchanged by permuting samples within classes and classes, so
averaging a minimiser over these permutations (which keeps S positive semidefinite with diagonal tau^2) gives one that
is constant within classes (tau^2) and between them; the latter is least at -tau^2/(K-1).
"""

import math
from typing import TYPE_CHECKING

from ... import frames
from ..point import Point
from ..results import Optimum

if TYPE_CHECKING:
    from .model import ContrastiveUFM

__all__ = ["contrastive_optimum", "contrastive_value"]


def contrastive_value(problem: "ContrastiveUFM") -> float:
    """log((n-1) + n (K-1) exp(-K tau^2/(K-1))): a lower bound for any d, attained for d >= K-1."""
    count, per_class = problem.num_classes, problem.counts[0]
    return math.log(per_class - 1 + per_class * (count - 1) * math.exp(-count * problem.temperature**2 / (count - 1)))


def contrastive_optimum(problem: "ContrastiveUFM") -> Optimum:
    """Features at a simplex ETF."""
    count, dim = problem.num_classes, problem.dim
    if not problem.balanced:
        raise NotImplementedError("the closed form is known for balanced classes only (per_class is a list of counts)")
    if dim < count - 1:
        raise NotImplementedError(
            f"no closed form is known on spheres with dim = {dim} < num_classes - 1 = {count - 1}"
        )
    return Optimum(
        value=contrastive_value(problem),
        regime="neural collapse",
        logit_scale=count * problem.temperature**2 / (count - 1),
        weight_norm=None,
        feature_norm=1.0,
        build_point=lambda: Point(None, frames.simplex_etf(count, dim)[problem.labels]),
        build_grams=lambda: (frames.simplex_gram(count), frames.simplex_gram(count)),
    )
