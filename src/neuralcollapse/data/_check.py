"""``check``: are the files of a data set there, whole, and the official ones?"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ._cache import cache_path, verify_cache
from ._errors import DataError
from ._load import root_folder
from ._sources import sources

__all__ = ["CheckReport", "FileReport", "check", "md5_of"]

CHUNK = 2**20


@dataclass(frozen=True)
class FileReport:
    """One file: ``official`` (MD5 as published), ``other`` (other bytes) or ``unlisted``."""

    path: Path
    status: Literal["official", "other", "unlisted"]


@dataclass(frozen=True)
class CheckReport:
    """What :func:`check` found; ``problem`` is ``None`` when the set can be used."""

    name: str
    files: tuple[FileReport, ...]
    train_size: int | None
    test_size: int | None
    problem: str | None

    @property
    def official(self) -> bool:
        """Usable, and every file with a published checksum has it."""
        return self.problem is None and all(file.status != "other" for file in self.files)


def check(name: str, root: str | os.PathLike[str] | None = None) -> CheckReport:
    """Read every file, compare it with its published checksum, and verify the cache if there is one."""
    key, arguments = sources.parse(name)
    source = sources[key](**arguments)
    folder = Path() if source.embedded else root_folder(root)
    if folder is None:
        return CheckReport(key, (), None, None, "no root folder is given")
    paths = source.locate(folder)
    if paths is None:
        return CheckReport(key, (), None, None, f"not in {folder}")
    published = {file.path: file.md5 for download in source.downloads for file in download.gives}
    files = tuple(FileReport(path, _status(path, folder, published)) for path in paths)
    try:
        arrays = source.read(folder)
    except (DataError, OSError) as error:
        return CheckReport(key, files, None, None, str(error))
    problem = None
    cache = cache_path(key, source, folder)
    if not source.embedded and cache.exists():
        fault = verify_cache(cache)
        problem = None if fault is None else f"{cache}: {fault}; delete it, it is made again"
    return CheckReport(key, files, len(arrays.train_labels), len(arrays.test_labels), problem)


def md5_of(path: Path) -> str:
    """The MD5 of a file, in hexadecimal."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _status(path: Path, root: Path, published: dict[str, str]) -> Literal["official", "other", "unlisted"]:
    md5 = published.get(path.relative_to(root).as_posix())
    if md5 is None:
        return "unlisted"
    return "official" if md5_of(path) == md5 else "other"
