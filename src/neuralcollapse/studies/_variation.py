"""One's own variations of a study: other settings or seeds, kept apart from the plain results and marked."""

import ast
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._support.checks import describe, integer
from .._support.files import JSONObject
from ._results import Planned

__all__ = ["Variation", "parse_settings"]

LONGEST = 60


@dataclass(frozen=True)
class Variation:
    """Settings that replace those of every cell that has them, and seeds that replace the study's."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.seeds is not None:
            if not self.seeds or len(set(self.seeds)) != len(self.seeds):
                raise ValueError(f"seeds must be different integers, got {list(self.seeds)}")
            for seed in self.seeds:
                integer("seeds", seed, minimum=0)

    @property
    def words(self) -> str:
        """Such as ``epochs=50, seeds=10,11``."""
        parts = [f"{name}={value}" for name, value in sorted(self.settings.items())]
        if self.seeds is not None:
            parts.append("seeds=" + ",".join(map(str, self.seeds)))
        return ", ".join(parts)

    @property
    def slug(self) -> str:
        """The words as the end of a folder's name; short, and different for different variations."""
        text = re.sub(r"[^A-Za-z0-9=.,_+-]+", "_", self.words.replace(", ", "+"))
        if text == self.words.replace(", ", "+") and len(text) <= LONGEST:
            return text
        return f"{text[:LONGEST]}-{hashlib.blake2b(self.words.encode(), digest_size=4).hexdigest()}"

    def to_dict(self) -> JSONObject:
        """As JSON."""
        return {"settings": dict(self.settings), "seeds": None if self.seeds is None else list(self.seeds)}

    def apply(self, study: str, planned: Iterable[Planned]) -> list[Planned]:
        """The grid with the settings changed.

        ValueError if no cell has one, or if it is what the study varies: under that name, or as part of another setting
        (a width in a model), so that different cells would become equal.
        """
        changed = list(planned)
        # Measured epochs follow the number of epochs, unless they are set as well.
        for name, value in sorted(self.settings.items(), key=lambda setting: setting[0] == "measure"):
            levels = {entry.labels[name] for entry in changed if name in entry.labels}
            if len(levels) > 1:
                listed = ", ".join(map(str, sorted(levels, key=str)))
                raise ValueError(f"--set {name}={value}: study {study} compares values of {name} ({listed})")
            cells = [entry.cell.with_setting(name, value) for entry in changed]
            if all(cell is None for cell in cells):
                takes = ", ".join(_settings(changed))
                raise ValueError(
                    f"--set {name}={value}: no cell of study {study} has this setting (they have: {takes})"
                )
            different = _count_different(changed)
            changed = [
                replace(
                    entry,
                    cell=entry.cell if cell is None else cell,
                    labels={**entry.labels, name: value} if name in entry.labels else entry.labels,
                )
                for entry, cell in zip(changed, cells, strict=True)
            ]
            left = _count_different(changed)
            if left < different:
                raise ValueError(
                    f"--set {name}={value}: study {study} compares cells by their {name}; of {different} different "
                    f"ones {left} would be left"
                )
        return changed


def _count_different(planned: Sequence[Planned]) -> int:
    return len({entry.cell.key for entry in planned})


def _settings(planned: Sequence[Planned]) -> list[str]:
    names: dict[str, None] = {}
    for entry in planned:
        spec = entry.cell.spec()
        for part in ("plan", "problem", "arguments"):
            names |= dict.fromkeys(spec.get(part, ()))
        if "options" in spec:
            names |= dict.fromkeys((*spec["options"], "method", "seed", "scale"))
    names.pop("model", None) if "problem" in planned[0].cell.spec() else None
    return sorted(names)


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """``["epochs=50", "loss=focal:gamma=2"]`` as a mapping; values are Python literals where they can be.

    >>> parse_settings(["epochs=50", "loss=focal:gamma=2"])
    {'epochs': 50, 'loss': 'focal:gamma=2'}
    """
    settings: dict[str, Any] = {}
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"texts must be strings NAME=VALUE, got {describe(text)}")
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ValueError(f"--set takes NAME=VALUE, got {text!r}")
        if name.strip() in settings:
            raise ValueError(f"--set {name.strip()} is given twice")
        try:
            settings[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two: nested too deep
            settings[name.strip()] = value.strip()
    return settings
