"""Files out of a ``.tar.gz`` archive: only those asked for, checked, and of bounded size."""

import gzip
import hashlib
import tarfile
from collections.abc import Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from .._support.files import atomic_write
from ._errors import DataError, reading

__all__ = ["extract_members"]

CHUNK = 2**20


class _Bounded:
    """A readable stream that refuses to give more than ``limit`` bytes, whatever an archive expands to."""

    def __init__(self, stream: BufferedIOBase, limit: int):
        self.stream = stream
        self.left = limit
        self.limit = limit

    def read(self, size: int) -> bytes:
        content = self.stream.read(min(size, self.left + 1))
        self.left -= len(content)
        if self.left < 0:
            raise ValueError(f"expands to more than {self.limit:,} bytes: refused")
        return content


def extract_members(archive: Path, members: Mapping[str, tuple[Path, str]], limit: int) -> None:
    """Write the members of ``archive`` named in ``members`` to their targets, if their MD5 is as stated.

    Names in the archive never become paths: a member is written to the target that the caller gives, or
    skipped.
    """
    missing = dict(members)
    with reading(archive), gzip.open(archive, "rb") as packed:
        bounded: Any = _Bounded(packed, limit)  # tarfile needs no more than its ``read``
        with tarfile.open(fileobj=bounded, mode="r|") as stream:
            for member in stream:
                if member.name not in missing or not member.isreg():
                    continue
                target, md5 = missing.pop(member.name)
                content = stream.extractfile(member)
                assert isinstance(content, BufferedIOBase)
                _write_member(archive, content, target, md5)
                if not missing:
                    return
    raise DataError(f"{archive}: does not hold {', '.join(sorted(missing))}")


def _write_member(archive: Path, content: BufferedIOBase, target: Path, md5: str) -> None:
    digest = hashlib.md5(usedforsecurity=False)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            while chunk := content.read(CHUNK):
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != md5:
            raise DataError(f"{archive}: {target.name} in it has MD5 {digest.hexdigest()}, expected {md5}")

    atomic_write(target, write)
