"""Neural collapse of the features in a file that the page sends."""

import zipfile
from pathlib import Path
from typing import Any

from ...metrics import METRICS, measure
from ...metrics.files.arrays import open_arrays
from ._words import METRIC_WORDS

__all__ = ["LARGEST_UPLOAD", "SUFFIXES", "describe_file"]

LARGEST_UPLOAD = 200 << 20
LARGEST_UNPACKED = 1 << 30
SUFFIXES = (".npz", ".safetensors")
ARRAYS = ("features", "labels", "weight", "bias", "out_of_distribution")


def describe_file(path: Path) -> dict[str, Any]:
    """Every metric with its value or the reason for none, its definition and its value at collapse.

    Nothing in the file is executed: no pickles.
    """
    _refuse_bombs(path)
    try:
        arrays = dict(open_arrays(path))
    except ValueError as error:
        # The name of the temporary file says nothing to the user.
        raise ValueError(str(error).removeprefix(f"{path}: ")) from error
    for needed in ("features", "labels"):
        if needed not in arrays:
            raise ValueError(f"no array {needed!r} in the file (it holds: {', '.join(sorted(arrays)) or 'nothing'})")
    report = measure(
        arrays["features"],
        arrays["labels"],
        arrays.get("weight"),
        arrays.get("bias"),
        out_of_distribution=arrays.get("out_of_distribution"),
    )
    return {
        "title": report.title,
        "notes": [*report.notes, *_unread(arrays)],
        "metrics": [
            {
                "name": name,
                "property": METRICS[name].property,
                "meaning": METRIC_WORDS.get(METRICS[name].property.partition(" ")[0], ""),
                "value": value,
                "at_collapse": METRICS[name].at_collapse(report.num_classes),
                "at_random": METRICS[name].at_random,
                "better": METRICS[name].better,
                "definition": METRICS[name].definition,
                "paper": METRICS[name].paper,
                "reason": report.reasons.get(name),
            }
            for name, value in report.values.items()
        ],
    }


def _unread(arrays: dict[str, Any]) -> list[str]:
    others = sorted(set(arrays) - set(ARRAYS))
    return [f"not read: {', '.join(others)}"] if others else []


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
