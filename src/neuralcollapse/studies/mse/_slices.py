"""What figures 2 and 8 share: losses over the norm s and angle theta of one feature, and which way they fall."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import losses
from ...landscape import FeatureSlice, WideSlice
from ...losses import LogitLoss

__all__ = ["LOSSES", "NORM", "Field", "descent_field", "grid"]

LOSSES = {
    "MSE": "squared-error",
    "CE": "cross-entropy",
    "MSE (M=5)": "squared-error:alpha=1,target=5",
    "MSE (alpha=5, M=5)": "squared-error:alpha=5,target=5",
    "MSE (alpha=5)": "squared-error:alpha=5,target=1",
}
NORM = 5.0
"""The largest s: where the largest target is."""


@dataclass(frozen=True)
class Field:
    """The gradient on a grid of (s, theta), the rows being values of theta."""

    s: np.ndarray
    theta: np.ndarray
    value: np.ndarray
    by_s: np.ndarray
    by_theta: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """The part of the gradient's squared norm that is along theta."""
        return self.by_theta**2 / (self.by_s**2 + self.by_theta**2)

    @property
    def alignment(self) -> np.ndarray:
        """The cosine between the descent direction and falling theta: 1 towards the own classifier, -1 away from it."""
        return self.by_theta / np.hypot(self.by_s, self.by_theta)


def grid(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Midpoints of cells over 0 < s < 5, 0 < theta < pi/2."""
    middles = (np.arange(points) + 0.5) / points
    return NORM * middles, np.pi / 2 * middles


def descent_field(loss: str, num_classes: int | None, s: Any, theta: Any) -> Field:
    """The loss and its gradient where the axes ``s`` and ``theta`` cross; ``num_classes=None`` is the limit of many."""
    norms, angles = np.meshgrid(np.asarray(s, dtype=float), np.asarray(theta, dtype=float))
    on_logits = losses.get(loss)
    assert isinstance(on_logits, LogitLoss)
    surface = WideSlice(on_logits) if num_classes is None else FeatureSlice(on_logits, num_classes)
    by_s, by_theta = surface.gradient(norms, angles)
    return Field(norms, angles, np.asarray(surface.value(norms, angles)), np.asarray(by_s), np.asarray(by_theta))
