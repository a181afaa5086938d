"""What figures 2 and 8 share: losses over the norm s and angle theta of one feature, and which way they fall."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ... import losses
from ...landscape import FeatureSlice, WideSlice
from ...losses import LogitLoss

__all__ = ["AREAS", "LOSSES", "NORM", "SCALES", "Field", "descent_field", "grid"]

SCALES = {"MSE": (1.0, 1.0), "MSE (M=5)": (1.0, 5.0), "MSE (alpha=5, M=5)": (5.0, 5.0), "MSE (alpha=5)": (5.0, 1.0)}
"""(alpha, M) of the squared errors."""
LOSSES = {
    "MSE": "squared-error",
    "CE": "cross-entropy",
    **{name: f"squared-error:alpha={a:g},target={m:g}" for name, (a, m) in SCALES.items() if name != "MSE"},
}
NORM = 5.0
"""The largest s: where the largest target is."""
AREAS = (1.0, 1.25, 2.0, 3.0, 5.0)
"""Largest s of the areas over which averages are told: they depend on it."""


@dataclass(frozen=True)
class Field:
    """The gradient on a grid of (s, theta), the rows being values of theta."""

    s: np.ndarray
    theta: np.ndarray
    value: np.ndarray
    by_s: np.ndarray
    by_theta: np.ndarray

    @property
    def steeper_in_theta(self) -> np.ndarray:
        """Where the loss changes faster with theta than with s."""
        return np.abs(self.by_theta) > np.abs(self.by_s)

    @property
    def share(self) -> np.ndarray:
        """The part of the gradient's squared norm that is along theta."""
        return self.by_theta**2 / (self.by_s**2 + self.by_theta**2)

    @property
    def alignment(self) -> np.ndarray:
        """The cosine between the descent direction and falling theta: 1 towards the own classifier, -1 away from it."""
        return self.by_theta / np.hypot(self.by_s, self.by_theta)


def grid(points: int, norm: float = NORM) -> tuple[np.ndarray, np.ndarray]:
    """Midpoints of cells over 0 < s < norm, 0 < theta < pi/2."""
    middles = (np.arange(points) + 0.5) / points
    return norm * middles, np.pi / 2 * middles


def descent_field(loss: str, num_classes: int | None, s: ArrayLike, theta: ArrayLike) -> Field:
    """The loss and its gradient where the axes ``s`` and ``theta`` cross; ``num_classes=None`` is the limit of many."""
    norms, angles = np.meshgrid(np.asarray(s, dtype=float), np.asarray(theta, dtype=float))
    on_logits = losses.get(loss)
    assert isinstance(on_logits, LogitLoss)
    surface = WideSlice(on_logits) if num_classes is None else FeatureSlice(on_logits, num_classes)
    by_s, by_theta = surface.gradient(norms, angles)
    return Field(norms, angles, np.asarray(surface.value(norms, angles)), np.asarray(by_s), np.asarray(by_theta))
