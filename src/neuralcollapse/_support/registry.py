"""Registries that fill themselves: one file per entry, found by name, made from a string ``"name:key=value,..."``.

A package that holds entries calls :func:`load_entries` once; every public module in it is imported and
registers its class with ``@registry.add("name")``. Adding an entry is adding a file. Nothing heavy is imported here:
the command line begins with it.
"""

import ast
import difflib
import importlib
import inspect
import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from .checks import describe
from .renamed import warn_renamed

__all__ = ["Registry", "Spec", "load_entries", "load_folders", "unknown_name"]

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
        self._renamed: dict[str, dict[str, str]] = {}

    def add(
        self, name: str, *aliases: str, listed: bool = True, renamed: Mapping[str, str] | None = None
    ) -> Callable[[Decorated], Decorated]:
        """Register the decorated object under ``name`` (and ``aliases``).

        An entry that is not ``listed`` is found by its name but does not appear among the names: one that cannot be
        made from its name alone. ``renamed`` has parameters' names of the last version, which strings may still have.
        """

        def register(entry: Decorated) -> Decorated:
            for key in (name, *aliases):
                if key in self._entries or key in self._aliases:
                    raise ValueError(f"{self.kind} {key!r} is registered twice")
            if not listed:
                self._unlisted.add(name)
            self._entries[name] = entry  # type: ignore[assignment]  (a subclass keeps its own type)
            self._aliases.update(dict.fromkeys(aliases, name))
            self._renamed[name] = dict(renamed or {})
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
        renamed = self._renamed[self._aliases.get(found.name, found.name)]
        arguments = {renamed.get(key, key): value for key, value in found.arguments.items()}
        for key in found.arguments:
            if key in renamed:
                warn_renamed(f"{key}= of {self.kind} {found.name!r}", f"{renamed[key]}=")
        for key in arguments:
            if key not in known:
                takes = ", ".join(known) if known else "none"
                raise ValueError(f"{self.kind} {found.name!r} has no parameter {key!r} (it takes: {takes})")
        return found.name, arguments


LONGEST = 100_000
"""Characters; longer strings are no names."""
OPENING, CLOSING = "([{", ")]}"


@dataclass(frozen=True)
class Spec:
    """A name and its keyword arguments.

    Values are Python literals (numbers, lists, quoted strings); anything else is a plain word. Commas inside brackets
    and quotes do not separate.

    >>> Spec.parse("focal:gamma=3")
    Spec(name='focal', arguments={'gamma': 3})
    >>> str(Spec("logit-adjusted", {"loss": "focal:gamma=2.0", "prior": (0.9, 0.1)}))
    "logit-adjusted:loss='focal:gamma=2.0',prior=(0.9, 0.1)"
    """

    name: str
    arguments: dict[str, object] = field(default_factory=dict)

    @staticmethod
    def parse(text: str, kind: str = "spec") -> "Spec":
        """The spec that ``text`` writes; ValueError says what is wrong, naming the ``kind`` of thing."""
        if not isinstance(text, str):
            raise TypeError(f"a {kind} is named by a string such as 'name:key=value', got {describe(text)}")
        if len(text) > LONGEST:
            raise ValueError(f"{kind} must be at most {LONGEST} characters long, got {len(text)}")
        _, _, tail = text.strip().partition(":")
        arguments: dict[str, object] = {}
        for part in _pieces(tail):
            key, equals, value = part.partition("=")
            key = key.strip()
            if not equals or not value.strip():
                raise ValueError(f"{kind} {_short(text)}: expected key=value, got {_short(part)}")
            if key in arguments:
                raise ValueError(f"{kind} {_short(text)}: parameter {key!r} is given twice")
            arguments[key] = _literal(value.strip())
        return Spec(Spec.name_of(text).strip(), arguments)

    @staticmethod
    def name_of(text: str) -> str:
        """The name alone, of a text that may be no spec at all: what is before the colon.

        >>> Spec.name_of("focal:gamma=3")
        'focal'
        """
        return text.strip().partition(":")[0]

    @property
    def details(self) -> str:
        """The arguments for people to read.

        >>> Spec.parse("mse:alpha=5,target=2").details
        'alpha=5, target=2'
        """
        return ", ".join(f"{key}={value}" for key, value in self.arguments.items())

    def __str__(self) -> str:
        pairs = ",".join(f"{key}={value!r}" for key, value in self.arguments.items())
        return f"{self.name}:{pairs}" if pairs else self.name


def _pieces(tail: str) -> list[str]:
    """``tail`` split at commas that are not inside brackets or quotes, without empty pieces."""
    pieces, depth, quote = [""], 0, ""
    for character in tail:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
        elif character == "," and depth <= 0:
            pieces.append("")
            continue
        pieces[-1] += character
    return [piece.strip() for piece in pieces if piece.strip()]


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:57] + "...")


def load_entries(package: str, path: list[str]) -> None:
    """Import every public module of ``package`` so that its entries register themselves.

    Raises:
        OSError: if the folder cannot be read (no file handles left), which would otherwise look like an empty one.

    """
    for folder in path:
        os.listdir(folder)
    for module in sorted(pkgutil.iter_modules(path), key=lambda m: m.name):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package}.{module.name}")


def load_folders(package: str, path: list[str]) -> None:
    """:func:`load_entries` of every public folder of ``package`` that has an ``__init__.py``."""
    for folder in path:
        for module in pkgutil.iter_modules([folder]):
            if module.ispkg and not module.name.startswith("_"):
                load_entries(f"{package}.{module.name}", [os.path.join(folder, module.name)])
