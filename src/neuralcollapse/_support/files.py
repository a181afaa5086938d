"""Files that are whole or not there, that know their checksum, in folders that have one writer.

Writes happen whole or not at all, and errors name the file; checksums of what is read back, so that damage is seen and
not believed; a lock that the system takes back when its holder dies, however it dies.
"""

import hashlib
import json
import math
import os
import re
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeAlias

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

__all__ = [
    "JSONObject",
    "atomic_write",
    "damaged",
    "digest",
    "digests",
    "json_number",
    "json_text",
    "locked",
    "remove_unfinished",
    "sealed",
    "unsealed",
    "write_bytes",
    "write_json",
    "write_text",
]

JSONObject: TypeAlias = dict[str, Any]
"""What is written as a JSON object, or read as one: values that JSON can hold, by name."""


def atomic_write(path: str | os.PathLike[str], write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to disk, then rename it into place.

    A reader sees the old file or the new one, never a part; a failed write leaves the old one as it was.

    Raises:
        OSError: if the file cannot be written (no room, no permission, too large); it names ``path``.

    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _errors_naming(target):
        _write_whole(target, write)


@contextmanager
def _errors_naming(target: Path) -> Iterator[None]:
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


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Write ``value`` as indented JSON, atomically; NaN and infinity are refused."""
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """What :func:`write_json` writes."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def json_number(value: float | None) -> float | None:
    """``value`` as JSON can hold it: ``None`` for NaN and infinity."""
    return value if value is not None and math.isfinite(value) else None


SEAL = "checksum"


def digest(content: bytes) -> str:
    """A checksum of ``content``, as 32 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Checksums of some files of a folder, by name."""
    return {name: digest((folder / name).read_bytes()) for name in names}


def damaged(folder: Path, stated: Mapping[str, str]) -> str | None:
    """The first file that is missing or differs from its stated checksum, or ``None``."""
    for name, expected in stated.items():
        try:
            if digest((folder / name).read_bytes()) != expected:
                return name
        except OSError:
            return name
    return None


def sealed(facts: Mapping[str, object]) -> JSONObject:
    """``facts`` with a checksum of themselves."""
    return {**facts, SEAL: _checksum_of(facts)}


def unsealed(facts: object, always: bool = False) -> JSONObject:
    """What :func:`sealed` was given; ValueError where the checksum does not match.

    Facts without one are believed (old files have none), unless such files have had one ``always``, as those that state
    checksums of other files.

    >>> unsealed(sealed({"value": 1.5}))
    {'value': 1.5}
    """
    if not isinstance(facts, Mapping):
        raise ValueError(f"must be a JSON object, got {type(facts).__name__}")
    rest = {name: value for name, value in facts.items() if name != SEAL}
    if SEAL in facts and facts[SEAL] != _checksum_of(rest):
        raise ValueError("it does not match its checksum")
    if SEAL not in facts and (always or "files" in facts):
        raise ValueError("its checksum is missing")
    return rest


def _checksum_of(facts: Mapping[str, object]) -> str:
    return digest(json.dumps(facts, sort_keys=True).encode())


LOCK = ".lock"
UNFINISHED = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp")
"""Names of files that were being written."""


@contextmanager
def locked(folder: str | os.PathLike[str], name: str = LOCK) -> Iterator[None]:
    """Keep other processes from writing in ``folder``.

    It is made if it is missing, and removed if nothing came to be in it. The lock is held on the file ``name`` in it,
    which says who writes and is gone afterwards. One that a killed process left behind locks nothing. Where the system
    or the file system knows no such locks, nothing is locked.

    Raises:
        ValueError: if another process holds the lock; the line names it.

    """
    place = Path(folder)
    made = not place.exists()
    place.mkdir(parents=True, exist_ok=True)
    file = _acquire_lock(place, place / name)
    if name == LOCK:
        remove_unfinished(place, levels=1)
    try:
        yield
    finally:
        if fcntl is None:  # such systems remove no file that is open
            file.close()
        (place / name).unlink(missing_ok=True)
        file.close()
        if made:
            with suppress(OSError):  # it holds something
                place.rmdir()


def remove_unfinished(folder: Path, levels: float = math.inf) -> None:
    """Remove what killed processes were writing in ``folder``, whose lock is held, and up to ``levels`` below it.

    A subfolder with a lock of its own is left alone: its writer is at work, or the next one removes what there is.
    """
    for place, below, names in os.walk(folder):
        here = Path(place)
        depth = len(here.relative_to(folder).parts)
        if depth == levels:
            below.clear()
        if depth and (here / LOCK).exists():  # looked at after the names: what its writer begins now is not among them
            below.clear()
            continue
        for name in names:
            if UNFINISHED.fullmatch(name):
                with suppress(OSError):
                    (here / name).unlink(missing_ok=True)


def _acquire_lock(folder: Path, path: Path) -> TextIOWrapper:
    while True:
        file = path.open("a+", encoding="utf-8")
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(file)
            file.close()
            raise ValueError(f"{folder}: {holder} is writing here; wait for it or name another folder") from None
        except OSError:
            return file
        if _is_same_file(file, path):
            _sign_lock(file)
            return file
        file.close()  # its holder removed it between our opening and locking it: take the new one


def _is_same_file(file: TextIOWrapper, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sign_lock(file: TextIOWrapper) -> None:
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    facts = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%H:%M:%S")}
    file.truncate(0)
    file.write(json.dumps({**facts, "command": command[:200]}))
    file.flush()


def _holder(file: TextIOWrapper) -> str:
    try:
        file.seek(0)
        facts = json.loads(file.read(4096))
        return f"process {facts['process']} on {facts['host']} ({facts['command']}, since {facts['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
