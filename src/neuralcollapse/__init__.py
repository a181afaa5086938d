"""Measure neural collapse in any network, and solve and certify the models that explain it.

>>> import neuralcollapse as nc
>>> problem = nc.ufm.RegularizedUFM(nc.losses.CrossEntropy(), num_classes=4, per_class=5, dim=8,
...                                 weight_decay=0.01, feature_decay=0.01)
>>> round(problem.optimum().value, 6)
0.319722

Layers load when they are first used, so the import stays light.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.2.0"

_LAYERS = (
    "data",
    "frames",
    "integrations",
    "landscape",
    "losses",
    "metrics",
    "models",
    "studies",
    "training",
    "ufm",
    "web",
)
_FROM_WEB = ("explorer", "report")
_FROM_METRICS = (
    "ClassStatistics",
    "CollapseReport",
    "extract",
    "measure",
    "measure_files",
    "measure_model",
    "plot_history",
)

__all__ = [
    "ClassStatistics",
    "CollapseReport",
    "__version__",
    "data",
    "explorer",
    "extract",
    "frames",
    "integrations",
    "landscape",
    "losses",
    "measure",
    "measure_files",
    "measure_model",
    "metrics",
    "models",
    "plot_history",
    "report",
    "studies",
    "training",
    "ufm",
    "watch",
    "web",
]

if TYPE_CHECKING:
    from . import (
        data,
        frames,
        integrations,
        landscape,
        losses,
        metrics,
        models,
        studies,
        training,
        ufm,
        web,
    )
    from .metrics import ClassStatistics, CollapseReport, extract, measure, measure_files, measure_model, plot_history
    from .web import explorer, report, watch


def __getattr__(name: str):
    if name in _LAYERS:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _FROM_METRICS:
        return getattr(importlib.import_module(f"{__name__}.metrics"), name)
    if name == "watch":
        return importlib.import_module(f"{__name__}.web").watch
    if name in _FROM_WEB:
        return importlib.import_module(f"{__name__}.web.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
