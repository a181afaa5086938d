"""The view "Collapse" as one file that needs no server: for a lecture, the documentation, or a mail."""

import posixpath
import re
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from ... import __version__
from ..._support.files import write_text
from ..theme import style_sheet

__all__ = ["icon", "static_page", "write_static"]

ENTRY = "alone.js"

IMPORT = re.compile(r'^import (\{[^}]*\}) from "([\w./]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) (\w+|\$))", re.MULTILINE)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="neuralcollapse {version}">
<title>Watch a classifier collapse</title>
<link rel="icon" href="data:image/svg+xml,{icon}">
<style>
{style}
</style>
</head>
<body>
<main id="content">
<h1>Watch a classifier collapse</h1>
<div id="collapse-root"></div>
</main>
<footer><p>One file, no server, no network. For certificates, solvers and your own networks:
<code>neuralcollapse explore</code>.</p></footer>
<script>
"use strict";
{script}
</script>
</body>
</html>
"""


def icon() -> str:
    """The sign of all pages, as SVG."""
    return (resources.files("neuralcollapse.web.explorer") / "static" / "icon.svg").read_text(encoding="utf-8")


def static_page() -> str:
    """The page, its style and its modules in one text.

    A browser does not load modules from a disk, so each becomes a function that returns what it exports.
    """
    folder = resources.files("neuralcollapse.web.explorer") / "static"
    parts = ["const modules = {};"]
    done: set[str] = set()

    def add(name: str) -> None:
        """Write a module after those that it imports."""
        if name in done:
            return
        done.add(name)
        text = (folder / name).read_text(encoding="utf-8")
        found = {
            path: posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for _, path in IMPORT.findall(text)
        }
        for other in found.values():
            add(other)
        names = EXPORT.findall(text)
        text = IMPORT.sub(lambda one: f'const {one[1]} = modules["{found[one[2]]}"];', EXPORT.sub("", text))
        if re.search(r"^(import|export)\b", text, re.MULTILINE):
            raise ValueError(f"{name}: an import or export that cannot be put into one file")
        parts.append(f'modules["{name}"] = (() => {{\n{text}\nreturn {{ {", ".join(names)} }};\n}})();')

    add(ENTRY)
    script = "\n".join(parts).replace("</script", "<\\/script")
    style = style_sheet() + (folder / "style.css").read_text(encoding="utf-8")
    return PAGE.format(version=__version__, style=style, script=script, icon=quote(icon().strip()))


def write_static(path: str | Path) -> Path:
    """Write :func:`static_page` to ``path``, whole or not at all."""
    target = Path(path)
    write_text(target, static_page())
    return target
