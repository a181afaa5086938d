"""What long commands share: a bar on a terminal, silent elsewhere, on stderr; and the time that is left."""

import time
from types import TracebackType
from typing import Any, TypeVar

from rich.progress import Progress, ProgressColumn

from ._terminal import terminal

__all__ = ["Bar", "clock"]

Shown = TypeVar("Shown", bound="Bar")


class Bar:
    """A bar from 0 to 1 with fields of its own, started and stopped by ``with``."""

    def __init__(self, *columns: ProgressColumn, quiet: bool = False, **fields: Any):
        self.console = terminal(stderr=True, quiet=quiet)
        self.bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.bar.add_task("", total=1.0, **fields)
        self._began: tuple[float, float] | None = None

    def __enter__(self: Shown) -> Shown:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def time_left(self, done: float) -> str:
        """Such as "1:23 left", at the rate since the first call; nothing while there is no rate."""
        now = time.monotonic()
        if self._began is None:
            self._began = now, done
        start, before = self._began
        return f"{clock((now - start) * (1 - done) / (done - before))} left" if done > before else ""


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, as on a clock."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
