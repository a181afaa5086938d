"""The loss of one feature in the plane of two classifiers (mse, Appendix C).

The classifiers are a simplex ETF with unit rows. The feature has norm s and angle theta to its own classifier w_k,
turning towards another one, w_k'.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike

from .._support.checks import integer, real
from ..losses import Curve, LogitLoss, LossLike, SquaredError, logit_loss

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FeatureSlice", "WideSlice"]

CHUNK_ENTRIES = 1 << 22


@dataclass(frozen=True)
class FeatureSlice:
    """(s, theta) -> value and gradient of any loss on logits, for K >= 3 classes.

    Arguments of the methods may be arrays, which are broadcast against one another.

    >>> from neuralcollapse.losses import CrossEntropy
    >>> slice = FeatureSlice(CrossEntropy(), num_classes=4)
    >>> float(slice.value(0.0, 0.0))  # log 4
    1.3862943611198906
    """

    loss: LossLike
    """A loss or its string form; what is kept is the loss."""
    num_classes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", logit_loss(self.loss))
        object.__setattr__(self, "num_classes", integer("num_classes", self.num_classes, minimum=3))

    @cached_property
    def _loss(self) -> LogitLoss:
        return logit_loss(self.loss)

    def logits(self, s: ArrayLike, theta: ArrayLike) -> Curve:
        """The three different logits (own, towards, each of the K-2 others), mse eq. (29); last axis of length 3."""
        s, theta = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(theta, np.float64))
        return s[..., None] * self._directions(theta)[0]

    def value(self, s: ArrayLike, theta: ArrayLike) -> Curve:
        """The loss, mse eqs. (31), (32) for its two losses."""
        return self._evaluate(s, theta)[0]

    def gradient(self, s: ArrayLike, theta: ArrayLike) -> tuple[Curve, Curve]:
        """(d/ds, d/dtheta) of the loss."""
        return self._evaluate(s, theta)[1:]

    def plot(self, largest: float = 6.0) -> "Figure":
        """Contours of the loss over norms up to ``largest`` and all angles, as a matplotlib figure."""
        from matplotlib.figure import Figure

        norms, angles = np.linspace(0, real("largest", largest, above=0), 61), np.linspace(-math.pi, math.pi, 121)
        figure = Figure(figsize=(5.2, 3.8), layout="constrained")
        axis = figure.subplots()
        drawn = axis.contourf(norms, angles, self.value(norms[None, :], angles[:, None]), levels=24)
        figure.colorbar(drawn, label=f"loss: {self._loss.spec}")
        axis.set_xlabel("norm of the feature")
        axis.set_ylabel("angle to its own classifier")
        axis.set_yticks([-math.pi, 0, math.pi], ["−π", "0", "π"])
        return figure

    def _directions(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits at s = 1 and their derivative in theta."""
        count = self.num_classes
        ahead, rest = (
            math.sqrt(count * (count - 2)) / (count - 1),
            math.sqrt(count / (count - 2)) / (count - 1),
        )
        mix = np.array([[1.0, 0.0], [-1 / (count - 1), ahead], [-1 / (count - 1), -rest]])
        circle = np.stack([np.cos(theta), np.sin(theta)], axis=-1)
        turned = np.stack([-np.sin(theta), np.cos(theta)], axis=-1)
        return circle @ mix.T, turned @ mix.T

    def _evaluate(self, s: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        s, theta = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(theta, np.float64))
        unit, turn = self._directions(theta.ravel())
        radius = s.ravel()[:, None]
        value, by_s, by_theta = (np.empty(s.size) for _ in range(3))
        rows = max(1, CHUNK_ENTRIES // self.num_classes)
        for start in range(0, s.size, rows):
            part = slice(start, start + rows)
            labels = torch.zeros(len(unit[part]), dtype=torch.int64)
            logits = self._expand(radius[part] * unit[part])
            slopes = self._loss.gradient(logits, labels) * len(labels)
            value[part] = self._loss.values(logits, labels).numpy()
            by_s[part] = (slopes * self._expand(unit[part])).sum(1).numpy()
            by_theta[part] = (slopes * self._expand(radius[part] * turn[part])).sum(1).numpy()
        return value.reshape(s.shape), by_s.reshape(s.shape), by_theta.reshape(s.shape)

    def _expand(self, three: np.ndarray) -> torch.Tensor:
        """Rows of three logits to rows of K."""
        tensor = torch.from_numpy(np.ascontiguousarray(three))
        return torch.cat([tensor[:, :2], tensor[:, 2:].expand(-1, self.num_classes - 2)], dim=1)


@dataclass(frozen=True)
class WideSlice:
    """The limit of :class:`FeatureSlice` for K to infinity.

    Squared error: alpha/2 (s cos theta - M)^2 + s^2/2 sin^2 theta (mse (33), (34)). A loss of margins grows like
    log K; its excess over the value at s = 0 tends to -q s cos theta, so the gradient is q (-cos theta, s sin theta),
    with q = 1 for cross-entropy and focal loss and 1 - alpha for label smoothing: mse (35), as printed, drops K-2
    classes.
    """

    loss: LogitLoss

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", logit_loss(self.loss))

    def value(self, s: ArrayLike, theta: ArrayLike) -> Curve:
        """The limit of the loss; for losses of margins, of its excess over the value at s = 0."""
        s, theta = np.asarray(s, np.float64), np.asarray(theta, np.float64)
        if isinstance(self.loss, SquaredError):
            own = self.loss.alpha / 2 * (s * np.cos(theta) - self.loss.target) ** 2
            return own + s**2 * np.sin(theta) ** 2 / 2
        return -self._pull * s * np.cos(theta)

    def gradient(self, s: ArrayLike, theta: ArrayLike) -> tuple[Curve, Curve]:
        """The limit of (d/ds, d/dtheta)."""
        s, theta = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(theta, np.float64))
        sine, cosine = np.sin(theta), np.cos(theta)
        if isinstance(self.loss, SquaredError):
            alpha, target = self.loss.alpha, self.loss.target
            by_s = s + (alpha - 1) * s * cosine**2 - alpha * target * cosine
            return by_s, alpha * target * s * sine - (alpha - 1) * s**2 * sine * cosine
        return -self._pull * cosine, self._pull * s * sine

    @property
    def _pull(self) -> float:
        """-d loss/d z_true when infinitely many wrong classes share the softmax."""
        return -float(self.loss.margin_derivative(0.0, 10**15))
