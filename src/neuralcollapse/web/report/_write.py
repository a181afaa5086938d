"""From sections to one file of HTML."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ... import __version__
from ..._support.files import locked, write_text
from ..theme import style_sheet
from ._find import sections
from ._numbers import duration
from ._parts import Section

__all__ = ["page_file", "render", "write"]

PAGE = Path(__file__).parent / "page"


def write(folders: str | Path | Iterable[str | Path], out: str | Path = "report.html") -> Path:
    """Write one page about all results in ``folders`` to the file ``out``, atomically, and return its path.

    A folder is the ``--out`` of ``study run``, one study in it, a run directory of ``train``, the ``--out`` folder of
    ``solve``, or one that holds several of these. ValueError names a folder without results, or a file that cannot be
    read. The page is self-contained: pictures and, where there are interactive ones, plotly.js are in it.
    """
    given = [folders] if isinstance(folders, str | Path) else list(folders)
    if not given:
        raise ValueError("folders: name at least one folder of results")
    target = Path(out)
    if target.is_dir():
        raise ValueError(f"{target}: is a folder; name a file such as {target / 'report.html'}")
    with locked(target.parent, f".{target.name}.lock"):
        return _write_report(given, target)


def _write_report(given: Sequence[str | Path], target: Path) -> Path:
    found = sections(given)
    live = any(picture.charts for section in found for picture in section.pictures)
    values = {"title": "Neural collapse: results", "sections": found, "counts": _counts(found)}
    verdicts = list(dict.fromkeys(section.badge for section in found))
    text = render("report.html.jinja", live, **values, verdicts=verdicts, contents_script=page_file("contents.js"))
    write_text(target, text)
    return target


def render(template: str, live: bool, **values: Any) -> str:
    """A template of the page with ``values``; ``live``: it has charts, so plotly.js and our script go in."""
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"embedded": _embedded, "duration": duration}
    return environment.get_template(template).render(
        version=__version__,
        style=Markup(style_sheet()) + page_file("style.css"),
        script=page_file("charts.js") if live else "",
        plotly=Markup(get_plotlyjs()) if live else "",
        **values,
    )


def page_file(name: str) -> Markup:
    """A file of ours, which may stand in the page as it is."""
    return Markup((PAGE / name).read_text(encoding="utf-8"))


def _embedded(value: Mapping[str, Any] | Sequence[Any]) -> Markup:
    """JSON for a script element: what is in it cannot end the element or begin a comment."""
    return Markup(json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def _counts(found: Sequence[Section]) -> str:
    """How many results of which kind, and how they ended."""
    parts = []
    plural = {"study": "studies", "run": "training runs", "solve": "solves"}
    single = {"study": "study", "run": "training run", "solve": "solve"}
    for kind in plural:
        words = Counter(section.badge.word for section in found if section.kind == kind)
        total = sum(words.values())
        if total:
            named = f"{total} {single[kind] if total == 1 else plural[kind]}"
            ends = ", ".join(f"{word}: {count}" for word, count in words.items())
            parts.append(f"{named} ({ends})")
    smoke = " Smoke runs show that a path works; they decide nothing." if any(one.smoke for one in found) else ""
    return "; ".join(parts) + "." + smoke
