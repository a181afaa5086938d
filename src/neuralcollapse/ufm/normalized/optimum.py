"""Closed forms for the normalised model, balanced classes.

Unit rows bound the mean margin: z_true - mean z_other <= K tau/(K-1), with equality iff the classifiers sum to zero and
features equal them; equal margins then make them a simplex ETF. A loss of margins that still falls there has neural
collapse as its minimiser. One whose minimum is at a smaller margin a (label smoothing above the critical temperature)
reaches it with features that spread: then the minimum does not depend on tau.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ... import frames
from ..._support.numerics import root
from ...frames.simplex import fourier_modes
from ...losses import CrossEntropy, LogitLoss, SquaredError, logit_loss
from ..results import Optimum, Regime, mean_margin, one_feature_a_class

if TYPE_CHECKING:
    from .model import NormalizedUFM

__all__ = ["critical_temperature", "normalized_optimum"]


def critical_temperature(loss: LogitLoss | str, num_classes: int) -> float:
    """tau* up to which collapse is the minimiser: (K-1)/K times the minimiser of ell (infinite if ell only falls).

    For label smoothing (K-1)/K log(K/alpha - K + 1) (normalized, E.4, made exact).

    >>> critical_temperature("ce", 4), round(critical_temperature("ls:alpha=0.5", 2), 12)  # log(3)/2
    (inf, 0.549306144334)

    Args:
        loss: one of margins.
        num_classes: K >= 2.

    """
    loss = logit_loss(loss)
    if not loss.depends_on_margins:
        raise ValueError(f"the critical temperature is defined for losses of margins, not for {loss.spec}")
    if float(loss.margin_derivative(1e6, num_classes)) <= 0:
        return math.inf
    horizon = 1.0
    while float(loss.margin_derivative(horizon, num_classes)) <= 0:
        horizon *= 2
    margin = root(lambda a: float(loss.margin_derivative(a, num_classes)), 0.0, horizon)
    return margin * (num_classes - 1) / num_classes


def normalized_optimum(problem: "NormalizedUFM") -> Optimum:
    """The global minimum over unit rows."""
    if not problem.balanced:
        raise NotImplementedError("the closed form is known for balanced classes only (per_class is a list of counts)")
    loss, count = problem.loss, problem.num_classes
    if isinstance(loss, SquaredError):
        return _squared_error_optimum(problem, loss)
    if not loss.depends_on_margins:
        raise NotImplementedError(f"no closed form is known for the loss {loss.spec}")
    if problem.dim < count - 1:
        return _code_optimum(problem, loss)
    critical = critical_temperature(loss, count)
    if problem.temperature > critical:
        return _spread_optimum(problem, loss, critical)
    return _collapsed_optimum(problem, loss)


def _collapsed_optimum(problem: "NormalizedUFM", loss: LogitLoss) -> Optimum:
    """f* = ell(K tau/(K-1)); cross-entropy: log(1 + (K-1) exp(-K tau/(K-1))) (normalized, Theorem 1)."""
    count = problem.num_classes
    margin = count * problem.temperature / (count - 1)
    true = 1 / (1 + (count - 1) * math.exp(-margin))
    tight = loss.tight_from
    proved = tight is not None and true >= tight
    known = "where the loss is convex" if tight is None else f"for p_y >= {tight:.4g}"
    note = "" if proved else f"proved {known} only, here p_y = {true:.4g}; none lower is known"
    value = float(loss.margin_value(margin, count))
    return _unit_optimum(
        problem, value, "neural collapse", margin, lambda: _etf_rows(problem), proved=proved, note=note
    )


def _code_optimum(problem: "NormalizedUFM", loss: LogitLoss) -> Optimum:
    """More classes than a simplex has room for: the best codes known (numerical; not proved).

    K = 2d: the cross-polytope, log(1 + e^(-2 tau) + (2d-2) e^(-tau)) for cross-entropy. d = 2: the regular polygon.
    Between, d+2 <= K < 2d: the best partition into K-d orthogonal simplices, which depends on tau.
    """
    count, dim = problem.num_classes, problem.dim
    if not isinstance(loss, CrossEntropy) or dim < 2 or (count > 2 * dim and dim != 2):
        raise NotImplementedError(
            f"no closed form is known for {loss.spec} on spheres with dim = {dim} < num_classes - 1 = {count - 1}"
        )
    note = "the lowest value known: found numerically, not proved"
    if dim == 2 and count > 4:
        regime, rows, sizes = "polygon", frames.softmax_code(count, 2), None
    elif count == 2 * dim:
        regime, rows, sizes = "cross-polytope", frames.orthogonal_simplices([2] * dim), None
    else:
        sizes = best_sizes(count, count - dim, problem.temperature)
        regime, rows = "orthogonal simplices", frames.orthogonal_simplices(sizes)
        note = "the best orthogonal simplices; lower points are known for some sizes and temperatures"
    logits = problem.temperature * rows @ rows.T
    value = float(loss(logits, torch.arange(count)))
    best = _unit_optimum(problem, value, regime, mean_margin(logits), lambda: rows, proved=False, note=note)
    return best if sizes is None else replace(best, simplices=tuple(sizes))


def best_sizes(count: int, parts: int, temperature: float) -> list[int]:
    """Of all ways to write ``count`` as a sum of ``parts`` sizes >= 2 the one with the least value, falling.

    The value is a sum over simplices. So with S classes to spare, beyond two a simplex, the least of m simplices is
    that of half of them with s and of the others with S - s, over s: a table for each number that halving meets.
    """
    spare = count - 2 * parts
    least = {1: np.array([simplex_value(2 + more, count, temperature) for more in range(spare + 1)])}
    given: dict[int, list[int]] = {}

    def fill(simplices: int) -> None:
        if simplices in least:
            return
        half, rest = simplices // 2, simplices - simplices // 2
        fill(half)
        fill(rest)
        values = np.empty(spare + 1)
        given[simplices] = [0] * (spare + 1)
        for whole in range(spare + 1):
            ways = least[half][: whole + 1] + least[rest][whole::-1]
            given[simplices][whole] = best = int(ways.argmin())
            values[whole] = ways[best]
        least[simplices] = values

    def sizes(simplices: int, whole: int) -> list[int]:
        if simplices == 1:
            return [2 + whole]
        half, first = simplices // 2, given[simplices][whole]
        return [*sizes(half, first), *sizes(simplices - half, whole - first)]

    fill(parts)
    return sorted(sizes(parts, spare), reverse=True)


def simplices_value(sizes: list[int], temperature: float) -> float:
    """The cross-entropy of orthogonal simplices of these sizes."""
    return math.fsum(simplex_value(size, sum(sizes), temperature) for size in sizes)


def simplex_value(size: int, count: int, temperature: float) -> float:
    """k/K log(1 + (k-1) e^(-tau k/(k-1)) + (K-k) e^(-tau)): what a simplex of k of the K classes adds to the loss."""
    own = (size - 1) * math.exp(-temperature * size / (size - 1))
    return size / count * math.log1p(own + (count - size) * math.exp(-temperature))


def _spread_optimum(problem: "NormalizedUFM", loss: LogitLoss, critical: float) -> Optimum:
    """tau > tau*: logits with margin K tau*/(K-1) are reached by more than one set of unit rows."""
    count, dim = problem.num_classes, problem.dim
    margin = critical * count / (count - 1)
    value = float(loss.margin_value(margin, count))
    cosine = critical / problem.temperature
    note = f"the temperature is above the critical one, {critical:.6g}: within-class variability need not vanish"
    if dim >= count:
        # h = cos w + sin e with e perpendicular to all classifiers: the same logits at any tau > tau*.
        def turned(classifier: Tensor) -> Tensor:
            features = cosine * classifier
            features[:, -1] += math.sqrt(1 - cosine**2)
            return features

        return _unit_optimum(problem, value, "spread", margin, lambda: _etf_rows(problem), turned, note=note)
    if count == 2:
        at_collapse = float(loss.margin_value(2 * problem.temperature, 2))
        if at_collapse <= math.log(2):
            margin = 2 * problem.temperature
            return _unit_optimum(problem, at_collapse, "neural collapse", margin, lambda: _etf_rows(problem))
        ones = torch.ones(2, 1, dtype=torch.float64)
        return _unit_optimum(problem, math.log(2), "equal classifiers", 0.0, lambda: ones)
    if count == 3:
        raise NotImplementedError(
            f"no closed form is known for 3 classes in the plane above the critical temperature {critical:.6g}"
        )
    return _unit_optimum(
        problem,
        value,
        "spread",
        margin,
        lambda: _equal_height_simplex(count, cosine),
        _dual_directions,
        note=note,
    )


def _dual_directions(classifier: Tensor) -> Tensor:
    """Unit rows, the k-th perpendicular to all differences of classifiers other than the k-th."""
    dual = torch.linalg.pinv(classifier).T
    return dual / dual.norm(dim=1, keepdim=True)


def _equal_height_simplex(count: int, cosine: float) -> Tensor:
    """K >= 4 unit vectors in R^(K-1), summing to zero, whose simplex has all heights ``cosine`` K/(K-1).

    The class of a vertex meets the hyperplane through the others at distance 1/sqrt((G^+)_kk), G the Gram matrix. A
    circulant G gives every vertex the same height, and its spectrum (trace K, 0 on the ones vector) is free: the first
    pair of Fourier modes gets weight x, the others share the rest, so that mean(1/spectrum) = 1/height^2.
    """
    others = count - 3
    wanted = ((count - 1) / (count * cosine)) ** 2 * count

    def excess(x: float) -> float:
        return 2 / x + others**2 / (count - 2 * x) - wanted

    flat = count / (count - 1)
    weight = flat if excess(flat) >= 0 else root(excess, 1e-12, flat)
    modes = fourier_modes(count, count - 1)
    spectrum = torch.full((count - 1,), (count - 2 * weight) / others, dtype=torch.float64)
    spectrum[:2] = weight
    return modes * spectrum.sqrt()


def _squared_error_optimum(problem: "NormalizedUFM", loss: SquaredError) -> Optimum:
    """z_y = tau <h, w_y> <= tau, so f >= alpha/2 (M - tau)_+^2, attained with wrong logits 0 whenever d >= K."""
    count, dim = problem.num_classes, problem.dim
    if dim < count:
        raise NotImplementedError(f"no closed form is known for {loss.spec} on spheres with dim = {dim} < {count}")
    if loss.target >= problem.temperature:
        value = loss.alpha / 2 * (loss.target - problem.temperature) ** 2
        return _unit_optimum(
            problem,
            value,
            "orthogonal frame",
            problem.temperature,
            lambda: frames.orthogonal_frame(count, dim),
        )
    # Classifiers with equal cosines 1 - delta have dual vectors of norm tau/M for the right delta (the root of a
    # quadratic equation): then z = M e_y exactly.
    wanted = (problem.temperature / loss.target) ** 2
    linear = wanted * count + count - 2
    delta = 2 * (count - 1) / (linear + math.sqrt(linear**2 - 4 * wanted * (count - 1) ** 2))
    common = math.sqrt(count - (count - 1) * delta)

    def equiangular(apart: float, along: float) -> Tensor:
        rows = torch.full((count, count), (along - apart) / count, dtype=torch.float64)
        rows.fill_diagonal_((along + (count - 1) * apart) / count)
        return torch.nn.functional.pad(rows / rows.norm(dim=1, keepdim=True), (0, dim - count))

    root_delta = math.sqrt(delta)
    note = "the targets are within reach of unit rows: the loss is zero"
    return _unit_optimum(
        problem,
        0.0,
        "interpolation",
        loss.target,
        lambda: equiangular(root_delta, common),
        lambda _: equiangular(1 / root_delta, 1 / common),
        note=note,
    )


def _etf_rows(problem: "NormalizedUFM") -> Tensor:
    return frames.simplex_etf(problem.num_classes, problem.dim)


def _unit_optimum(
    problem: "NormalizedUFM",
    value: float,
    regime: Regime,
    margin: float,
    classifier: Callable[[], Tensor],
    features: Callable[[Tensor], Tensor] | None = None,
    proved: bool = True,
    note: str = "",
) -> Optimum:
    """``classifier`` builds the rows of W, ``features`` the class's feature from them (the same rows if None)."""

    def arrays() -> tuple[Tensor, Tensor, None]:
        rows = classifier()
        return rows, rows if features is None else features(rows), None

    return Optimum(
        value=value,
        regime=regime,
        logit_scale=margin,
        weight_norm=1.0,
        feature_norm=1.0,
        proved=proved,
        note=note,
        **one_feature_a_class(arrays, lambda: problem.labels),
    )
