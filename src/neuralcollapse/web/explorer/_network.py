"""The network on the page: files that it sends, places named at the start, the sample, and what a watcher streams."""

import re
import threading
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._support.files import JSONObject
from ...metrics.files.arrays import SUFFIXES
from ..network import network_of_files, network_of_run
from ._fields import Fields

__all__ = ["LARGEST_UPLOAD", "SUFFIXES", "Board", "Upload", "describe_files", "describe_place", "uploads_in"]

LARGEST_UPLOAD = 200 << 20
LARGEST_UNPACKED = 1 << 30
MOST_FILES = 100
MOST_FRAMES = 64


@dataclass(frozen=True)
class Upload:
    """One of the files in a request: its name on the user's disk, a safe one here, and its length."""

    name: str
    safe: str
    size: int


def uploads_in(pairs: Sequence[tuple[str, str]], length: int) -> list[Upload]:
    """The files of a request by its fields ``name`` and ``size``, which come in pairs; one file needs no size."""
    names = [value for key, value in pairs if key == "name"]
    sizes = [value for key, value in pairs if key == "size"]
    if not 1 <= len(names) <= MOST_FILES:
        raise ValueError(f"name: give 1 to {MOST_FILES} files, got {len(names)}")
    if len(names) == 1 and not sizes:
        sizes = [str(length)]
    numbers = [int(size) if size.isascii() and size.isdecimal() and len(size) <= 12 else -1 for size in sizes]
    if len(numbers) != len(names) or min(numbers) < 0 or sum(numbers) != length:
        raise ValueError("size: one whole number a file, together the length of the request")
    found = []
    for place, (name, size) in enumerate(zip(names, numbers, strict=True)):
        suffix = Path(name).suffix.lower()
        if suffix not in SUFFIXES:
            raise ValueError(f"the file must be one of {', '.join(SUFFIXES)}, got {name[-40:]!r}")
        # The words of a .npy file's name say what it holds, so they stay; its folder and odd signs do not.
        stem = re.sub(r"[^A-Za-z0-9._-]", "", Path(name).stem)[:60].lstrip(".-")
        safe = f"{stem or 'file'}{suffix}" if suffix == ".npy" else f"{place:03d}{suffix}"
        found.append(Upload(name, safe, size))
    if len({part.safe for part in found}) < len(found):
        raise ValueError("name: two of the files have the same name")
    return found


def describe_files(folder: Path, parts: Sequence[Upload]) -> JSONObject:
    """The files as one network. Nothing in them is executed: no pickles but plain tensors."""
    paths = [folder / part.safe for part in parts]
    for path in paths:
        _refuse_bombs(path)
    title = parts[0].name if len(parts) == 1 else f"{len(parts)} files"
    try:
        return network_of_files(paths, title).to_dict()
    except (ValueError, TypeError) as error:
        # The names of the temporary files say nothing to the user.
        text = str(error)
        for part, path in zip(parts, paths, strict=True):
            text = text.replace(f"{path}: ", "" if len(parts) == 1 else f"{part.name}: ").replace(str(path), part.name)
        raise ValueError(text) from error


def describe_place(fields: Fields, places: Sequence[Path]) -> JSONObject:
    """One of the places named when the page was started: a run directory, a file, or a folder of shards."""
    number = fields.integer("place", minimum=0, maximum=max(0, len(places) - 1))
    fields.finish()
    if not places:
        raise ValueError("place: none was named when the page was started (neuralcollapse explore PATH...)")
    path = places[number]
    if (path / "plan.json").is_file():
        return network_of_run(path).to_dict()
    return network_of_files([path], path.name).to_dict()


def _refuse_bombs(path: Path) -> None:
    """Compressed arrays are unpacked into memory: their stated size, which zipfile holds to, is limited."""
    if path.suffix != ".npz":
        return
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise ValueError(f"not a readable .npz file: {error}") from error
    if size > LARGEST_UNPACKED:
        raise ValueError(f"its arrays take {size / 1e9:.1f} GB, more than the {LARGEST_UNPACKED / 1e9:.1f} GB allowed")


class Board:
    """What the latest watcher has sent: a bounded number of states, spread over the whole time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._run = self._title = ""
        self._frames: list[JSONObject] = []
        self._seen = 0

    def add(self, given: Mapping[str, Any]) -> JSONObject:
        """Take one state; that of another run than before begins anew."""
        fields = Fields({name: value for name, value in given.items() if name != "network"})
        run, title = fields.word("run"), fields.word("title")
        name, step = fields.word("name"), fields.number("step")
        fields.finish()
        network = given.get("network")
        if not isinstance(network, dict) or not {"gauges", "metrics", "headline"} <= set(network):
            raise ValueError("network must be the description of a network")
        with self._lock:
            if run != self._run:
                self._frames, self._seen = [], 0
            self._run, self._title = run, title
            self._seen += 1
            self._frames.append({"number": self._seen, "name": name, "step": step, "network": network})
            if len(self._frames) > MOST_FRAMES:
                # Every other one goes, but for the first and the newest.
                self._frames = [*self._frames[:-1:2], self._frames[-1]]
            return {"number": self._seen}

    def since(self, fields: Fields) -> JSONObject:
        """The states after the one with the given number, of the given run; all of them for another run."""
        run = fields.word("run", "-")
        after = fields.integer("after", 0, minimum=0, maximum=1 << 40)
        fields.finish()
        with self._lock:
            after = after if run == self._run else 0
            frames = [frame for frame in self._frames if frame["number"] > after]
            return {"run": self._run or None, "title": self._title, "frames": frames}
