"""Pickles as plain data: a reader that interprets a few opcodes itself and can call nothing.

A CIFAR batch needs dictionaries, lists, numbers, strings and one array of bytes. Arrays are pickled as calls
of four known functions; these are recognised by name and imitated. Any other name, and any opcode that data
has no use for, ends the reading. Python's own unpickler is not involved.
"""

import math
import pickletools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import DataError, reading

__all__ = ["PickledBytes", "read_pickle"]

LARGEST = 512 * 2**20

RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
NAMES = {
    **dict.fromkeys(RECONSTRUCT, "reconstruct"),
    "numpy ndarray": "array",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
PUTS = {"BINPUT", "LONG_BINPUT"}
GETS = {"BINGET", "LONG_BINGET"}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class _Name:
    """A function that a pickle names; never called."""

    role: str


@dataclass
class PickledBytes:
    """An array as a pickle describes it, not yet trusted."""

    shape: Any = None
    dtype: Any = None
    content: Any = None

    def array(self) -> np.ndarray:
        """The array of unsigned bytes, after checking that shape, type and content agree."""
        shape = self.shape
        if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError("an array in it has no proper shape")
        if self.dtype not in ("u1", "|u1", b"u1", b"|u1"):
            raise ValueError(f"an array in it has type {self.dtype!r}, expected unsigned bytes")
        content = self.content.encode("latin-1") if isinstance(self.content, str) else self.content
        if not isinstance(content, bytes) or len(content) != math.prod(shape):
            raise ValueError(f"an array in it does not hold the bytes of its shape {shape}")
        return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in ``path``, its keys as text; arrays come as :class:`PickledBytes`."""
    with reading(path):
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path}: larger than the {LARGEST:,} bytes allowed")
        value = _Machine().run(path.read_bytes())
        if not isinstance(value, dict):
            raise DataError(f"{path}: holds no dictionary")
        return {key.decode("latin-1") if isinstance(key, bytes) else str(key): item for key, item in value.items()}


class _Machine:
    """The stack machine of the pickle format, for data only."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        for opcode, argument, position in pickletools.genops(content):
            name = opcode.name
            if name == "STOP":
                if len(self.stack) != 1 or self.marks:
                    raise ValueError("a pickle that ends in the middle of a value")
                return self.stack[0]
            self._step(name, argument, position)
        raise ValueError("a pickle without an end")

    def _step(self, name: str, argument: Any, position: int | None) -> None:
        if name in VALUES:
            self.stack.append(argument)
        elif name in PUTS:
            self.memo[argument] = self._top()
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self._top()
        elif name in GETS:
            self.stack.append(self.memo[argument])
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name in TUPLES:
            self.stack.append(tuple(self._pop(TUPLES[name])))
        elif name == "GLOBAL":
            self.stack.append(_known_name(argument))
        elif name == "STACK_GLOBAL":
            module, attribute = self._pop(2)
            self.stack.append(_known_name(f"{module} {attribute}"))
        elif name not in ("PROTO", "FRAME"):
            handler = getattr(self, f"_op_{name.lower()}", None)
            if handler is None:
                raise ValueError(f"pickle opcode {name} at byte {position}, which data has no use for: refused")
            handler()

    def _op_mark(self) -> None:
        self.marks.append(len(self.stack))

    def _op_empty_dict(self) -> None:
        self.stack.append({})

    def _op_empty_list(self) -> None:
        self.stack.append([])

    def _op_empty_tuple(self) -> None:
        self.stack.append(())

    def _op_tuple(self) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _op_append(self) -> None:
        (item,) = self._pop(1)
        _expect(self._top(), list).append(item)

    def _op_appends(self) -> None:
        items = self._since_mark()
        _expect(self._top(), list).extend(items)

    def _op_setitem(self) -> None:
        self._store(self._pop(2))

    def _op_setitems(self) -> None:
        self._store(self._since_mark())

    def _op_reduce(self) -> None:
        function, arguments = self._pop(2)
        self.stack.append(_imitate(_expect(function, _Name).role, _expect(arguments, tuple)))

    def _op_build(self) -> None:
        (state,) = self._pop(1)
        target = self._top()
        if isinstance(target, PickledBytes):
            version, target.shape, target.dtype, by_column, target.content = _expect(state, tuple)
            if version != 1 or by_column:
                raise ValueError("an array in it is not laid out by rows")
        elif not isinstance(target, str | bytes):
            raise ValueError("a pickle that changes an object other than an array: refused")

    def _top(self) -> Any:
        if not self.stack or (self.marks and len(self.stack) == self.marks[-1]):
            raise ValueError("a pickle that uses more values than it has")
        return self.stack[-1]

    def _pop(self, count: int) -> list[Any]:
        floor = self.marks[-1] if self.marks else 0
        if len(self.stack) - count < floor:
            raise ValueError("a pickle that uses more values than it has")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def _since_mark(self) -> list[Any]:
        if not self.marks:
            raise ValueError("a pickle that closes what it did not open")
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _store(self, items: list[Any]) -> None:
        target = _expect(self._top(), dict)
        for key, value in _keys_and_values(items):
            if not isinstance(key, str | bytes | int):
                raise ValueError("a dictionary key that is neither text nor a number")
            target[key] = value


def _keys_and_values(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    if len(items) % 2:
        raise ValueError("a dictionary with a key without a value")
    return zip(items[::2], items[1::2], strict=True)


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a pickle that treats a {type(value).__name__} as a {kind.__name__.strip('_').lower()}")
    return value


def _known_name(name: str) -> _Name:
    if name not in NAMES:
        shown = name.replace(" ", ".")[:80]
        raise ValueError(f"names {shown!r}, which data has no use for: refused, nothing was executed")
    return _Name(NAMES[name])


def _imitate(role: str, arguments: tuple) -> Any:
    if role == "reconstruct":
        return PickledBytes()
    if role == "dtype" and arguments and isinstance(arguments[0], str | bytes):
        return arguments[0]
    if role == "encode" and len(arguments) == 2 and isinstance(arguments[0], str):
        return arguments[0].encode("latin-1")
    raise ValueError("a pickle that calls a function in an unknown way: refused")
