"""Damage to every kind of file that the program reads, one file at a time."""

import json
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import neuralcollapse as nc
import small_study
from attack.samples import PLAN, PROBLEM, arrays, write_features
from attack.workers import Reporter
from neuralcollapse.studies import run_studies
from neuralcollapse.training import Plan, Run, train
from neuralcollapse.ufm import solve_many

UNREAD = ("seconds.json", "environment.json", "progress.json", "timing.json", ".lock")
UNREAD += ("cells.parquet", "studies.parquet")
"""Files that may differ between two runs, or are remade each time."""
LEAVES = [None, True, 0, -1, 1.5, 1e308, 2**63, 10**30, "", "x", [], {}, [[]], "../../etc", "\ud800"]


def harm(randomly: random.Random, path: Path) -> str:
    """Damage a file in one of the ways in which files are damaged, and say which."""
    content = bytearray(path.read_bytes())
    ways = ["lost", "empty", "zeros", "cut", "bit", "bytes", "size", "gap", "twice", "insert", "json"]
    way = randomly.choice([*ways, "leaf", "leaf"] if path.suffix in (".json", ".jsonl") else ways)
    place = randomly.randrange(len(content)) if content else 0
    if way == "lost":
        path.unlink()
        return way
    if way == "empty":
        content = bytearray()
    elif way == "zeros":
        content = bytearray(len(content))
    elif way == "cut":
        content = content[:place]
    elif way == "bit" and content:
        content[place] ^= 1 << randomly.randrange(8)
    elif way == "bytes":
        content[place : place + 8] = randomly.randbytes(8)
    elif way == "size":  # where headers say how much there is
        place = randomly.randrange(min(len(content), 80)) if content else 0
        content[place : place + 8] = randomly.choice([b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", b"9" * 8])
    elif way == "gap":
        del content[place : place + randomly.randrange(1, 100)]
    elif way == "twice":
        content += content[place:]
    elif way == "insert":
        content[place:place] = randomly.randbytes(randomly.randrange(1, 50))
    elif way == "json":
        content = bytearray(randomly.choice([b"{}", b"[]", b"null", b'{"digest":"x","body":null}', b"[" * 9999]))
    else:
        content = bytearray(_other_leaf(randomly, bytes(content)))
    path.write_bytes(bytes(content))
    return way


def _other_leaf(randomly: random.Random, content: bytes) -> bytes:
    """JSON with one value replaced, or one entry less."""
    lines = content.decode().splitlines() if content.count(b"\n{") else [content.decode()]
    number = randomly.randrange(len(lines))
    value = json.loads(lines[number])
    place = value
    while isinstance(place, dict | list) and place:
        key = randomly.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list) or not place[key] or randomly.random() < 0.2:
            if randomly.random() < 0.2:
                del place[key]
            else:
                place[key] = randomly.choice([leaf for leaf in LEAVES if json.dumps(leaf) != json.dumps(place[key])])
            break
        place = place[key]
    lines[number] = json.dumps(value)
    return "\n".join(lines).encode()


@dataclass(frozen=True)
class Format:
    """A kind of file: how whole ones are made in a folder, what is read of it, and whether damage must be noticed."""

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    checked: bool = True
    """Whether it carries checksums or is made again: what is read is then as it was, or refused. A user's own file
    without one is read, or refused by name."""


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder that must be the same however they came to be."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in UNREAD)
    named = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {name: content for name, content in named.items() if "checkpoints/0" not in name and ".lock" not in name}


# what is read ---------------------------------------------------------------------------------------------------------


def _features(name: str) -> Format:
    def make(folder: Path) -> None:
        write_features(folder / "all")
        shutil.copytree(folder / "all" / name, folder / "data")
        shutil.rmtree(folder / "all")

    return Format(make, lambda folder: nc.measure_files(folder / "data").to_dict(), checked=False)


def _statistics(folder: Path) -> None:
    for number in range(2):
        held = arrays(number)
        statistics = nc.ClassStatistics(3, 4)
        statistics.update(torch.from_numpy(held["features"]), torch.from_numpy(held["labels"]))
        statistics.save(folder / f"{number}.safetensors")


def _report(folder: Path) -> None:
    held = arrays()
    nc.measure(held["features"], held["labels"], held["weight"], held["bias"]).save(folder / "report.json")


def _point(folder: Path) -> None:
    nc.ufm.save_point(folder / "point.safetensors", PROBLEM.random_point(0), {"problem": PROBLEM.to_json()})


def _read_point(folder: Path) -> Any:
    point, notes = nc.ufm.load_point(folder / "point.safetensors")
    problem = nc.ufm.Problem.from_json(notes.get("problem", PROBLEM.to_json()))
    return problem.certify(point).value


def _plan(name: str) -> Format:
    toml = 'data = "digits"\nepochs = 3\nmeasure = [1, 2]\nseed = 4\n'
    text = PLAN.model_dump_json() if name.endswith("json") else toml
    return Format(
        lambda folder: (folder / name).write_text(text) and None, lambda folder: Plan.from_file(folder / name), False
    )


def _history(folder: Path) -> None:
    rows = [{"epoch": epoch, "split": "train", "loss": 1.0 / epoch, "nc1": 0.5**epoch} for epoch in range(1, 5)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _trials(folder: Path) -> Any:
    solve_many(PROBLEM, range(2), workers=1, out=folder, resume=True, max_iter=20)
    return contents(folder)


def _half_run(folder: Path) -> None:
    class StopError(Exception):
        pass

    def stop(progress: Any) -> None:
        if progress.epoch == 3 and progress.step == 1:
            raise StopError

    try:
        train(PLAN, folder / "run", on_step=stop, checkpoint_seconds=0.0)
    except StopError:
        assert Run.open(folder / "run").done is None


def _run(folder: Path) -> Any:
    train(PLAN, folder / "run", resume=True)
    kept = ("metrics.jsonl", "plan.json", "data.json", "done.json", "model.safetensors", "checkpoints/best.safetensors")
    return {name: (folder / "run" / name).read_bytes() for name in kept}


def _study(folder: Path) -> Any:
    study = small_study.Small(small_study.solve_cell(0), small_study.solve_cell(1), small_study.calculation_cell())
    run_studies([study], "smoke", folder, engine="inline")
    return {name: content for name, content in contents(folder).items() if name.startswith("cells")}


def _net() -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(24, 4, generator=generator), torch.arange(24) % 3
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), list(zip(x.split(4), y.split(4), strict=True))


def extracted(folder: Path) -> Any:
    """The shards of a small net."""
    model, batches = _net()
    nc.extract(model, batches, folder / "shards", shard_bytes=100)
    return contents(folder / "shards")


def kept(folder: Path) -> Any:
    """The report on files of which statistics are kept, and those statistics."""
    report = nc.measure_files(folder / "data", out=folder / "kept", workers=1, metrics=["nc1", "numerical_rank"])
    return report.to_dict(), contents(folder / "kept")


def write_shards(folder: Path) -> None:
    """Features in three files."""
    (folder / "data").mkdir(parents=True)
    for number in range(3):
        np.savez(folder / "data" / f"{number}.npz", **arrays(number))  # pyright: ignore[reportArgumentType]


def _make_kept(folder: Path) -> None:
    write_shards(folder)
    kept(folder)


def _images(kind: str) -> Format:
    from data.conftest import write_cifar, write_mini_imagenet, write_mnist

    name = kind.partition(" ")[0]

    def make(folder: Path) -> None:
        if name == "mnist":
            write_mnist(folder, packed="plain" not in kind, train=20, test=10)
        elif name == "mini-imagenet":
            write_mini_imagenet(folder, classes=3, per_class=2, side=8)
        else:
            write_cifar(folder, layout="binary" if "binary" in kind else "pickle")

    def read(folder: Path) -> Any:
        data = nc.data.load(name, folder, cache=False)
        return data.train.labels.tolist(), data.train.images.sum().item()

    return Format(make, read, checked=False)


def _cached(folder: Path) -> Any:
    data = nc.data.load("mnist", folder / "root")
    return data.train.labels.tolist(), data.train.images.sum().item()


def _make_cache(folder: Path) -> None:
    from data.conftest import write_mnist

    write_mnist(folder / "root", train=20, test=10)
    nc.data.load("mnist", folder / "root")


FEATURES = ("npz", "compressed", "npy", "safetensors", "pt", "parquet")


@cache
def formats() -> dict[str, Format]:
    """Every kind of file."""
    found = {f"features.{name}": _features(name) for name in FEATURES}
    for kind in ("mnist", "mnist plain", "cifar10", "cifar10 binary", "mini-imagenet"):
        found[f"data set: {kind}"] = _images(kind)
    return found | {
        "plan.json": _plan("plan.json"),
        "plan.toml": _plan("plan.toml"),
        "history": Format(_history, lambda folder: len(nc.plot_history(folder / "metrics.jsonl").axes), checked=False),
        "statistics": Format(
            _statistics,
            lambda folder: nc.measure_files([folder / f"{number}.safetensors" for number in range(2)]).to_dict(),
        ),
        "report": Format(_report, lambda folder: nc.CollapseReport.load(folder / "report.json").to_dict()),
        "point": Format(_point, _read_point),
        "data cache": Format(_make_cache, _cached),
        "trials": Format(lambda folder: _trials(folder) and None, _trials),
        "interrupted run": Format(_half_run, _run),
        "finished run": Format(lambda folder: _run(folder) and None, _run),
        "study": Format(lambda folder: _study(folder) and None, _study),
        "extracted shards": Format(lambda folder: extracted(folder) and None, extracted),
        "kept statistics": Format(_make_kept, kept),
    }


SLOW = ("trials", "interrupted run", "finished run", "study", "kept statistics", "data set: mini-imagenet")
"""Kinds whose reading is more than reading, so that they come less often."""
BESIDE = {"kept statistics": "kept", "data cache": "root/.neuralcollapse"}
"""The folder of the files to damage, where others lie beside them."""


class Damage:
    """The attack on files: trial ``n`` damages one file of one kind and reads what it belongs to."""

    def __init__(self, seed: int, base: Path):
        self.seed, self.base = seed, base
        self.names = [name for name in formats() for _ in range(1 if name in SLOW else 4)]
        self.expected: dict[str, Any] = {}
        for name, kind in formats().items():
            folder = base / "copy" / "it"  # always the same place: kept statistics go by the paths of their files
            folder.mkdir(parents=True)
            kind.make(folder)
            shutil.copytree(folder, base / "whole" / name)
            self.expected[name] = kind.read(folder)
            shutil.rmtree(base / "copy")

    def __call__(self, number: int, reporter: Reporter) -> None:
        randomly = random.Random(f"{self.seed}/damage/{number}")
        name = self.names[number % len(self.names)]
        kind, folder = formats()[name], self.base / "copy" / "it"
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(self.base / "whole" / name, folder)
        inside = folder / BESIDE.get(name, "")
        files = sorted(path for path in inside.rglob("*") if path.is_file() and path.name not in UNREAD)
        path = randomly.choice(files)
        before = path.read_bytes()
        way = harm(randomly, path)
        what = f"{name}: {way} {path.relative_to(folder)}"
        reporter.now(what)
        ended, bad = self._read(kind, name, folder)
        if path.exists() and path.read_bytes() == before and ended == "accepted":
            ended = "same"
        reporter.ended(ended, name, None if bad is None else f"trial {number}: {what}: {bad}")

    def _read(self, kind: Format, name: str, folder: Path) -> tuple[str, str | None]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = kind.read(folder)
        except (ValueError, TypeError, OSError, NotImplementedError) as error:
            said = str(error)
            if len(said.splitlines()) != 1:
                return "lines", f"not one line: {type(error).__name__}: {said[:300]}"
            return ("refused", None) if str(folder) in said else ("unnamed", f"names no file: {said[:300]}")
        except Exception as error:
            return "fault", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        if _equal(found, self.expected[name]):
            return "same", None
        return ("different", f"believed: {str(found)[:200]}") if kind.checked else ("accepted", None)


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other)
