"""Lower bounds by Fenchel duality.

g is the mean loss, convex (or replaced by its convex envelope) in the logits Z (N, K). For any dual array L (N, K),
g(Z) >= <L, Z> - g*(L) with g*(L) = (1/N) sum_i conj(N L_i). Here L = c U/N along the ray of the dual rows U.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor

from .._support.numerics import eigh
from ..losses import Linearization, LogitLoss

__all__ = [
    "best_on_ray",
    "feasible_free_bias",
    "levelled",
    "refit_bias",
    "spectral_norm",
    "top_singular_pair",
]


def best_on_ray(bound: Callable[[float], float], largest: float) -> float:
    """The largest value found of a concave ``bound`` on [0, largest] (perhaps infinite); every value is a valid bound.

    Tried are both ends, c = 1 (exact at an optimum), the top of a parabola through three points (exact for a quadratic
    loss), and a scalar search.
    """
    if largest <= 0:
        return bound(0.0)
    scale = min(1.0, largest / 2)
    start, one, two = bound(0.0), bound(scale), bound(2 * scale)
    candidates = [start, one, two, bound(min(1.0, largest))]
    second_difference = 2 * one - start - two
    if 0 < second_difference < math.inf:
        top = scale * (1 + (two - start) / (2 * second_difference))
        candidates.append(bound(min(largest, max(0.0, top))))
    if largest == math.inf:
        return max(candidates)
    candidates.append(bound(largest))
    found = minimize_scalar(
        lambda c: min(-bound(c), 1e300),
        bounds=(0.0, largest),
        method="bounded",
        options={"xatol": 1e-5 * largest, "maxiter": 40},
    )
    candidates.append(-float(found.fun))
    return max(value for value in candidates if not math.isnan(value))


def top_singular_pair(array: Float[Tensor, "N K"]) -> tuple[float, Float[Tensor, " N"], Float[Tensor, " K"]]:
    """The largest singular value with its unit left and right vectors, through the Gram matrix of the shorter side."""
    tall = array.shape[0] >= array.shape[1]
    gram = array.T @ array if tall else array @ array.T
    _, vectors = eigh(gram)
    short = vectors[:, -1]
    long = array @ short if tall else array.T @ short
    value = float(long.norm())
    if value > 0:
        long = long / value
    return (value, long, short) if tall else (value, short, long)


def spectral_norm(array: Float[Tensor, "N K"]) -> float:
    """The largest singular value."""
    return top_singular_pair(array)[0]


def levelled(rows: Float[Tensor, "N K"], level: float | None) -> Iterator[tuple[Float[Tensor, "N K"], float]]:
    """Dual rows whose large singular values are set to one level, with that level as their spectral norm.

    At an optimum the active singular values all equal the level; scaling the whole array to fit under it costs a first
    order in the distance to the optimum, levelling them a second one. Null spaces on both sides are kept, so row and
    column sums that are zero stay zero. ``None`` takes the mean of the large ones.
    """
    values, vectors = eigh(rows.T @ rows)
    singular = values.clamp(min=0).sqrt()
    top = float(singular[-1]) if level is None else level
    for share in (0.5, 0.9, 0.99, 0.9999):
        large = singular >= share * top
        if bool(large.any()) and top > 0:
            target = float(singular[large].mean()) if level is None else level
            factor = torch.where(large, target / singular.clamp(min=1e-300), 1.0)
            dual = rows @ (vectors * factor) @ vectors.T
            norm = spectral_norm(dual)  # small singular values come out of the Gram matrix with few digits
            yield (dual * (target / norm) if norm > target else dual), target


def refit_bias(
    loss: LogitLoss,
    logits: Float[Tensor, "N K"],
    labels: Int[Tensor, " N"],
    decay: float,
    start: Float[Tensor, " K"],
) -> Float[Tensor, " K"]:
    """argmin_b g(logits + 1 b') + decay/2 |b|^2 by a trust-region Newton method in K dimensions.

    Any b gives a valid bound; this one makes it tight, and makes the dual's class sums match for a free bias.
    """
    cache: dict[bytes, Linearization] = {}

    def state(b: np.ndarray) -> Linearization:
        key = b.tobytes()
        if key not in cache:
            cache.clear()
            cache[key] = loss.linearize(logits + torch.from_numpy(b.copy()), labels)
        return cache[key]

    found = minimize(
        lambda b: state(b).value + decay / 2 * float(b @ b),
        start.numpy(),
        jac=lambda b: state(b).gradient.sum(0).numpy() + decay * b,
        hessp=lambda b, v: (
            state(b).hessian_vector(torch.from_numpy(v.copy()).expand_as(logits).clone()).sum(0).numpy() + decay * v
        ),
        method="trust-ncg",
        options={"gtol": 1e-13, "maxiter": 100},
    )
    return torch.from_numpy(found.x)


def feasible_free_bias(rows: Float[Tensor, "N K"], loss: LogitLoss, labels: Int[Tensor, " N"]) -> Float[Tensor, "N K"]:
    """``rows`` moved, as little as need be, to the set with column sums zero inside the conjugate's domain.

    A free bias demands that the dual's columns sum to zero. Subtracting the mean row does that but may leave the domain
    by rounding; mixing in a point well inside whose columns sum to zero too (the loss's dual centre) returns.
    """
    centred = rows - rows.mean(0)
    if _inside(loss, centred, labels):
        return centred
    interior = loss.dual_centre(labels, rows.shape[1])
    for exponent in range(-16, 1):
        mixed = torch.lerp(centred, interior, 10.0**exponent)
        mixed = mixed - mixed.mean(0)
        if _inside(loss, mixed, labels):
            return mixed
    return torch.zeros_like(rows)


def _inside(loss: LogitLoss, rows: Tensor, labels: Tensor) -> bool:
    return bool(torch.isfinite(loss.conjugate(rows, labels)).all())
