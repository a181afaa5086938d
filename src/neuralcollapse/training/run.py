"""A run directory: what a training run leaves behind, and how to read it."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from .._support.checks import describe, one_line
from .._support.files import JSONObject, unsealed
from ..data import DataSet
from ..models import Classifier, create
from .plan import Plan

__all__ = ["Run", "changed_environment", "describe_data", "describe_environment", "net_of"]


def net_of(plan: Plan, image_shape: tuple[int, int, int], num_classes: int) -> Classifier:
    """The net that the plan begins with."""
    return create(
        plan.model,
        image_shape,
        num_classes,
        head=plan.head,
        seed=plan.seed,
        init=plan.init,
        projection=plan.projection,
    )


@dataclass(frozen=True)
class Run:
    """The directory of a run: plan, environment, metrics.jsonl, checkpoints, and done.json at its end."""

    folder: Path

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Run":
        """The run in ``folder``."""
        path = Path(folder)
        if not (path / "plan.json").is_file():
            raise ValueError(f"{path} holds no run: it has no plan.json")
        return cls(path)

    @property
    def plan(self) -> Plan:
        """The plan."""
        return Plan.from_file(self.folder / "plan.json")

    @property
    def done(self) -> JSONObject | None:
        """What a finished run says about itself; ``None`` while it is not finished."""
        path = self.folder / "done.json"
        if not path.is_file():
            return None
        with _reading(path):
            return unsealed(json.loads(path.read_text(encoding="utf-8")))

    @property
    def history(self) -> list[JSONObject]:
        """All lines of ``metrics.jsonl``."""
        path = self.folder / "metrics.jsonl"
        if not path.is_file():
            return []
        with _reading(path):
            return list(_measurements(path))

    def curve(self, name: str, split: str = "train") -> tuple[list[int], list[float | None]]:
        """Epochs and values of one metric on one split."""
        rows = [row for row in self.history if row["split"] == split]
        if rows and name not in rows[0]:
            raise ValueError(f"{describe(name)} was not measured in {self.folder}")
        return [row["epoch"] for row in rows], [row[name] for row in rows]

    def final(self, split: str = "train") -> JSONObject:
        """The last measurement on a split."""
        rows = [row for row in self.history if row["split"] == split]
        if not rows:
            raise ValueError(f"{self.folder} has no measurement on {describe(split)}")
        return rows[-1]

    def model(self, which: str = "final") -> Classifier:
        """The trained model, ``"final"`` or ``"best"`` (by validation accuracy), in evaluation mode."""
        path = self.folder / ("model.safetensors" if which == "final" else "checkpoints/best.safetensors")
        if which not in ("final", "best") or not path.is_file():
            raise ValueError(f"{self.folder} has no {describe(which)} model")
        with _reading(self.folder / "data.json"):
            facts = json.loads((self.folder / "data.json").read_text(encoding="utf-8"))
            channels, height, width = facts["image_shape"]
            model = net_of(self.plan, (channels, height, width), facts["num_classes"])
        with _reading(path):
            model.load_state_dict(load_file(path))
        return model.eval()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """ValueError names the file that cannot be used."""
    try:
        yield
    except (ValueError, KeyError, TypeError, RuntimeError, RecursionError, SafetensorError) as error:
        reason = one_line(error, 200)
        raise ValueError(f"{path}: cannot be used ({reason})") from error


def _measurements(path: Path) -> Iterator[JSONObject]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):
                return  # a killed writer's last line
            raise ValueError(f"line {number} is damaged") from None
        if not isinstance(row, dict) or not {"epoch", "split"} <= set(row):
            raise ValueError(f"line {number} is not a measurement")
        yield row


def describe_data(data: DataSet) -> JSONObject:
    """Shape, classes, sizes and normalisation of the data that a run sees."""
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    return {
        "name": data.name,
        "image_shape": list(data.image_shape),
        "num_classes": data.num_classes,
        "classes": list(data.classes),
        "sizes": {name: len(split) for name, split in splits.items() if split is not None},
        "mean": data.train.normalisation.mean.tolist(),
        "std": data.train.normalisation.std.tolist(),
    }


def changed_environment(before: JSONObject, now: JSONObject) -> str:
    """What decides how numbers are rounded and is not as it was, in words; nothing when all is."""
    words = [f"{before.get(name)} {name}" for name in ("threads", "processes") if before.get(name) != now[name]]
    old, new = before.get("versions", {}), now["versions"]
    words += [f"{name} {old.get(name)}" for name in ("torch", "neuralcollapse", "numpy") if old.get(name) != new[name]]
    if before.get("device") != now["device"]:
        words.append(f"device {before.get('device')}")
    if before.get("platform") != now["platform"]:
        words.append(f"platform {before.get('platform')}")
    return ", ".join(words)


def describe_environment(device: torch.device, team_size: int, batch_size: int) -> JSONObject:
    """Versions, threads and the git state of the user's folder."""
    names = ("neuralcollapse", "torch", "numpy", "scipy", "safetensors", "pydantic")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in names},
        "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
        "processes": team_size,
        "effective_batch_size": batch_size,
        "batch_norm": "over the whole batch" if team_size == 1 else "over the whole batch (synchronised)",
        "git": _git(),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git() -> JSONObject | None:
    """Commit of the working folder and whether it has changes; ``None`` outside a repository."""

    def ask(*arguments: str) -> str:
        command = ("git", *arguments)
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()

    try:
        return {"commit": ask("rev-parse", "HEAD"), "changed": bool(ask("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
