"""Checksums of files that are read back, so that damage is seen and not believed."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["damaged", "digest", "digests", "sealed", "unsealed"]

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


def sealed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """``facts`` with a checksum of themselves."""
    return {**facts, SEAL: _of(facts)}


def unsealed(facts: Any, always: bool = False) -> dict[str, Any]:
    """What :func:`sealed` was given; ValueError where the checksum does not match.

    Facts without one are believed (old files have none), unless such files have had one ``always``, as those that state
    checksums of other files.

    >>> unsealed(sealed({"value": 1.5}))
    {'value': 1.5}
    """
    if not isinstance(facts, Mapping):
        raise ValueError(f"must be a JSON object, got {type(facts).__name__}")
    rest = {name: value for name, value in facts.items() if name != SEAL}
    if SEAL in facts and facts[SEAL] != _of(rest):
        raise ValueError("it does not match its checksum")
    if SEAL not in facts and (always or "files" in facts):
        raise ValueError("its checksum is missing")
    return rest


def _of(facts: Mapping[str, Any]) -> str:
    return digest(json.dumps(facts, sort_keys=True).encode())
