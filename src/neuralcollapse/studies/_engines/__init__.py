"""Engines: what runs the cells of studies. One file each."""

import os

from ..._support.registry import load_entries
from ._engine import Engine, Failure, engines

load_entries(__name__, [os.path.dirname(__file__)])

__all__ = ["Engine", "Failure", "engines"]
