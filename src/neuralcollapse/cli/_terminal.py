"""The one way to the terminal: text is shown as it is, never read as markup or emoji."""

from rich.console import Console
from rich.progress import TextColumn
from rich.text import Text

__all__ = ["say_next", "styled", "terminal", "text_column"]


def terminal(*, stderr: bool = False, quiet: bool = False, soft_wrap: bool = False) -> Console:
    """A console on stdout (or stderr) that prints names such as ``x[/run]`` or ``:warning:`` letter by letter.

    ``soft_wrap`` leaves the wrapping of long lines to the terminal, so that paths can be copied.
    """
    return Console(stderr=stderr, quiet=quiet, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Text from plain parts and (text, style) pairs: what markup would say, without reading it out of the text."""
    return Text.assemble(*parts)


def say_next(*commands: str) -> None:
    """What one would do next, a command a line; on stderr, so that what is piped on stays clean."""
    console = terminal(stderr=True, soft_wrap=True)
    for number, command in enumerate(commands):
        console.print(Text(f"{'      ' if number else 'next: '}{command}", style="dim"))


def text_column(template: str) -> TextColumn:
    """A column of a progress bar whose fields are shown as they are."""
    return TextColumn(template, markup=False)
