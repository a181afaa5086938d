"""One file a method, each registering itself; adding a method is adding a file."""

from ...._support.registry import load_entries

load_entries(__name__, list(__path__))
