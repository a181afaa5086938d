"""What is kept of finished shards, so that a later call goes on from it."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from ..accumulators.second_pass import SecondPass
from ..accumulators.statistics import ClassStatistics
from ..settings import Settings
from .shards import Shard

__all__ = ["asked_of", "finished_passes", "keep", "key_of"]

Pass = TypeVar("Pass", ClassStatistics, SecondPass)


def key_of(shard: Shard, facts: str) -> str:
    """A name that changes with the files and with what is asked of them."""
    digest = hashlib.sha256(facts.encode())
    for file, name in (shard.features, shard.labels):
        about = file.stat()
        digest.update(f"{file.resolve()}\0{name}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
    return f"{Path(shard.name).stem}-{digest.hexdigest()[:16]}"


def asked_of(total: ClassStatistics, weight: Tensor | None, bias: Tensor | None, settings: Settings) -> str:
    """A name that changes with the class means and with what is asked of the samples."""
    digest = hashlib.sha256()
    for tensor in (total.counts, total.means, weight, bias):
        digest.update(b"" if tensor is None else tensor.numpy().tobytes())
    asked = (settings.metrics, settings.global_mean, settings.selection, settings.memory_limit)
    digest.update(repr((*asked, settings.interval_groups)).encode())
    return digest.hexdigest()[:16]


def finished_passes(kind: type[Pass], places: Sequence[Path | None], count: int) -> dict[int, list[Pass]]:
    """What an earlier call left of the shards, of their first pass or their second, where it is all there and whole."""
    found = {}
    for number, place in enumerate(places):
        if place is not None:
            with suppress(ValueError, OSError):
                found[number] = [kind.load(_numbered(place, part)) for part in range(count)]
    return found


def _numbered(place: Path, number: int) -> Path:
    return place.with_name(f"{place.name}-{number}.safetensors")


def keep(place: Path | None, parts: Sequence[ClassStatistics] | Sequence[SecondPass]) -> None:
    """Write what a shard gave, part by part."""
    if place is not None:
        for number, part in enumerate(parts):
            part.save(_numbered(place, number))
