"""What people see in a browser: one self-contained page from any results, and the local page to play with.

``web.report`` writes pages, ``web.explorer`` serves one, :func:`watch` streams a training run to it; ``web.network``
is what they show of a network.
"""

import importlib
from typing import TYPE_CHECKING

from .._support.public import explain

if TYPE_CHECKING:
    from . import explorer, network, report
    from .watcher import Watcher, open_page, watch

__all__ = ["Watcher", "explorer", "network", "open_page", "report", "watch"]


def __getattr__(name: str):
    if name in ("explorer", "network", "report"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in ("Watcher", "open_page", "watch"):
        return explain(getattr(importlib.import_module(f"{__name__}.watcher"), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
