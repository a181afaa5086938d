"""What was measured of features as one page: a picture and every metric, layer by layer if there are several."""

import io
from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup
from matplotlib import rc_context

from ..._support.checks import describe
from ..._support.files import write_text
from ...metrics import CollapseReport
from ..theme import style_sheet
from ._svg import inline_svg

__all__ = ["write_measured"]

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Neural collapse</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
{style}
body {{
  font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
  color: var(--ink); background: var(--page);
}}
.picture {{ overflow-x: auto; background: var(--card); }}
.picture svg {{ max-width: 100%; height: auto; }}
.table {{ overflow-x: auto; }}
table {{ border-collapse: collapse; }}
td, th {{ border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: left; }}
td:nth-child(3), td:nth-child(4) {{ text-align: right; white-space: nowrap; }}
</style></head><body>
{body}
</body></html>
"""


def write_measured(reports: Mapping[str, CollapseReport], out: str | Path) -> Path:
    """Write reports, under their names, to one self-contained page, atomically, and return its path.

    ``{"": report}`` is a page of one report without a heading.
    """
    if not isinstance(reports, Mapping) or not all(isinstance(one, CollapseReport) for one in reports.values()):
        raise TypeError(f"reports must be reports by name, got {describe(reports)}")
    if not isinstance(out, str | Path):
        raise TypeError(f"out must be the path of a file, got {describe(out)}")
    parts = []
    for number, (name, report) in enumerate(reports.items()):
        if name:
            parts.append(Markup("<h2>{}</h2>").format(str(name)))
        parts.append(Markup('<div class="picture">{}</div>').format(_drawing(report, f"m{number}", name)))
        parts.append(Markup('<div class="table">{}</div>').format(Markup(report._repr_html_())))
    write_text(out, PAGE.format(style=style_sheet(), body=Markup("\n").join(parts)))
    return Path(out)


def _drawing(report: CollapseReport, prefix: str, name: str) -> Markup:
    content = io.StringIO()
    with rc_context({"svg.hashsalt": "neuralcollapse"}):  # the same page whenever it is written
        report.plot().savefig(content, format="svg", metadata={"Date": None})
    label = f"Neural collapse of {name or 'the features'}: {report.sizes}"
    return inline_svg(content.getvalue(), prefix, label)
