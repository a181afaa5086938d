"""Writes that either happen whole or not at all, and errors that name the file."""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["atomic_write", "json_text", "write_bytes", "write_json", "write_text"]


def atomic_write(path: str | os.PathLike[str], write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to disk, then rename it into place.

    A reader sees the old file or the new one, never a part; a failed write leaves the old one as it was.

    Raises:
        OSError: if the file cannot be written (no room, no permission, too large); it names ``path``.

    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _naming(target):
        _write_whole(target, write)


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Errors of the system name the file that was to be written, whoever met them and about whichever part."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
    except (ValueError, TypeError, ArithmeticError, AssertionError, MemoryError):
        raise
    except Exception as error:  # writers in other languages have errors of their own, with the system's number inside
        number = _SYSTEM_ERROR.search(str(error))
        if number is None:
            raise
        code = int(number.group(1) or number.group(2))
        raise OSError(code, os.strerror(code), str(target)) from error


_SYSTEM_ERROR = re.compile(r"os error (\d+)|\"errno\":\s*\"?(\d+)")


def _write_whole(target: Path, write: Callable[[Path], None]) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write ``content``, atomically."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    atomic_write(path, write)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write ``value`` as indented JSON, atomically; NaN and infinity are refused."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """What :func:`write_json` writes."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
