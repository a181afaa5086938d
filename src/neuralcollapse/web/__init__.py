"""What people see in a browser: one self-contained page from any results, and the local page to play with.

``web.report`` writes pages, ``web.explorer`` serves one; ``web.theme`` is what both share: colours, number formats.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import explorer, report

__all__ = ["explorer", "report"]


def __getattr__(name: str):
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
