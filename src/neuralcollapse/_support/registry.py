"""Registries that fill themselves: one file per entry, found by name, made from a string.

A package that holds entries calls :func:`load_entries` once; every public module in it is imported and
registers its class with ``@registry.add("name")``. Adding an entry is adding a file.
"""

import ast
import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

__all__ = ["Registry", "load_entries", "unknown_name"]

Entry = TypeVar("Entry")
Decorated = TypeVar("Decorated")


def unknown_name(kind: str, name: object, known: list[str]) -> ValueError:
    """The error for a name that is not known: lists what is, and the nearest."""
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ValueError(f"unknown {kind} {str(name)!r}{hint} (known: {', '.join(known)})")


def load_entries(package: str, path: list[str]) -> None:
    """Import every public module of ``package`` so that its entries register themselves."""
    for module in sorted(pkgutil.iter_modules(path), key=lambda m: m.name):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package}.{module.name}")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Names to entries, in alphabetical order, with aliases and a parsed string form.

    >>> shapes = Registry("shape")
    >>> @shapes.add("box", "b")
    ... class Box:
    ...     def __init__(self, side: float = 1.0):
    ...         self.side = side
    >>> shapes.create("box:side=2").side
    2
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._entries: dict[str, Entry] = {}
        self._aliases: dict[str, str] = {}

    def add(self, name: str, *aliases: str) -> Callable[[Decorated], Decorated]:
        """Register the decorated object under ``name`` (and ``aliases``)."""

        def register(entry: Decorated) -> Decorated:
            for key in (name, *aliases):
                if key in self._entries or key in self._aliases:
                    raise ValueError(f"{self.kind} {key!r} is registered twice")
            self._entries[name] = entry  # type: ignore[assignment]  (a subclass keeps its own type)
            self._aliases.update(dict.fromkeys(aliases, name))
            return entry

        return register

    def __getitem__(self, name: str) -> Entry:
        key = self._aliases.get(name, name)
        if key not in self._entries:
            raise unknown_name(self.kind, name, [*self, *sorted(self._aliases)])
        return self._entries[key]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def create(self, spec: str, **defaults: object) -> Any:
        """Call the entry named by ``"name"`` or ``"name:key=value,key=value"`` with those arguments."""
        name, arguments = self.parse(spec)
        entry = self[name]
        assert callable(entry)
        return entry(**{**defaults, **arguments})

    def parse(self, spec: str) -> tuple[str, dict[str, object]]:
        """Split ``"name:key=value,..."`` into a known name and checked keyword arguments."""
        if not isinstance(spec, str):
            raise TypeError(f"a {self.kind} is named by a string such as 'name:key=value', got {spec!r}")
        name, _, tail = spec.strip().partition(":")
        entry = self[name.strip()]
        assert callable(entry)
        known = [p for p in inspect.signature(entry).parameters if p != "self"]
        arguments: dict[str, object] = {}
        for part in filter(None, (piece.strip() for piece in tail.split(","))):
            key, equals, text = part.partition("=")
            key = key.strip()
            if not equals or not text.strip():
                raise ValueError(f"{self.kind} {spec!r}: expected key=value, got {part!r}")
            if key not in known:
                takes = ", ".join(known) if known else "none"
                raise ValueError(f"{self.kind} {name!r} has no parameter {key!r} (it takes: {takes})")
            if key in arguments:
                raise ValueError(f"{self.kind} {spec!r}: parameter {key!r} is given twice")
            try:
                arguments[key] = ast.literal_eval(text.strip())
            except (ValueError, SyntaxError):
                arguments[key] = text.strip()
        return name.strip(), arguments
