"""How a run of studies shows itself: a bar on a terminal, plain lines elsewhere, both on stderr; verdicts on stdout."""

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from ..studies import Outcome, Status
from ._progress import Bar, clock

__all__ = ["Display"]

LINE_SECONDS = 30.0
MARKS = {"holds": "green", "contradicted": "red", "underpowered": "yellow"}


class Display(Bar):
    """Cells done, and the time left."""

    def __init__(self) -> None:
        text, left = TextColumn("cells {task.fields[text]}"), TextColumn("{task.fields[left]}")
        super().__init__(text, BarColumn(), left, TimeElapsedColumn(), text="", left="")
        self.last_line = 0.0
        self.seen = -1

    def status(self, status: Status) -> None:
        """Called whenever something has happened, and twice a second otherwise."""
        now = time.monotonic()
        left = "" if status.seconds_left is None else f"{clock(status.seconds_left)} left"
        text = f"{status.done}/{status.cells}"
        self.bar.update(self.task, completed=status.fraction, text=text, left=left)
        if status.failure is not None:
            self.console.print(f"a cell failed: {status.failure}", markup=False, highlight=False, soft_wrap=True)
        if status.note is not None:
            self.console.print(status.note, markup=False, highlight=False, soft_wrap=True)
        due = now - self.last_line >= LINE_SECONDS or status.done == status.cells
        if self.bar.disable and status.done != self.seen and due:
            self.last_line, self.seen = now, status.done
            self.console.print(f"cells {text}{', ' + left if left else ''}", highlight=False)

    def outcome(self, outcome: Outcome) -> None:
        """Called with each study's verdict."""
        console = Console(highlight=False, soft_wrap=True)
        style = MARKS[outcome.verdict]
        console.print(f"[bold]{outcome.study.name}[/bold] ({outcome.profile}): [{style}]{outcome.verdict}[/{style}]")
        for part in outcome.parts:
            ours = " (ours)" if part.kind == "ours" else ""
            console.print(f"  [{MARKS[part.verdict]}]{part.verdict}[/]{ours}: {escape(part.says)} {escape(part.why)}")
        for name, error in outcome.failures.items():
            console.print(f"  failed: {escape(name)}: {escape(error)}")
        console.print(f"  picture: {outcome.folder / 'figure.svg'}", markup=False)
