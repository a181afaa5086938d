"""What a page is made of: sections with pictures, tables and folded details, all plain text until the template."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from ._numbers import heading, is_number, shown

__all__ = ["Badge", "Chart", "Details", "Key", "Picture", "Section", "Table", "table_of"]


THUMBNAIL = re.compile(r'viewBox="([^"]*)".*?<g id="([^"]*-drawing)">', re.DOTALL)


@dataclass(frozen=True)
class Badge:
    """A verdict: a word with a sign, so that colour is not needed to read it."""

    word: str
    tone: str
    """good, bad or open."""

    @property
    def sign(self) -> str:
        """Read with any colour vision."""
        return {"good": "✓", "bad": "✗", "open": "?"}[self.tone]


@dataclass(frozen=True)
class Chart:
    """An interactive chart: a plotly figure as JSON."""

    figure: Mapping[str, Any]
    label: str
    """What it shows, for those who do not see it."""
    own: bool = True
    """Whether it takes the page's colours (ours) or stays on white paper (a study's)."""

    @property
    def height(self) -> int:
        """In CSS pixels, known before it is drawn so that nothing moves."""
        given = self.figure["layout"].get("height")
        return int(given) if is_number(given) else 460

    @property
    def solid(self) -> bool:
        """Whether it needs WebGL."""
        return any("3d" in str(trace.get("type")) or trace.get("type") == "surface" for trace in self.figure["data"])


@dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    name: str
    colour: str
    dash: str


@dataclass(frozen=True)
class Picture:
    """The static drawing, which print and browsers without scripts show, and charts that stand for it elsewhere."""

    drawing: Markup
    charts: Sequence[Chart] = ()
    caption: str = ""
    legend: Sequence[Key] = ()
    """Of the charts, which have none of their own: beside them it would leave a phone no room."""

    @property
    def thumbnail(self) -> Markup:
        """The drawing again, small: it refers to the one on the page."""
        found = THUMBNAIL.search(self.drawing)
        if found is None:
            return Markup()
        box, name = found.groups()
        return Markup(
            f'<svg class="thumbnail" viewBox="{box}" fill="currentColor" aria-hidden="true"><use href="#{name}"/></svg>'
        )


@dataclass(frozen=True)
class Table:
    """Headings, rows of text, and which columns hold numbers."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[bool]


@dataclass(frozen=True)
class Details:
    """Something folded away."""

    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    table: Table | None = None


@dataclass(frozen=True)
class Section:
    """A study, a run or a solve."""

    anchor: str
    title: str
    kind: str
    source: str
    """Paper and figure of a study; what was run otherwise."""
    lead: str
    badge: Badge
    merit: str
    """The number that decides, or sums up."""
    merit_is: str
    seconds: float | None
    facts: Mapping[str, str]
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    details: Sequence[Details] = ()
    command: str = ""
    smoke: bool = False
    """Whether it shows only that the path works."""


def table_of(caption: str, rows: Iterable[Mapping[str, Any]]) -> Table | None:
    """A table of rows by column name; None without rows. Columns appear in the order in which they first come."""
    entries = list(rows)
    names = list(dict.fromkeys(name for row in entries for name in row))
    if not names:
        return None
    numeric = [all(is_number(row[n]) for row in entries if row.get(n) is not None) for n in names]
    cells = [[shown(row.get(name), name) for name in names] for row in entries]
    return Table(caption, [heading(name) for name in names], cells, numeric)
