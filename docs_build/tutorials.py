"""Tutorials: Python scripts with text in comments, run when the documentation is built, with what they print and draw.

A script is cut at ``# %%``. A cell that begins ``# %% [markdown]`` is text, all others are code. After a code cell
come its output and the pictures it made: every new matplotlib figure, and every new path to an SVG file.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "tutorials"
ORDER = ("measure_my_net", "training_watched", "solve_and_certify", "imbalance", "codes", "check_a_claim")
MARK = re.compile(r"^# %%(.*)$", re.MULTILINE)


@dataclass
class Tutorial:
    """A page and the pictures beside it, by file name."""

    text: str = ""
    pictures: dict[str, str] = field(default_factory=dict)


def cells(source: str) -> list[tuple[bool, str]]:
    """The cells of a script: whether it is text, and the text or code."""
    _, *parts = MARK.split(source)
    found = []
    for kind, body in zip(parts[::2], parts[1::2], strict=True):
        is_text = kind.strip() == "[markdown]"
        if is_text:
            body = "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines())
        found.append((is_text, body.strip()))
    return found


def render(path: Path) -> Tutorial:
    """Run a script cell by cell in an empty folder, and write down what happens."""
    page, space, seen = Tutorial(), {"__name__": "__main__"}, set()
    place, before = os.getcwd(), sys.stdout
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for is_text, body in cells(path.read_text(encoding="utf-8")):
                if is_text:
                    page.text += f"{body}\n\n"
                    continue
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(body, path.name, "exec"), space)
                page.text += f"```python\n{body}\n```\n\n"
                if printed.getvalue():
                    page.text += f"```{{.text .output}}\n{printed.getvalue().rstrip()}\n```\n\n"
                for drawing in new_pictures(space, seen):
                    name = f"{path.stem}-{len(page.pictures) + 1}.svg"
                    page.pictures[name] = drawing
                    page.text += f"![What the cell above draws]({name})\n\n"
        finally:
            os.chdir(place)
            sys.stdout = before
    page.text += f"*This page is the script [`{path.name}`]({path.name}), run when the documentation was built.*\n"
    return page


def new_pictures(space: dict[str, Any], seen: set[int]) -> list[str]:
    """SVG text of what has been drawn since the last cell."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    found = []
    for value in list(space.values()):
        drawn = isinstance(value, Figure) or (isinstance(value, Path) and value.suffix == ".svg")
        if not drawn or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Path):
            found.append(value.read_text(encoding="utf-8"))
            continue
        text = io.StringIO()
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "neuralcollapse"}):
            value.savefig(text, format="svg", metadata={"Date": None})
        found.append(text.getvalue())
    return found
