"""One file per metric (or per family that shares its arithmetic); each registers itself."""

from ..._support.registry import load_entries

load_entries(__name__, list(__path__))
