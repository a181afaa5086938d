"""The look of all pages: colours of paper and ink in the light and in the dark, and those of losses and classes.

Pages take every colour from here as a variable of their style sheets: :func:`style_sheet` writes them, and nothing else
in ``web`` names a colour. What pictures of lower layers share with it is in ``neuralcollapse._support.theme``.
"""

from .._support.theme import CLASSES, LOSSES, SERIES, number

__all__ = ["DARK", "DARK_OF", "LIGHT", "number", "style_sheet"]

LIGHT = {
    "page": "#f6f7f9",
    "card": "#ffffff",
    "ink": "#1c2430",
    "soft": "#5a6675",
    "line": "#dde2e9",
    "grid": "#e9ecf1",
    "accent": "#1f62b8",
    "accent-ink": "#ffffff",
    "tint": "#eaf1fb",
    "warn": "#fff4e0",
    "warn-line": "#e0a030",
    "good": "#0a7550",
    "good-ground": "#e2f3ec",
    "bad": "#b3401f",
    "bad-ground": "#fdeadd",
    "open": "#7a6a10",
    "open-ground": "#f3f0e0",
    "low": "#2166ac",
    "middle": "#f7f7f7",
    "high": "#b2182b",
}
DARK = {
    "page": "#14181e",
    "card": "#1c222b",
    "ink": "#e6eaf0",
    "soft": "#9aa6b5",
    "line": "#323b47",
    "grid": "#2b333e",
    "accent": "#7db2f5",
    "accent-ink": "#10161e",
    "tint": "#24303f",
    "warn": "#33290f",
    "warn-line": "#c28a2a",
    "good": "#4fc79a",
    "good-ground": "#15382c",
    "bad": "#f0906a",
    "bad-ground": "#46220f",
    "open": "#d8c76a",
    "open-ground": "#35301a",
    "low": "#5b9bd8",
    "middle": "#262d37",
    "high": "#e0685e",
}
DARK_OF = {
    "#0072B2": "#5aaee8",
    "#D55E00": "#f28e4e",
    "#009E73": "#3cc79c",
    "#E69F00": "#f0b840",
    "#CC79A7": "#e39ac4",
    "#56B4E9": "#8fd0f5",
    "#000000": "#e6eaf0",
    "#F0E442": "#e6dc6a",
    "#666666": "#9aa6b5",
    "#4b2e9e": "#a48bf0",
    "#c4566a": "#f08c9c",
    "#2a8c8c": "#5fcaca",
    "#8f8a1f": "#d6d05a",
    "#882255": "#e07ab0",
    "#5f93c4": "#9cc9f0",
    "#a044a8": "#d98be0",
    "#7a5c3a": "#c9a683",
    "#2f6b3c": "#7fc98f",
    "#777777": "#b0b0b0",
}
"""What a colour of the palettes becomes on a dark page."""


def _palettes() -> dict[str, str]:
    """Variables of series (``c0`` ...), classes (``k0`` ...) and losses (``l-cross-entropy`` ...)."""
    found = {f"c{place}": colour for place, colour in enumerate(SERIES)}
    found |= {f"k{place}": colour for place, colour in enumerate(CLASSES)}
    return found | {f"l-{name}": look.colour for name, look in LOSSES.items()}


def style_sheet() -> str:
    """``:root { --page: ...; }`` for light and dark; the colours of pictures (``--p-0072b2``) for the dark alone."""
    palettes = _palettes()
    # On white, yellow is no line; the page's eighth series is a darker one.
    light = LIGHT | palettes | {"c6": "#6b7280", "c7": "#8a7a00", "c3": "#c98a00", "l-label-smoothing": "#c98a00"}
    dark = DARK | {name: DARK_OF[colour] for name, colour in palettes.items()} | {"c6": "#aab4c0"}
    dark |= {f"p-{colour[1:].lower()}": other for colour, other in DARK_OF.items()}
    dark |= {"p-ffffff": DARK["card"], "p-e4e4e4": DARK["grid"]}
    return (
        f":root {{ color-scheme: light dark; {_variables(light)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(dark)} }} }}\n"
    )


def _variables(values: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in values.items())
