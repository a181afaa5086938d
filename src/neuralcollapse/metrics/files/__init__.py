"""Features in files: arrays of other programs, shards measured by many processes, and a model's features as shards."""

from .arrays import open_arrays
from .extract import extract
from .measure import measure_files

__all__ = ["extract", "measure_files", "open_arrays"]
