"""Neural collapse while training: Lightning and Transformers callbacks, a function for any loop, loggers.

Each adapter's library is imported when the adapter is first asked for, not before.
"""

import importlib
from typing import TYPE_CHECKING

from .loggers import CSVLogger, JSONLinesLogger, Logger, TensorBoardLogger
from .loop import record_collapse

if TYPE_CHECKING:
    from .lightning import LightningCollapse
    from .transformers import TransformersCollapse

__all__ = [
    "CSVLogger",
    "JSONLinesLogger",
    "LightningCollapse",
    "Logger",
    "TensorBoardLogger",
    "TransformersCollapse",
    "record_collapse",
]

_LAZY = {"LightningCollapse": "lightning", "TransformersCollapse": "transformers"}


def __getattr__(name: str):
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
