"""One writer a folder: a lock that the system takes back when its holder dies, however it dies."""

import fcntl
import json
import os
import re
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

__all__ = ["locked"]

LOCK = ".lock"
UNFINISHED = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp")
"""Names of files that were being written."""


@contextmanager
def locked(folder: str | os.PathLike[str], name: str = LOCK) -> Iterator[None]:
    """Keep other processes from writing in ``folder``, which is made if it is missing, and removed if nothing
    came to be in it.

    The lock is held on the file ``name`` in it, which says who writes and is gone afterwards. One that a killed process
    left behind locks nothing. Where the file system knows no locks, nothing is locked.

    Raises:
        ValueError: if another process holds the lock; the line names it.

    """
    place = Path(folder)
    made = not place.exists()
    place.mkdir(parents=True, exist_ok=True)
    file = _acquire(place, place / name)
    if name == LOCK:
        for left in (*place.glob(".*.tmp"), *place.glob("*/.*.tmp")):  # of a process that was killed while it wrote
            if UNFINISHED.fullmatch(left.name):
                left.unlink(missing_ok=True)
    try:
        yield
    finally:
        (place / name).unlink(missing_ok=True)
        file.close()
        if made:
            with suppress(OSError):  # it holds something
                place.rmdir()


def _acquire(folder: Path, path: Path) -> TextIOWrapper:
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(file)
            file.close()
            raise ValueError(f"{folder}: {holder} is writing here; wait for it or name another --out") from None
        except OSError:
            return file
        if _is(file, path):
            _sign(file)
            return file
        file.close()  # its holder removed it between our opening and locking it: take the new one


def _is(file: TextIOWrapper, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sign(file: TextIOWrapper) -> None:
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
