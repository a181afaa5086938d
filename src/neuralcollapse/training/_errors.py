"""What can stop a run that started well."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["TrainingStopped", "writing"]


class TrainingStopped(RuntimeError):  # noqa: N818 (it says what happened)
    """The run cannot go on; the message is one line and says in what state it was left."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a full disk, or a limit on files, into a message that says how to go on."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise TrainingStopped(
            f"{error.filename or folder}: {os.strerror(error.errno)}; the last checkpoint is whole: make room and "
            "resume the run"
        ) from error
