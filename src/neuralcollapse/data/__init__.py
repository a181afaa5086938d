"""Readers of public data sets: one call, exact subsets, normalisation from the training set only.

>>> import neuralcollapse as nc
>>> data = nc.data.load("digits", per_class=50, validation=0.1)
>>> len(data.train), len(data.validation), len(data.test)
(450, 50, 297)
"""

from .._support.public import explain_calls
from .._support.renamed import warn_renamed
from ._check import CheckReport, FileReport, check
from ._download import get
from ._errors import DataError
from ._load import DataSet, RandomLabels, load, root_folder
from ._sources import Source, sources
from ._split import Loader, Normalisation, Split
from .augmentation import CropFlip
from .imbalance import imbalanced_subset, imbalances
from .subsets import balanced_subset, hold_out, random_labels

__all__ = [
    "CheckReport",
    "CropFlip",
    "DataError",
    "DataSet",
    "FileReport",
    "Loader",
    "Normalisation",
    "RandomLabels",
    "Source",
    "Split",
    "balanced_subset",
    "check",
    "get",
    "hold_out",
    "imbalanced_subset",
    "imbalances",
    "load",
    "random_labels",
    "root_folder",
    "sources",
]


def __getattr__(name: str) -> object:
    """``profiles`` is what ``imbalances`` was called up to 0.1."""
    if name == "profiles":
        warn_renamed("nc.data.profiles", "nc.data.imbalances")
        return imbalances
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


explain_calls(__name__)
