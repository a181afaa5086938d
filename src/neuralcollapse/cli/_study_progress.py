"""How a run of studies shows itself: a bar on a terminal, plain lines elsewhere, both on stderr; verdicts on stdout."""

import time

from rich.progress import BarColumn, TimeElapsedColumn

from ..studies import Outcome, Status
from ._progress import Bar, clock
from ._terminal import styled, terminal, text_column

__all__ = ["Display"]

LINE_SECONDS = 30.0
MARKS = {"holds": "green", "contradicted": "red", "underpowered": "yellow"}


class Display(Bar):
    """Cells done, and the time left."""

    def __init__(self) -> None:
        text, left = text_column("cells {task.fields[text]}"), text_column("{task.fields[left]}")
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
            self.console.print(f"a cell failed: {status.failure}", soft_wrap=True)
        if status.note is not None:
            self.console.print(status.note, soft_wrap=True)
        due = now - self.last_line >= LINE_SECONDS or status.done == status.cells
        if self.bar.disable and status.done != self.seen and due:
            self.last_line, self.seen = now, status.done
            self.console.print(f"cells {text}{', ' + left if left else ''}")

    def outcome(self, outcome: Outcome) -> None:
        """Called with each study's verdict."""
        console = terminal(soft_wrap=True)
        verdict = (outcome.verdict, MARKS[outcome.verdict])
        console.print(styled((outcome.study.name, "bold"), f" ({outcome.profile}): ", verdict))
        for part in outcome.parts:
            ours = " (ours)" if part.kind == "ours" else ""
            console.print(styled("  ", (part.verdict, MARKS[part.verdict]), f"{ours}: {part.says} {part.why}".rstrip()))
        for name, error in outcome.failures.items():
            console.print(f"  failed: {name}: {error}")
        console.print(f"  picture: {outcome.folder / 'figure.svg'}")
