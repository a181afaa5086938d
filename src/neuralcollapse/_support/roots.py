"""One scalar root, to the last digits."""

from collections.abc import Callable
from typing import Any

from scipy.optimize import brentq

__all__ = ["root"]


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """The root of ``function`` between ``low`` and ``high``, where its signs differ, to rounding (Brent's method)."""
    tolerances: dict[str, Any] = {"xtol": 1e-18, "rtol": 1e-15}
    found: Any = brentq(function, low, high, **tolerances)
    return float(found)
