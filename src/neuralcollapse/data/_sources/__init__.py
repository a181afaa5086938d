"""The data sets, one file each; a new file in this folder is a new data set, found by its name."""

from ..._support.registry import load_entries
from ._base import Arrays, Download, OfficialFile, Source, sources

__all__ = ["Arrays", "Download", "OfficialFile", "Source", "sources"]

load_entries(__name__, list(__path__))
