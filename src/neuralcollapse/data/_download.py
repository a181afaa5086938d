"""``get``: fetch a data set from its official address, resuming where an earlier attempt stopped."""

import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from .._support.files import locked
from ._archive import extract_members
from ._check import md5_of
from ._errors import DataError
from ._load import root_folder
from ._sources import Download, sources

__all__ = ["fetch", "get"]

ATTEMPTS = 4
TIMEOUT_SECONDS = 30
CHUNK = 2**16
EXPANSION = 4
"""An archive may expand to so many times its own size; CIFAR's expand 1.1 times."""

DownloadProgress = Callable[[str, int, int], None]


def get(
    name: str,
    root: str | os.PathLike[str] | None = None,
    mirror: str | None = None,
    progress: DownloadProgress | None = None,
) -> list[Path]:
    """Fetch what is missing of the data set ``name`` into ``root``, and return its files.

    ``mirror`` replaces the official address up to the file name. ``progress(file, bytes so far, bytes in
    all)`` is called as the download goes on. Files are taken only if their MD5 is the published one. Where another
    process fetches the same, a ValueError names it.
    """
    key, arguments = sources.parse(name)
    source = sources[key](**arguments)
    if source.embedded:
        return []
    if source.unfetchable:
        raise DataError(f"{key} cannot be fetched: {source.unfetchable}")
    folder = root_folder(root)
    if folder is None:
        raise DataError(f"say where {key} shall go (root, --root or the variable NEURALCOLLAPSE_DATA)")
    for download in source.downloads:
        targets = {file.path: (folder / file.path, file.md5) for file in download.gives}
        if _are_whole(targets):
            continue
        url = download.url if mirror is None else f"{mirror.rstrip('/')}/{download.file_name}"
        own = folder / ".neuralcollapse"
        with locked(own, f".{download.file_name}.lock"):
            if not _are_whole(targets):  # they may have come while the lock was another's
                _fetch_into(targets, url, own / "downloads" / download.file_name, download, progress)
    return source.locate(folder) or []


FetchedFiles = Mapping[str, tuple[Path, str]]
"""Where the files of a download go, and their MD5, by their official paths."""


def _are_whole(targets: FetchedFiles) -> bool:
    return all(path.is_file() and md5_of(path) == md5 for path, md5 in targets.values())


def _fetch_into(
    targets: FetchedFiles, url: str, packed: Path, download: Download, progress: DownloadProgress | None
) -> None:
    fetch(url, packed, download, progress)
    if download.is_archive:
        extract_members(packed, targets, EXPANSION * download.size)
        packed.unlink()
    else:
        target, _ = next(iter(targets.values()))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(packed, target)


def fetch(url: str, target: Path, download: Download, progress: DownloadProgress | None = None) -> None:
    """Download ``url`` to ``target`` by way of ``target.part``, which a later attempt continues.

    A server that cannot resume sends the file from its start; a connection that breaks is tried again; a file
    that is too long or has another MD5 than stated is deleted.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"an address must start with http:// or https://, got {url!r}")
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(ATTEMPTS):
        try:
            _continue(url, part, download, progress)
            break
        except urllib.error.HTTPError as error:
            raise DataError(f"{url}: the server answered {error.code} {error.reason}") from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            if attempt == ATTEMPTS - 1:
                done = part.stat().st_size if part.exists() else 0
                reason = getattr(error, "reason", None) or error
                raise DataError(f"{url}: {reason}; {done:,} bytes are kept, run it again to continue") from error
            time.sleep(0.2 * 4**attempt)
    found = md5_of(part)
    if found != download.md5:
        part.unlink()
        raise DataError(f"{url}: MD5 is {found}, expected {download.md5}; the download was deleted")
    part.replace(target)


def _continue(url: str, part: Path, download: Download, progress: DownloadProgress | None) -> None:
    done = part.stat().st_size if part.exists() else 0
    if done == download.size:
        return None
    request = urllib.request.Request(url, headers={"User-Agent": "neuralcollapse"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 416:  # the part is as long as the file, or longer: start again
                raise
        part.unlink()
        return _continue(url, part, download, progress)
    with answer:
        resumed = answer.status == 206
        with part.open("ab" if resumed else "wb") as file:
            done = file.tell()
            while chunk := answer.read(CHUNK):
                done += len(chunk)
                if done > download.size:
                    file.close()
                    part.unlink()
                    raise DataError(f"{url}: sends more than the {download.size:,} bytes stated; stopped and deleted")
                file.write(chunk)
                if progress is not None:
                    progress(download.file_name, done, download.size)
    if done < download.size:
        raise ConnectionError(f"the connection ended after {done:,} of {download.size:,} bytes")
    return None
