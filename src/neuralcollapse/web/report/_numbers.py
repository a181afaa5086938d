"""Numbers and durations as people read them."""

from ..._support.theme import NOTHING, number

__all__ = ["duration", "heading", "is_number", "shown"]

LONG = 12
"""Entries of a list that are written out."""


def is_number(value: object) -> bool:
    """Whether ``value`` belongs into a column of numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: object, name: str = "") -> str:
    """``value`` with four significant digits; as a percentage where ``name`` says that it is an accuracy.

    >>> shown(0.98333, "test_accuracy"), shown(1.25e-7), shown(12345), shown(None), shown(0.5)
    ('98.33 %', '1.25×10⁻⁷', '12,345', '–', '0.5')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and name.endswith("accuracy") and 0 <= value <= 1:
        return f"{100 * value:.2f} %"
    if value is None or isinstance(value, int | float):
        return number(value)
    if isinstance(value, list | tuple):
        written = ", ".join(shown(entry) for entry in value[:LONG])
        return written + (f", … ({len(value)} in all)" if len(value) > LONG else "")
    if isinstance(value, dict):
        return ", ".join(f"{key} = {shown(entry)}" for key, entry in value.items())
    return str(value)


def heading(name: str) -> str:
    """A column's name as words."""
    return name.replace("_", " ")


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours."""
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
