"""Metrics, one file an idea; each file registers what it defines."""

from ..._support.registry import load_entries

load_entries(__name__, list(__path__))
