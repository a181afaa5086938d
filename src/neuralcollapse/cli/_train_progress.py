"""How a training run shows itself: a bar on a terminal, plain lines elsewhere; on stderr, by one process only."""

import os
import time
from typing import Any

from rich.progress import BarColumn, TimeElapsedColumn

from ..training import Plan, Progress, Run
from ._progress import Bar
from ._terminal import say_next, text_column

__all__ = ["Display"]

REFRESH_SECONDS = 0.25
HEADLINE = ("accuracy", "nc1", "nc2", "nc3", "nc4_mismatch")


class Display(Bar):
    """Epoch, loss, accuracy, nc1 and time left."""

    def __init__(self, plan: Plan):
        text = text_column("epoch {task.fields[epoch]}/{task.fields[epochs]}")
        columns = (text, BarColumn(), text_column("{task.fields[state]}"), TimeElapsedColumn())
        quiet = os.environ.get("RANK", "0") != "0"
        super().__init__(*columns, quiet=quiet, epoch=0, epochs=plan.epochs, state="")
        self.shown = 0.0
        self.measurement = ""
        self.left = ""

    def step(self, progress: Progress) -> None:
        """Called after every step; looks at the loss four times a second only."""
        now = time.monotonic()
        if self.shown and now - self.shown < REFRESH_SECONDS:
            return
        self.shown = now
        done = (progress.epoch + progress.step / progress.steps) / progress.epochs
        self.left = self.time_left(done)
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

    def finish(self, run: Run) -> None:
        """Where the run is, what came out of it, and what one would do next; by the process that writes."""
        self.line(f"finished: {run.folder}")
        if self.console.quiet:
            return
        for split in ("train", "test"):
            rows = [row for row in run.history if row["split"] == split]
            if rows:
                shown = [f"{name} {rows[-1][name]:.3g}" for name in HEADLINE if rows[-1].get(name) is not None]
                self.line(f"  {split}: {', '.join(shown)}")
        say_next(f"neuralcollapse report {run.folder} --out report.html")

    def line(self, text: str) -> None:
        """One line."""
        self.console.print(text, soft_wrap=True)
