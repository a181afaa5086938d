"""A diverged model ends no training: what would be measured is left out, and the reason said once."""

import logging
from collections.abc import Callable
from typing import TypeVar

from ..metrics.inputs import NonFiniteError

__all__ = ["Skips"]

Measured = TypeVar("Measured")

log = logging.getLogger("neuralcollapse")


class Skips:
    """Leaves out measurements that a diverged model does not give, and says why once."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, step: float, measure: Callable[[], Measured]) -> Measured | None:
        """The result of ``measure``; ``None`` where features or weights are not finite."""
        try:
            return measure()
        except NonFiniteError as error:
            if not self._said:
                log.warning("neural collapse was not measured at %g: %s (said once)", step, error)
            self._said = True
            return None
