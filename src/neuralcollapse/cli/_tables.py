"""Tables: on a terminal the columns that fit, whole words; in a pipe all of them, separated by tabs."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from ._terminal import terminal

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["at_a_word", "fitting", "print_table", "write_tabs"]

BETWEEN = 3
"""Columns that a border and the room beside a cell take."""


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


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], console: "Console | None" = None) -> list[str]:
    """Show a table and return the names of the columns that there was no room for."""
    from rich.table import Table
    from rich.text import Text

    screen = console or terminal()
    chosen = fitting(columns, rows, screen.width)
    table = Table()
    for place in chosen:
        table.add_column(Text(columns[place]), overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[place]) for place in chosen))
    screen.print(table)
    return [name for place, name in enumerate(columns) if place not in chosen]
