"""The one way to the terminal: text is shown as it is, never read as markup or emoji; tables have the columns that fit.

In a pipe a table has all its columns, separated by tabs.
"""

import sys
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.progress import TextColumn
from rich.text import Text

from ..._support.theme import look_of

__all__ = [
    "at_a_word",
    "fitting",
    "loss_text",
    "print_table",
    "say_next",
    "styled_text",
    "terminal",
    "text_column",
    "write_tabs",
]


def terminal(*, stderr: bool = False, quiet: bool = False, soft_wrap: bool = False) -> Console:
    """A console on stdout (or stderr) that prints names such as ``x[/run]`` or ``:warning:`` letter by letter.

    ``soft_wrap`` leaves the wrapping of long lines to the terminal, so that paths can be copied.
    """
    return Console(stderr=stderr, quiet=quiet, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)


def styled_text(*parts: str | tuple[str, str]) -> Text:
    """Text from plain parts and (text, style) pairs: what markup would say, without reading it out of the text."""
    return Text.assemble(*parts)


def loss_text(spec: str) -> Text:
    """The name of a loss in the colour that it has in every picture; of anything else, plain.

    Rich leaves the colour out in a pipe and under ``NO_COLOR``, and takes the nearest one that a terminal has.
    """
    look = look_of(spec)
    return Text(spec, style=look.colour if look else "")


def say_next(*commands: str) -> None:
    """What one would do next, a command a line; on stderr, so that what is piped on stays clean."""
    console = terminal(stderr=True, soft_wrap=True)
    for number, command in enumerate(commands):
        console.print(Text(f"{'      ' if number else 'next: '}{command}", style="dim"))


def text_column(template: str) -> TextColumn:
    """A column of a progress bar whose fields are shown as they are."""
    return TextColumn(template, markup=False)


BETWEEN = 3
"""Columns that a border and the room beside a cell take."""
LOSS = "loss"
"""The column whose cells have the colours of losses, where they name one."""


def at_a_word(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns: cut behind a word, with a sign that there is more."""
    if cell_len(text) <= width:
        return text
    kept = ""
    for word in text.split(" "):
        longer = f"{kept} {word}" if kept else word
        if cell_len(longer) > width - 2:
            break
        kept = longer
    return f"{kept} …" if kept else text[:width]


def write_tabs(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A header and a line a row; tabs and line ends inside a cell become spaces."""
    for row in (columns, *rows):
        sys.stdout.write("\t".join(" ".join(cell.split()) for cell in row) + "\n")


def fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Places of the columns that fit beside one another, in their order; the first is always there."""
    chosen, used = [], 1
    for place, name in enumerate(columns):
        wide = max([cell_len(name), *(cell_len(row[place]) for row in rows)]) + BETWEEN
        if used + wide <= width or not chosen:
            chosen.append(place)
            used += wide
    return chosen


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], console: Console | None = None) -> list[str]:
    """Show a table and return the names of the columns that there was no room for."""
    from rich.table import Table

    screen = console or terminal()
    chosen = fitting(columns, rows, screen.width)
    table = Table()
    for place in chosen:
        table.add_column(Text(columns[place]), overflow="fold")
    for row in rows:
        table.add_row(*(loss_text(row[n]) if columns[n] == LOSS else Text(row[n]) for n in chosen))
    screen.print(table)
    return [name for place, name in enumerate(columns) if place not in chosen]
