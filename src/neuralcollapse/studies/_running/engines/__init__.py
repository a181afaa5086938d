"""Engines: what runs the cells of studies. One file each."""

import os

from ...._support.registry import load_entries
from .engine import Engine, Event, Failure, Running, engines

load_entries(__name__, [os.path.dirname(__file__)])

__all__ = ["Engine", "Event", "Failure", "Running", "engines"]
