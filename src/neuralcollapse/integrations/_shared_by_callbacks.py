"""What the callbacks share: a diverged model ends no training, and a report that is logged is kept."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ..metrics import CollapseReport
from ..metrics.inputs import NonFiniteError

__all__ = ["Skips", "report_state", "restored_report"]

Measured = TypeVar("Measured")

log = logging.getLogger("neuralcollapse")


class Skips:
    """Measurements that a diverged model does not give; says why once and counts the rest."""

    def __init__(self) -> None:
        self.reasons: list[tuple[float, str]] = []

    def __call__(self, step: float, measure: Callable[[], Measured]) -> Measured | None:
        """The result of ``measure``; ``None`` where features or weights are not finite."""
        try:
            return measure()
        except NonFiniteError as error:
            self.note(step, error)
            return None

    def note(self, step: float, error: NonFiniteError) -> None:
        """Remember that nothing was measured at a step."""
        if not self.reasons:
            log.warning("neural collapse was not measured at %g: %s (said once)", step, error)
        self.reasons.append((step, str(error)))


def report_state(report: CollapseReport) -> dict[str, Any]:
    """A report as plain values, for checkpoints that are loaded without pickled classes."""
    return report.to_dict() | {"values": list(report.values)}


def restored_report(state: dict[str, Any]) -> CollapseReport:
    """The report of :func:`report_state`."""
    state = dict(state)
    values = {name: state.pop(name) for name in state.pop("values")}
    state["notes"] = tuple(state["notes"])
    state["intervals"] = {name: tuple(bounds) for name, bounds in state.get("intervals", {}).items()}
    known = {name: value for name, value in state.items() if name in CollapseReport.__dataclass_fields__}
    return CollapseReport(values, **known)
