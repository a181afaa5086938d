"""The optimum of the features under a classifier that stays a simplex ETF: class sizes drop out.

With rows of norm w that sum to zero, the mean margin of a feature h of class y is a = K/(K-1) <w_y, h>, so
|h| >= (K-1) a/(K w), with equality along w_y, where all margins are equal. A loss is at least ell(a), so every sample
of every class solves the same min_a ell(a) + N lH (K-1)^2 a^2/(2 K^2 w^2).
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ... import frames
from ..._support.checks import integer, positive_scale
from ..._support.fields.models import LARGEST
from ..._support.numerics import root
from ...losses import LogitLoss, LossLike, SquaredError, logit_loss
from ..results import Optimum, one_feature_a_class

__all__ = ["fixed_head_optimum"]

GRID = 4000
"""Margins at which the slope is looked at where the loss is not convex and may have more than one minimum."""


def fixed_head_optimum(
    counts: Sequence[int] | np.ndarray | Tensor,
    dim: int,
    feature_decay: float,
    row_norm: float = 1.0,
    loss: LossLike = "ce",
) -> Optimum:
    """The least mean loss of H W' + lH/2 |H|^2 over H, W fixed to a simplex ETF of row norm w; any counts.

    Every feature is (K-1) a/(K w^2) times its class's row of W, with a the minimiser of
    ell(a) + N lH (K-1)^2 a^2/(2 K^2 w^2): only the sum N of the counts matters. For the squared error the feature is
    alpha M / (w^2 (alpha + 1/(K-1)) + N lH) times the row.

    >>> few, even = (fixed_head_optimum(counts, 3, 1e-3, loss="mse") for counts in ([97, 2, 1], [40, 30, 30]))
    >>> few.value == even.value
    True
    >>> round(few.feature_norm, 12) == round(1 / (1 + 1 / 2 + 0.1), 12)
    True

    Args:
        counts: samples a class, K of them.
        dim: feature dimension d >= K - 1, so that the ETF exists.
        feature_decay: lH > 0.
        row_norm: w > 0, the norm of each row of W.
        loss: one that treats all classes alike: of margins, or the squared error.

    Returns:
        The optimum; ``point`` has the fixed W and the best H, ``value`` no term for W.

    Raises:
        NotImplementedError: if the loss treats classes differently (weights, adjusted logits) or is unknown in that.

    """
    numbers = counts.tolist() if isinstance(counts, np.ndarray | Tensor) else counts
    if not isinstance(numbers, Sequence) or isinstance(numbers, str):
        raise TypeError(f"counts must be a list, array or tensor of counts, one a class, got {type(counts).__name__}")
    if len(numbers) < 2:
        raise ValueError(f"counts must name at least 2 classes, got {len(numbers)}")
    sizes = [integer(f"counts[{index}]", number, minimum=1) for index, number in enumerate(numbers)]
    classes = len(sizes)
    dim = integer("dim", dim, maximum=LARGEST)
    if dim < classes - 1:
        raise ValueError(f"dim must be at least {classes - 1} for a simplex ETF of {classes} classes, got {dim}")
    norm, kind = positive_scale("row_norm", row_norm), logit_loss(loss)
    pull = sum(sizes) * positive_scale("feature_decay", feature_decay)
    if isinstance(kind, SquaredError):
        scale, value = _best_scale(kind, classes, pull, norm)
        margin = scale * norm**2 * classes / (classes - 1)
    elif kind.depends_on_margins:
        margin, value = _best_margin(kind, classes, pull * ((classes - 1) / (classes * norm)) ** 2)
        scale = margin * (classes - 1) / (classes * norm**2)
    else:
        raise NotImplementedError(f"no closed form is known for a fixed head and the loss {kind.spec}")

    def arrays() -> tuple[Tensor, Tensor, None]:
        rows = norm * frames.simplex_etf(classes, dim)
        return rows, scale * rows, None

    return Optimum(
        value=value,
        regime="fixed head",
        logit_scale=margin,
        weight_norm=norm,
        feature_norm=scale * norm,
        proved=kind.is_convex,
        note="" if kind.is_convex else "the lowest of the minima found on a grid of margins",
        **one_feature_a_class(arrays, lambda: torch.arange(classes).repeat_interleave(torch.tensor(sizes))),
    )


def _best_scale(loss: SquaredError, classes: int, pull: float, norm: float) -> tuple[float, float]:
    """(c, value) at h = c w_y: z_y = c w^2, z_j = -c w^2/(K-1)."""
    scale = loss.alpha * loss.target / (norm**2 * (loss.alpha + 1 / (classes - 1)) + pull)
    own = scale * norm**2
    value = loss.alpha / 2 * (own - loss.target) ** 2 + own**2 / (2 * (classes - 1)) + pull / 2 * (scale * norm) ** 2
    return scale, value


def _best_margin(loss: LogitLoss, classes: int, pull: float) -> tuple[float, float]:
    """The global minimiser a >= 0 of ell(a) + pull a^2/2 and the value there."""

    def objective(a: float) -> float:
        return float(loss.margin_value(a, classes)) + pull / 2 * a * a

    def slope(a: float) -> float:
        return float(loss.margin_derivative(a, classes)) + pull * a

    # ell >= 0, so beyond this margin the decay alone costs more than a = 0 does.
    top = math.sqrt(2 * objective(0.0) / pull)
    if loss.is_convex:
        grid = np.array([0.0, top])
    else:
        near, far = np.linspace(0, min(top, 50.0), GRID), np.geomspace(top * 1e-9, top, GRID)
        grid = np.unique(np.concatenate([near, far]))
    slopes = np.array([slope(float(a)) for a in grid])
    falls = np.flatnonzero((slopes[:-1] < 0) & (slopes[1:] >= 0))
    found = [0.0, *(root(slope, float(grid[i]), float(grid[i + 1])) for i in falls)]
    best = min(found, key=objective)
    return best, objective(best)
