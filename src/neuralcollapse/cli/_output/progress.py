"""How long work shows itself, on stderr: a bar on a terminal, plain lines elsewhere, and the time that is left."""

import os
import time
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ..._support.notation import typeset
from .terminal import say_next, styled_text, terminal, text_column

if TYPE_CHECKING:
    from ...studies import Status, StudyOutcome
    from ...training import Plan, Run
    from ...training import Progress as Step

__all__ = ["Bar", "CountBar", "DownloadBar", "FilesBar", "StudiesBar", "TrainingBar", "clock"]

FILE_SECONDS, LINE_SECONDS = 10.0, 30.0
"""Between plain lines, of files and of cells."""
MARKS = {"holds": "green", "contradicted": "red", "underpowered": "yellow"}
REFRESH_SECONDS = 0.25
HEADLINE = ("accuracy", "nc1", "nc2", "nc3", "nc4_mismatch")

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


class CountBar(Bar):
    """So many of so many, and what there is to say; called with both. Plain lines come at most once a second."""

    def __init__(self, unit: str, total: int):
        columns = (text_column(unit), text_column("{task.fields[count]}"), BarColumn())
        super().__init__(*columns, text_column("{task.fields[text]}"), TimeElapsedColumn(), count="", text="")
        self.bar.live.transient = True
        self._unit, self._total = unit, total  # 0 where only the start is looked at
        self._next_line = 0.0

    def __call__(self, done: int, text: str) -> None:
        """How many are done."""
        self.bar.update(self.task, completed=done / (self._total or 1), count=f"{done}/{self._total}", text=text)
        if self.bar.disable and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + 1
            self.console.print(f"{self._unit} {done} of {self._total}: {text}", soft_wrap=True)


class FilesBar(Bar):
    """Files that are measured, for more than one; called with how many are done, and of how many."""

    def __init__(self) -> None:
        text, left = text_column("measuring {task.fields[text]}"), text_column("{task.fields[left]}")
        super().__init__(text, BarColumn(), left, text="", left="")
        self._last_line = time.monotonic()

    def __enter__(self) -> "FilesBar":
        return self  # nothing is shown before there is a second file

    def __call__(self, done: int, total: int) -> None:
        """How many are done."""
        if total > 1:
            self.bar.start()  # once: later calls change nothing
        share = done / total
        left, text = self.time_left(share), f"{done}/{total}"
        self.bar.update(self.task, completed=share, text=text, left=left)
        if self.bar.disable and time.monotonic() - self._last_line >= FILE_SECONDS:
            self._last_line = time.monotonic()
            self.console.print(f"measuring {text}{', ' + left if left else ''}")


class DownloadBar(Bar):
    """One line a file: how much of it is there, how fast, and the time left."""

    def __init__(self) -> None:
        columns = (text_column("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        super().__init__(*columns, TimeRemainingColumn())
        self.bar.remove_task(self.task)
        self._files: dict[str, TaskID] = {}

    def __call__(self, file: str, done: int, total: int) -> None:
        """How much of a file is there."""
        if file not in self._files:
            self._files[file] = self.bar.add_task(file, total=total)
            if self.bar.disable:
                self.console.print(f"fetching {file} ({total:,} bytes)")
        self.bar.update(self._files[file], completed=done)


class StudiesBar(Bar):
    """Cells done, and the time left."""

    def __init__(self) -> None:
        text, left = text_column("cells {task.fields[text]}"), text_column("{task.fields[left]}")
        super().__init__(text, BarColumn(), left, TimeElapsedColumn(), text="", left="")
        self.last_line = 0.0
        self.seen = -1

    def status(self, status: "Status") -> None:
        """Called whenever something has happened, and twice a second otherwise."""
        now = time.monotonic()
        left = "" if status.seconds_left is None else f"{clock(status.seconds_left)} left"
        text = f"{status.done}/{status.cells}"
        self.bar.update(self.task, completed=status.fraction, text=text, left=left)
        if status.failure is not None:
            self.console.print(f"a cell failed: {status.failure}", soft_wrap=True)
        if status.note is not None:
            self.console.print(status.note, soft_wrap=True)
        due = now - self.last_line >= LINE_SECONDS or status.done == status.cells
        if self.bar.disable and status.done != self.seen and due:
            self.last_line, self.seen = now, status.done
            self.console.print(f"cells {text}{', ' + left if left else ''}")

    def outcome(self, outcome: "StudyOutcome") -> None:
        """Called with each study's verdict."""
        console = terminal(soft_wrap=True)
        verdict = (outcome.verdict, MARKS[outcome.verdict])
        console.print(styled_text((outcome.study.name, "bold"), f" ({outcome.profile}): ", verdict))
        for part in outcome.parts:
            ours = " (ours)" if part.kind == "ours" else ""
            said = typeset(f"{ours}: {part.says} {part.why}".rstrip())
            console.print(styled_text("  ", (part.verdict, MARKS[part.verdict]), said))
        for name, error in outcome.failures.items():
            console.print(f"  failed: {name}: {error}")
        console.print(f"  picture: {outcome.folder / 'figure.svg'}")


class TrainingBar(Bar):
    """Epoch, loss, accuracy, nc1 and time left."""

    def __init__(self, plan: "Plan"):
        text = text_column("epoch {task.fields[epoch]}/{task.fields[epochs]}")
        columns = (text, BarColumn(), text_column("{task.fields[state]}"), TimeElapsedColumn())
        quiet = os.environ.get("RANK", "0") != "0"
        super().__init__(*columns, quiet=quiet, epoch=0, epochs=plan.epochs, state="")
        self.shown = 0.0
        self.measurement = ""
        self.left = ""

    def step(self, progress: "Step") -> None:
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

    def finish(self, run: "Run") -> None:
        """Where the run is, what came out of it, and what one would do next; by the process that writes."""
        self.line(f"finished: {run.folder}")
        if self.console.quiet:
            return
        for split in ("train", "test"):
            rows = [row for row in run.history if row["split"] == split]
            if rows:
                last = {name: rows[-1][name] for name in HEADLINE if rows[-1].get(name) is not None}
                shown = (f"{name} {value:{'.4f' if name == 'accuracy' else '.3g'}}" for name, value in last.items())
                self.line(f"  {split}: {', '.join(shown)}")
        say_next(f"neuralcollapse report {quote(str(run.folder))} --out report.html")

    def line(self, text: str) -> None:
        """One line."""
        self.console.print(text, soft_wrap=True)
