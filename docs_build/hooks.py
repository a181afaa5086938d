"""What the documentation needs besides its texts: formulas, one API page a module, tutorials that are run, Collapse."""

import html
import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import tutorials

MODULES = {
    "frames": "Frames",
    "losses": "Losses",
    "metrics": "Metrics",
    "ufm": "Unconstrained feature models",
    "landscape": "Landscape",
    "models": "Models",
    "data": "Data",
    "training": "Training",
    "integrations": "Integrations",
    "studies": "Studies",
    "web": "Report and explorer",
}
MATHML = "http://www.w3.org/1998/Math/MathML"
BARS = ("|", "‖")
ROLE = re.compile(r":(?:func|class|meth|mod|data|attr|exc|obj|ref):<code>~?([^<]+)</code>")
NAMED = re.compile(r"&(?!(?:lt|gt|amp|quot|apos);)[A-Za-z]\w*;")
MATH = re.compile(r"<math\b.*?</math>", re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that are made, not written."""
    from neuralcollapse.web.explorer._static import icon, static_page

    for name, title in MODULES.items():
        files.append(File.generated(config, f"api/{name}.md", content=api_page(name, title)))
    for name in tutorials.ORDER:
        made = tutorials.render(tutorials.FOLDER / f"{name}.py")
        files.append(File.generated(config, f"tutorials/{name}.md", content=made.text))
        for picture, content in made.pictures.items():
            files.append(File.generated(config, f"tutorials/{picture}", content=content))
    changes = (Path(__file__).parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "changelog.md", content=changes))
    files.append(File.generated(config, "collapse.html", content=static_page()))
    files.append(File.generated(config, "assets/math.ttf", content=math_font()))
    files.append(File.generated(config, "assets/icon.svg", content=icon()))
    return files


def math_font() -> bytes:
    """The font of formulas that ``ziamath`` brings along; the package itself is not needed."""
    spec = importlib.util.find_spec("ziamath")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the documentation needs ziamath, for its font")
    return (Path(spec.submodule_search_locations[0]) / "fonts" / "STIXTwoMath-Regular.ttf").read_bytes()


def api_page(name: str, title: str) -> str:
    """Every public name of a layer, in its own order; then those of the modules that are public in it."""
    parts = [f"# {title}", *_members(f"neuralcollapse.{name}", root=False)]
    module = importlib.import_module(f"neuralcollapse.{name}")
    for entry in module.__all__:
        if inspect.ismodule(getattr(module, entry)):
            parts += _members(f"neuralcollapse.{name}.{entry}", root=True)
    return "\n".join(parts) + "\n"


def _members(path: str, *, root: bool) -> list[str]:
    """A module's own words and its public names.

    A name that a file of the module has as well (``measure`` in ``measure.py``) is asked for where it is written: by
    the shorter path, the page's maker finds the file. A class of declared fields is shown with those of its base.
    """
    module = importlib.import_module(path)
    names = [entry for entry in module.__all__ if not inspect.ismodule(getattr(module, entry))]
    hidden = [entry for entry in names if importlib.util.find_spec(f"{path}.{entry}") is not None]
    parts = [f"::: {path}", "    options:", f"      show_root_heading: {str(root).lower()}", "      heading_level: 2"]
    declared = [entry for entry in names if hasattr(getattr(module, entry), "model_fields")]
    shown = [entry for entry in names if entry not in hidden + declared]
    parts += ["      members:", *(f"        - {entry}" for entry in shown)] if shown else ["      members: false"]
    for entry in hidden + declared:
        # An empty line, lest the entry before goes on.
        place = f"{path}.{entry}.{entry}" if entry in hidden else f"{path}.{entry}"
        parts += ["", f"::: {place}", "    options:", f"      heading_level: {3 if root else 2}"]
        parts += ["      inherited_members: true"] if entry in declared else []
    return [*parts, ""]


def on_page_content(content: str, **_: Any) -> str:
    """Roles of other documentation tools become plain code, and formulas what browsers draw well."""
    return MATH.sub(lambda found: formula(found.group()), ROLE.sub(r"<code>\1</code>", content))


def formula(text: str) -> str:
    """MathML in which bars hold their exponents and bold letters are letters of their own.

    Browsers ignore ``mathvariant`` on all but single letters, and a power of ``|W|`` is written as one of its last bar.
    """
    # Numbers of characters and the five names of XML may stay; other names are HTML's own.
    root = ElementTree.fromstring(NAMED.sub(lambda found: html.unescape(found.group()), text))
    for element in root.iter():
        if element.attrib.pop("mathvariant", None) == "bold" and element.text:
            element.text = "".join(map(bold, element.text))
    for row in list(root.iter()):
        gather_bars(row)
    ElementTree.register_namespace("", MATHML)
    return ElementTree.tostring(root, encoding="unicode")


def gather_bars(row: ElementTree.Element) -> None:
    """``| W |^2`` as a power of the whole ``|W|``."""
    place = 0
    while place < len(row):
        script = row[place]
        if script.tag.removeprefix(f"{{{MATHML}}}") in ("msup", "msub", "msubsup") and len(script) and bar(script[0]):
            sign = bar(script[0])
            opening = next((i for i in range(place - 1, -1, -1) if bar(row[i]) == sign), None)
            if opening is not None:
                inside = ElementTree.Element(f"{{{MATHML}}}mrow")
                inside.extend([*row[opening:place], script[0]])
                script[0] = inside
                del row[opening:place]
                place = opening
        place += 1


def bar(element: ElementTree.Element) -> str | None:
    """The bar that an operator is, if it is one."""
    return element.text if element.tag.endswith("}mo") and element.text in BARS else None


def bold(letter: str) -> str:
    """The bold letter or digit of the mathematical alphabet."""
    for first, start in (("A", 0x1D400), ("a", 0x1D41A), ("0", 0x1D7CE)):
        offset = ord(letter) - ord(first)
        if 0 <= offset < (10 if first == "0" else 26):
            return chr(start + offset)
    return letter
