"""Reading what other commands wrote, with one line that names the file where it cannot be read."""

import json
from pathlib import Path
from typing import TypeVar

from ..._support.files import JSONObject

__all__ = ["environment", "optional_json", "read_json"]

Kind = TypeVar("Kind", dict, list)


def read_json(path: Path, kind: type[Kind], needed: tuple[str, ...] = ()) -> Kind:
    """The JSON value in ``path``, which must be of this kind and have these entries."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: missing") from None
    except ValueError as error:
        raise ValueError(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(value, kind):
        raise ValueError(f"{path}: holds a {type(value).__name__} where a {kind.__name__} belongs")
    if lacking := [name for name in needed if name not in value]:
        raise ValueError(f"{path}: lacks {', '.join(lacking)}")
    return value


def optional_json(path: Path, kind: type[Kind]) -> Kind:
    """As :func:`read_json`; empty if there is no such file."""
    return read_json(path, kind) if path.exists() else kind()


def environment(folder: Path) -> JSONObject:
    """``environment.json`` in one level."""
    facts = optional_json(folder / "environment.json", dict)
    versions, git = facts.pop("versions", None), facts.pop("git", None)
    if isinstance(versions, dict):
        facts |= versions
    if isinstance(git, dict):
        changed = " (with changes)" if git.get("changed") else ""
        facts["git commit"] = f"{str(git.get('commit'))[:12]}{changed}"
    return facts
