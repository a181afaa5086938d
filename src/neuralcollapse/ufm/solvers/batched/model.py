"""The regularised and the normalised model at many points at once.

x (T, D) has a trial a row: W, then H, then b, each block divided by the root of its scale in the block metric, so that
the metric is the plain one and a method needs none. With c = tau sqrt(s_W s_H) the logits are c W H' + sqrt(s_b) b 1',
(T, K, N), classes before samples.

Vectors are torch's, numbers (one a trial) are numpy's, whose small operations cost half as much; so are products of
small matrices and inner products, for which torch takes twice the time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ....losses import LossStack
from ...normalized import NormalizedUFM
from ...point import Point
from ...regularized import RegularizedUFM

__all__ = ["BatchModel", "BatchState", "Numbers", "Points", "column", "dots"]

Numbers = np.ndarray
"""One float64, or one truth value, a trial."""


def dots(left: Float[Tensor, "T D"], right: Float[Tensor, "T D"]) -> Numbers:
    """<u, v> of each row, in one pass."""
    return np.vecdot(left.numpy(), right.numpy())


def column(numbers: Numbers) -> Float[Tensor, "T 1"]:
    """Numbers to multiply the rows of a tensor by."""
    return torch.from_numpy(numbers[:, None])


def product(left: Tensor, right: Tensor) -> Tensor:
    """Matrix products, trial by trial."""
    return torch.from_numpy(np.matmul(left.numpy(), right.numpy()))


@dataclass(frozen=True)
class Points:
    """The points of many trials, block by block."""

    W: Float[Tensor, "T K d"]
    H: Float[Tensor, "T N d"]
    b: Float[Tensor, "T K"] | None

    def __getitem__(self, trial: int) -> Point:
        return Point(self.W[trial], self.H[trial], None if self.b is None else self.b[trial])


@dataclass
class BatchState:
    """Trials at their points, with values and gradients."""

    x: Float[Tensor, "T D"]
    values: Numbers
    gradient: Float[Tensor, "T D"]
    radial: np.ndarray | None
    """On spheres: the radial part of the pull on each row (T, R), for the curvature."""
    loss: LossStack

    def pick(self, index: np.ndarray) -> "BatchState":
        """Only these trials."""
        places = torch.from_numpy(index)
        radial = None if self.radial is None else self.radial[index]
        return BatchState(self.x[places], self.values[index], self.gradient[places], radial, self.loss.pick(places))

    def put_(self, index: np.ndarray, other: "BatchState") -> None:
        """These trials as in ``other``."""
        places = torch.from_numpy(index)
        self.x[places], self.gradient[places] = other.x, other.gradient
        self.values[index] = other.values
        if self.radial is not None:
            self.radial[index] = other.radial
        self.loss.put_(places, other.loss)


class BatchModel:
    """Values, gradients, curvatures and feasible steps of T trials."""

    def __init__(self, problem: RegularizedUFM | NormalizedUFM, loss: LossStack, scales: tuple[float, ...]):
        self.classes, self.rows, self.dim = problem.num_classes, problem.num_classes + problem.num_samples, problem.dim
        self.has_bias, self.scales = problem.has_bias, scales
        temperature = problem.temperature if isinstance(problem, NormalizedUFM) else 1.0
        self.noise = 1e-15 * max(1.0, temperature)
        self._loss = loss
        self._gain = temperature * math.sqrt(scales[0]) * math.sqrt(scales[1])
        self._bias_gain = math.sqrt(scales[2]) if problem.has_bias else 0.0
        self._ends = (problem.num_classes * problem.dim, self.rows * problem.dim)
        decays = (0.0, 0.0, 0.0)
        if isinstance(problem, RegularizedUFM):
            decays = (problem.weight_decay, problem.feature_decay, problem.bias_decay or 0.0)
        self._decays = tuple(decay * scale for decay, scale in zip(decays, scales, strict=False))
        self._row_scales: np.ndarray | None = None
        if isinstance(problem, NormalizedUFM):
            self._row_scales = np.repeat(scales, (problem.num_classes, problem.num_samples))

    def _split(self, x: Float[Tensor, "T D"]) -> tuple[Tensor, ...]:
        """The blocks, flat, as views."""
        first, second = self._ends
        blocks = x[:, :first], x[:, first:second]
        return (*blocks, x[:, second:]) if self.has_bias else blocks

    def blocks(self, x: Float[Tensor, "T D"]) -> tuple[Tensor, ...]:
        """W (T, K, d), H (T, N, d) and, if there is one, b (T, K), as views."""
        flat = self._split(x)
        W, H = (block.unflatten(1, (-1, self.dim)) for block in flat[:2])
        return (W, H, *flat[2:])

    def gather(self, points: Sequence[Point]) -> Float[Tensor, "T D"]:
        """The points as rows."""
        x = torch.stack([point.flatten() for point in points])
        for block, scale in zip(self._split(x), self.scales, strict=True):
            block /= math.sqrt(scale)
        return x

    def points(self, x: Float[Tensor, "T D"]) -> Points:
        """The points that rows stand for, in memory of their own; on spheres with rows of exactly unit norm."""
        made = [block * math.sqrt(scale) for block, scale in zip(self.blocks(x), self.scales, strict=True)]
        if self._row_scales is not None:
            made = [block / block.norm(dim=2, keepdim=True) for block in made]
        return Points(made[0], made[1], made[2] if self.has_bias else None)

    def norms(self, gradient: Float[Tensor, "T D"]) -> Numbers:
        """The gradients' Euclidean norms in the point's own entries."""
        squares = (dots(block, block) / scale for block, scale in zip(self._split(gradient), self.scales, strict=True))
        return np.sqrt(sum(squares))

    def at(self, x: Float[Tensor, "T D"]) -> BatchState:
        """Values and gradients: three products of order K N d a trial."""
        W, H, *bias = (block.numpy() for block in self.blocks(x))
        logits = torch.from_numpy(np.matmul(W, H.mT))
        if self._gain != 1:
            logits *= self._gain
        if bias:
            logits += torch.from_numpy(self._bias_gain * bias[0][:, :, None])
        loss = self._loss.at(logits)
        values = loss.values.numpy()
        slope = loss.gradient
        gradient = torch.empty_like(x)
        pull_W, pull_H, *pull_bias = self.blocks(gradient)
        if bias:
            torch.sum(slope, 2, out=pull_bias[0]).mul_(self._bias_gain)
        if self._gain != 1:
            slope *= self._gain
        np.matmul(slope.numpy(), H, out=pull_W.numpy())
        np.matmul(slope.numpy().mT, W, out=pull_H.numpy())
        if self._row_scales is None:
            values = values + self._decay_(x, gradient)
        return BatchState(x, values, gradient, self._take_radial_(x, gradient), loss)

    def _decay_(self, x: Float[Tensor, "T D"], gradient: Float[Tensor, "T D"]) -> Numbers:
        """The decays' values; their gradient is added to ``gradient``."""
        if len(set(self._decays)) == 1:
            gradient.add_(x, alpha=self._decays[0])
            return self._decays[0] / 2 * dots(x, x)
        total = np.zeros(len(x))
        for block, target, decay in zip(self._split(x), self._split(gradient), self._decays, strict=True):
            if decay:
                target.add_(block, alpha=decay)
                total += decay / 2 * dots(block, block)
        return total

    def curvature(self, state: BatchState, direction: Float[Tensor, "T D"]) -> Numbers:
        """d^2/dt^2 of the value along each retracted ray at t = 0.

        <Z1, L Z1> + 2 <G, Z2> with logits Z0 + t Z1 + t^2 Z2, and the decays' or the spheres' part.
        """
        W, H, *_ = self.blocks(state.x)
        dW, dH, *turn = self.blocks(direction)
        first = product(dW, H.mT).add_(product(W, dH.mT)).mul_(self._gain)
        if turn:
            first.add_(turn[0][:, :, None], alpha=self._bias_gain)
        total = state.loss.curvature(first).numpy()
        total = total + 2 * self._gain * dots(state.loss.gradient.flatten(1), product(dW, dH.mT).flatten(1))
        if state.radial is not None:
            total -= np.vecdot(self._row_squares(direction), state.radial)
        for block, decay in zip(self._split(direction), self._decays, strict=True):
            if decay:
                total += decay * dots(block, block)
        return total

    def step(self, x: Float[Tensor, "T D"], direction: Float[Tensor, "T D"], lengths: Numbers) -> BatchState:
        """The states at x + t d, with rows scaled back to spheres."""
        moved = torch.addcmul(x, direction, column(lengths))
        if self._row_scales is not None:
            factors = 1 / np.sqrt(self._row_squares(moved))
            moved.view(len(x), self.rows, self.dim).mul_(torch.from_numpy(factors[:, :, None]))
        return self.at(moved)

    def project_(self, x: Float[Tensor, "T D"], vectors: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """Replace ``vectors`` by their tangent parts."""
        self._take_radial_(x, vectors)
        return vectors

    def _row_squares(self, x: Float[Tensor, "T D"]) -> np.ndarray:
        """|row|^2 in the point's own entries, (T, R)."""
        rows = x.view(len(x), self.rows, self.dim).numpy()
        return np.vecdot(rows, rows) * self._row_scales

    def _take_radial_(self, x: Float[Tensor, "T D"], vectors: Float[Tensor, "T D"]) -> np.ndarray | None:
        """Subtract the radial part of each row of ``vectors``, and return <x_r, v_r>, on spheres."""
        if self._row_scales is None:
            return None
        shape = len(x), self.rows, self.dim
        base, rows = x.view(shape), vectors.view(shape)
        radial = np.vecdot(base.numpy(), rows.numpy())
        rows.addcmul_(base, torch.from_numpy((radial * self._row_scales)[:, :, None]), value=-1)
        return radial
