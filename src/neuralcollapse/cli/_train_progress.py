"""How a training run shows itself: a bar on a terminal, plain lines elsewhere; on stderr, by one process only."""

import os
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..training import Plan
from ..training import Progress as TrainingProgress

__all__ = ["Display", "duration"]

REFRESH_SECONDS = 0.25


class Display:
    """Epoch, loss, accuracy, nc1 and time left."""

    def __init__(self, plan: Plan):
        self.console = Console(stderr=True, quiet=os.environ.get("RANK", "0") != "0")
        text = TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}")
        columns = (text, BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
        self.bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.bar.add_task("", total=1.0, epoch=0, epochs=plan.epochs, state="")
        self.began: tuple[float, float] | None = None
        self.shown = 0.0
        self.measurement = ""
        self.left = ""

    def __enter__(self) -> "Display":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def step(self, progress: TrainingProgress) -> None:
        """Called after every step; looks at the loss four times a second only."""
        now = time.monotonic()
        done = (progress.epoch + progress.step / progress.steps) / progress.epochs
        if self.began is None:
            self.began = (now, done)
        if now - self.shown < REFRESH_SECONDS:
            return
        self.shown = now
        start, before = self.began
        if done > before:
            self.left = f"{duration((now - start) * (1 - done) / (done - before))} left"
        state = ", ".join(filter(None, [f"loss {progress.loss.item():.4g}", self.measurement, self.left]))
        self.bar.update(self.task, completed=done, epoch=progress.epoch + 1, state=state)

    def measured(self, row: dict[str, Any]) -> None:
        """Called with each line of ``metrics.jsonl``."""
        nc1 = row.get("nc1")
        shown = "" if nc1 is None else f", nc1 {nc1:.3g}"
        if row["split"] == "train":
            self.measurement = f"accuracy {row['accuracy']:.4f}{shown}"
        if self.bar.disable:
            text = f"epoch {row['epoch']} {row['split']}: loss {row['loss']:.4g}, accuracy {row['accuracy']:.4f}"
            self.line(text + shown + (f", {self.left}" if self.left else ""))

    def line(self, text: str) -> None:
        """One line."""
        self.console.print(text, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, as on a clock."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
