"""A picture's SVG file as a part of the page: safe, with ids of its own, as wide as there is room."""

import re
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup, escape

from ..._support.theme import BLACK, GRID
from ..theme import DARK_OF, LIGHT

__all__ = ["inline_svg", "read_svg"]

NAMESPACE = "{http://www.w3.org/2000/svg}"
SHAPES = {"path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "image", "text", "tspan", "use"}
GROUPS = {"g", "defs", "clipPath", "linearGradient", "radialGradient", "stop", "pattern", "mask", "symbol", "marker"}
DRAWING = SHAPES | GROUPS | {"svg"}
"""Elements that are kept; scripts, styles (they would apply to the whole page) and metadata are not."""
REFERENCE = re.compile(r"url\(\s*['\"]?#([^'\")]+)['\"]?\s*\)")
COLOUR = re.compile(r"(fill|stroke): (#[0-9a-f]{6})\b")
PICTURE_COLOURS = {colour.lower() for colour in DARK_OF} | {GRID}
SCALE = 1.45
"""Pictures are drawn for a column of a paper; a screen shows them larger."""
LEAST = 0.9
"""Below this part of its own size the text of a picture is hard to read: a phone scrolls wide ones in their box."""


def read_svg(path: Path) -> str:
    """The text of an SVG file; ValueError names a file that is missing or is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"{path}: missing; run it again to draw the picture") from None
    except ValueError as error:
        raise ValueError(f"{path}: not an SVG picture ({error})") from None


def inline_svg(text: str, prefix: str, label: str, source: object = "picture") -> Markup:
    """The drawing in ``text``, ids and references beginning with ``prefix``, with ``label`` as its description.

    Pictures of one program share their ids (matplotlib's glyphs above all); in one page the first would win.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"{source}: not an SVG picture ({error})") from None
    if root.tag != f"{NAMESPACE}svg":
        raise ValueError(f"{source}: not an SVG picture (its root is {root.tag})")
    used = _references(root)
    box = root.get("viewBox", "")
    sizes = box.replace(",", " ").split()
    try:
        width = float(sizes[2])
    except (IndexError, ValueError):
        raise ValueError(f"{source}: not an SVG picture with a viewBox") from None
    body = "".join(_kept_element(child, prefix, used) for child in root)
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{escape(box)}" role="img" aria-label="{escape(label)}" '
        f'fill="currentColor" '
        f'style="width:{SCALE * width:.0f}pt;--least:{LEAST * width:.0f}pt"><g id="{prefix}-drawing">{body}</g></svg>'
    )


def _references(root: ElementTree.Element) -> set[str]:
    used: set[str] = set()
    for element in root.iter():
        for name, value in element.attrib.items():
            if _without_namespace(name) == "href" and value.startswith("#"):
                used.add(value[1:])
            used.update(REFERENCE.findall(value))
    return used


def _kept_element(element: ElementTree.Element, prefix: str, used: set[str]) -> str:
    if not isinstance(element.tag, str) or not element.tag.startswith(NAMESPACE):
        return ""
    tag = element.tag.removeprefix(NAMESPACE)
    if tag not in DRAWING:
        return ""
    given = {name: _dressed(value, tag) if name == "style" else value for name, value in element.attrib.items()}
    attributes = "".join(_kept_attribute(name, value, prefix, used) for name, value in given.items())
    inner = "".join(_kept_element(child, prefix, used) + str(escape(_text_or_nothing(child.tail))) for child in element)
    return f"<{tag}{attributes}>{escape(_text_or_nothing(element.text))}{inner}</{tag}>"


def _kept_attribute(name: str, value: str, prefix: str, used: set[str]) -> str:
    plain = _without_namespace(name)
    if plain.lower().startswith("on"):
        return ""
    if plain == "id":
        if value not in used:
            return ""
        value = f"{prefix}-{value}"
    elif plain == "href":
        if value.startswith("#"):
            value = f"#{prefix}-{value[1:]}"
        elif not value.startswith("data:image/"):
            return ""
    else:
        value = REFERENCE.sub(rf"url(#{prefix}-\1)", value)
        if "url(" in value.replace(f"url(#{prefix}-", ""):
            return ""
    return f' {plain}="{escape(" ".join(value.split()))}"'


def _dressed(style: str, tag: str) -> str:
    """The style with the palette's colours, ink and paper as variables, so that a dark page shows a dark picture.

    White letters stay white: they stand on dark cells.
    """

    def variable(match: re.Match[str]) -> str:
        colour = match[2]
        paper = colour == LIGHT["card"] and tag in ("path", "rect")
        if colour == BLACK:
            return f"{match[1]}: currentColor"
        return f"{match[1]}: var(--p-{colour[1:]}, {colour})" if paper or colour in PICTURE_COLOURS else match[0]

    return COLOUR.sub(variable, style)


def _without_namespace(name: str) -> str:
    return name.rpartition("}")[2]


def _text_or_nothing(text: str | None) -> str:
    return text if text and text.strip() else ""
