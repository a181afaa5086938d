"""Registries that fill themselves: one file per entry, found by name, made from a string.

A package that holds entries calls :func:`load_entries` once; every public module in it is imported and
registers its class with ``@registry.add("name")``. Adding an entry is adding a file.
"""

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload

from .entries import load_entries
from .specs import Spec

__all__ = ["Registry", "load_entries", "unknown_name"]

Entry = TypeVar("Entry")
Decorated = TypeVar("Decorated")
Default = TypeVar("Default")


def unknown_name(kind: str, name: object, known: list[str]) -> ValueError:
    """The error for a name that is not known: lists what is, and the nearest."""
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ValueError(f"unknown {kind} {str(name)!r}{hint} (known: {', '.join(known)})")


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
        self._unlisted: set[str] = set()

    def add(self, name: str, *aliases: str, listed: bool = True) -> Callable[[Decorated], Decorated]:
        """Register the decorated object under ``name`` (and ``aliases``).

        An entry that is not ``listed`` is found by its name but does not appear among the names: one that cannot be
        made from its name alone.
        """

        def register(entry: Decorated) -> Decorated:
            for key in (name, *aliases):
                if key in self._entries or key in self._aliases:
                    raise ValueError(f"{self.kind} {key!r} is registered twice")
            if not listed:
                self._unlisted.add(name)
            self._entries[name] = entry  # type: ignore[assignment]  (a subclass keeps its own type)
            self._aliases.update(dict.fromkeys(aliases, name))
            return entry

        return register

    def __getitem__(self, name: str) -> Entry:
        key = self._aliases.get(name, name)
        if key not in self._entries:
            raise unknown_name(self.kind, name, [*sorted(self._entries), *sorted(self._aliases)])
        return self._entries[key]

    @overload
    def get(self, key: str, /) -> Entry | None: ...
    @overload
    def get(self, key: str, /, default: Entry | Default) -> Entry | Default: ...
    def get(self, key: str, /, default: object = None) -> object:
        """The entry of that name, or ``default``, as of any mapping; ``registry[name]`` raises instead.

        >>> Registry("shape").get("box", 3)
        3
        """
        return self._entries.get(self._aliases.get(key, key), default)

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries.keys() - self._unlisted))

    def __len__(self) -> int:
        return len(self._entries) - len(self._unlisted)

    def create(self, spec: str, **defaults: object) -> Any:
        """Call the entry named by ``"name"`` or ``"name:key=value,key=value"`` with those arguments."""
        name, arguments = self.parse(spec)
        entry = self[name]
        assert callable(entry)
        return entry(**{**defaults, **arguments})

    def parse(self, spec: str) -> tuple[str, dict[str, object]]:
        """Split ``"name:key=value,..."`` into a known name and checked keyword arguments."""
        found = Spec.parse(spec, self.kind)
        entry = self[found.name]
        assert callable(entry)
        known = [p for p in inspect.signature(entry).parameters if p != "self"]
        for key in found.arguments:
            if key not in known:
                takes = ", ".join(known) if known else "none"
                raise ValueError(f"{self.kind} {found.name!r} has no parameter {key!r} (it takes: {takes})")
        return found.name, dict(found.arguments)
