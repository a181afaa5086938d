"""What is known of a point: how far from the global minimum, and what kind of point."""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from .point import Point

__all__ = ["Certificate", "Verdict"]

Verdict = Literal["global minimum", "strict saddle", "not a critical point", "undecided"]
"""What kind of point it is."""

GLOBAL_MINIMUM: Final = "global minimum"
STRICT_SADDLE: Final = "strict saddle"
NOT_CRITICAL: Final = "not a critical point"
UNDECIDED: Final = "undecided"


@dataclass(frozen=True, eq=False)
class Certificate:
    """A rigorous statement about a point of a model.

    ``lower_bound`` bounds the global minimum from below, so ``gap = value - lower_bound`` bounds the distance to it
    from above. ``verdict`` is one of "global minimum" (within the tolerance), "strict saddle", "not a critical point",
    "undecided"; ``reason`` says why. At a strict saddle ``escape`` is a unit direction and ``curvature`` the second
    derivative of the value along it. ``spectral_ratio`` is the papers' test at critical points: at most 1 proves
    global optimality for convex losses.
    """

    value: float
    lower_bound: float
    gap: float
    gradient_norm: float
    verdict: Verdict
    reason: str
    bound_source: str
    spectral_ratio: float | None = None
    escape: Point | None = None
    curvature: float | None = None

    def __repr__(self) -> str:
        curved = "" if self.curvature is None else f", curvature {self.curvature:.3g}"
        return (
            f"Certificate({self.verdict}, value {self.value:.10g}, gap {self.gap:.1e} by {self.bound_source}, "
            f"gradient norm {self.gradient_norm:.1e}{curved})"
        )

    def to_dict(self) -> dict[str, Any]:
        """The numbers and words, for JSON (non-finite numbers as null)."""
        names = ("value", "lower_bound", "gap", "gradient_norm", "spectral_ratio", "curvature")
        numbers = {name: getattr(self, name) for name in names}
        clean = {name: v if v is not None and math.isfinite(v) else None for name, v in numbers.items()}
        return {**clean, "verdict": self.verdict, "reason": self.reason, "bound_source": self.bound_source}
