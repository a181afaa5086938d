"""The one error of the readers: a line that names the file and says what is wrong with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .._support.checks import one_line

__all__ = ["DataError", "reading"]


class DataError(ValueError):
    """A data file that cannot be used; the message is one line and names the file."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while ``path`` is parsed into one line.

    Files come from anywhere and any parser below may stumble in its own way, so this catches every exception.
    A missing or unreadable file keeps its ``OSError``, which names the file already.
    """
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        raise DataError(f"{path}: {one_line(error, 200)}") from error
    except MemoryError as error:
        raise DataError(f"{path}: claims more data than fits in memory") from error
    except Exception as error:
        raise DataError(f"{path}: {one_line(error, 200)}") from error
