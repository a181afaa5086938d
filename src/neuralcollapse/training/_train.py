"""``train``: from a plan to a run directory, resumable at any moment."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .._support.checks import flag, integer, real
from .._support.files import write_json, write_text
from ..data import DataSet, Split, load
from ._distributed import Team, team, with_synchronised_batch_norm
from ._engine import Engine, Progress
from ._errors import writing
from ._measure import features_of, measure_split
from ._state import Checkpoint, latest, write_checkpoint, write_tensors
from ._theory import compare_with_theory
from .plan import Plan
from .run import Run, describe_environment, net_of

__all__ = ["measured_epochs", "train"]

LOG_POINTS = 20


def train(
    plan: Plan,
    out: str | os.PathLike[str] | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    resume: bool = False,
    keep: int = 2,
    checkpoint_seconds: float | int = 60.0,
    save_features: bool = False,
    on_step: Callable[[Progress], None] | None = None,
    on_measure: Callable[[dict[str, Any]], None] | None = None,
    message: Callable[[str], None] | None = None,
) -> Run:
    """Train as ``plan`` says and return the run; ``out`` is its directory (default: ``runs/`` and the run id).

    A run that was killed goes on with ``resume=True`` and ends in the same weights and metrics, bit by bit, as one
    that was not (on the CPU, with the same number of threads). Under ``torchrun`` every process takes its share of
    each batch.

    ``root`` is the folder of the data; ``keep`` the number of checkpoints kept; ``checkpoint_seconds`` the time between
    two of them, besides those after each measurement; ``save_features`` writes the final features of the training and
    test sets. ``on_step``, ``on_measure`` and ``message`` are told what happens.
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must be a Plan, got {type(plan).__name__}")
    integer("keep", keep, minimum=1)
    real("checkpoint_seconds", checkpoint_seconds, minimum=0.0)
    folder = Path(out) if out is not None else Path("runs") / plan.run_id
    say = message or (lambda line: None)
    device = _device(plan.device)
    with team(device) as processes:
        going_on = _open_folder(folder, plan, flag("resume", resume), processes)
        if going_on and (folder / "done.json").is_file():
            say(f"{folder} is finished already")
            return Run(folder)
        data = load(
            plan.data,
            root,
            per_class=plan.per_class,
            test_per_class=plan.test_per_class,
            validation=plan.validation,
            imbalance=plan.imbalance,
            random_labels=plan.random_labels,
            seed=plan.seed,
        )
        model = net_of(plan, data.image_shape, data.num_classes)
        if processes.size > 1:
            with_synchronised_batch_norm(model)
        model.to(device)
        if plan.channels_last:
            model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        engine = Engine(plan, model, data, processes, device)
        files = _Files(folder, engine, keep, checkpoint_seconds)
        if going_on:
            files.restore(say)
        else:
            files.start(data)
        processes.wait()
        _run(engine, files, on_step, on_measure)
        _finish(engine, files, save_features)
        processes.wait()
    return Run(folder)


def measured_epochs(plan: Plan) -> frozenset[int]:
    """The epochs after which the plan measures; the last one always is."""
    if isinstance(plan.measure, tuple):
        return frozenset(plan.measure) | {plan.epochs}
    if plan.measure == "every":
        return frozenset(range(1, plan.epochs + 1))
    points = (plan.epochs ** (i / (LOG_POINTS - 1)) for i in range(LOG_POINTS))
    return frozenset(round(point) for point in points) | {1, plan.epochs}


def _device(name: str) -> torch.device:
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}") from None


def _open_folder(folder: Path, plan: Plan, resume: bool, processes: Team) -> bool:
    """Whether to go on with the run in ``folder``; an empty folder starts a new one."""
    started = (folder / "plan.json").is_file()
    processes.wait()  # nobody writes before everybody has looked
    if started and Plan.from_file(folder / "plan.json") != plan:
        raise ValueError(f"{folder} holds a run of another plan: choose another folder")
    if started and not resume:
        raise ValueError(f"{folder} holds a run already: resume it or choose another folder")
    return started


@dataclass
class _Files:
    """The run directory while the run goes on; only the leading process writes."""

    folder: Path
    engine: Engine
    keep: int
    every: float | int
    best: dict[str, Any] = field(default_factory=dict)
    written: int = 0
    """Bytes of ``metrics.jsonl`` that belong to the state of the engine."""
    last: float = field(default_factory=time.monotonic)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    def start(self, data: DataSet) -> None:
        engine = self.engine
        if not engine.team.leads:
            return
        with writing(self.folder):
            environment = describe_environment(engine.device, engine.team.size, engine.plan.batch_size)
            write_json(self.folder / "environment.json", environment)
            sizes = {"train": data.train, "validation": data.validation, "test": data.test}
            write_json(
                self.folder / "data.json",
                {
                    "name": data.name,
                    "image_shape": list(data.image_shape),
                    "num_classes": data.num_classes,
                    "classes": list(data.classes),
                    "sizes": {name: len(split) for name, split in sizes.items() if split is not None},
                    "mean": data.train.normalisation.mean.tolist(),
                    "std": data.train.normalisation.std.tolist(),
                },
            )
            write_text(self.metrics, "")
            write_text(self.folder / "plan.json", engine.plan.to_json() + "\n")

    def restore(self, say: Callable[[str], None]) -> None:
        """Go back to the last whole checkpoint and forget what was written after it."""
        found = latest(self.checkpoints, say if self.engine.team.leads else lambda line: None)
        if found is not None:
            self.engine.restore(found.state, found.epoch, found.step)
            self.best = found.state["best"]
            self.written = found.state["metrics_bytes"]
        where = f"epoch {self.engine.epoch}, step {self.engine.step}" if found else "the start"
        if self.engine.team.leads:
            for leftover in self.checkpoints.glob(".*.tmp"):
                leftover.unlink(missing_ok=True)
            with writing(self.folder), self.metrics.open("ab") as file:
                file.truncate(self.written)
            say(f"going on from {where}")

    def add(self, rows: list[dict[str, Any]]) -> None:
        if not self.engine.team.leads:
            return
        content = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
        with writing(self.folder), self.metrics.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.written += len(content)

    def keep_best(self, accuracy: float) -> None:
        """Keep the model if it is the best on the validation set so far."""
        if self.best and accuracy <= self.best["accuracy"]:
            return
        self.best = {"epoch": self.engine.epoch, "accuracy": accuracy}
        self._write_model(self.checkpoints / "best.safetensors")

    def checkpoint(self) -> None:
        self.last = time.monotonic()
        if not self.engine.team.leads:
            return
        state = {**self.engine.state(), "best": self.best, "metrics_bytes": self.written}
        with writing(self.folder):
            write_checkpoint(self.checkpoints, Checkpoint(self.engine.epoch, self.engine.step, state), self.keep)

    def checkpoint_when_due(self) -> None:
        if time.monotonic() - self.last >= self.every:
            self.checkpoint()

    def _write_model(self, path: Path) -> None:
        if self.engine.team.leads:
            state = self.engine.model.state_dict()
            with writing(self.folder):
                write_tensors(path, {name: tensor.cpu().contiguous() for name, tensor in state.items()})

    def finish(self, summary: dict[str, Any]) -> None:
        self._write_model(self.folder / "model.safetensors")
        if self.engine.team.leads:
            with writing(self.folder):
                write_json(self.folder / "done.json", summary)


def _run(
    engine: Engine,
    files: _Files,
    on_step: Callable[[Progress], None] | None,
    on_measure: Callable[[dict[str, Any]], None] | None,
) -> None:
    wanted = measured_epochs(engine.plan)

    def after_step(progress: Progress) -> None:
        if on_step is not None:
            on_step(progress)
        if engine.step < engine.steps:
            files.checkpoint_when_due()

    while engine.epoch < engine.plan.epochs:
        engine.run_epoch(after_step)
        if engine.epoch in wanted:
            rows = _measure_all(engine)
            files.add(rows)
            for row in rows:
                if row["split"] == "validation":
                    files.keep_best(row["accuracy"])
                if on_measure is not None:
                    on_measure(row)
            files.checkpoint()
        else:
            files.checkpoint_when_due()


def _measure_all(engine: Engine) -> list[dict[str, Any]]:
    rows = []
    for name, split in _splits(engine.data).items():
        values = measure_split(engine.plan, engine.model, split, engine.team, engine.device)
        rows.append({"epoch": engine.epoch, "split": name, **values})
    return rows


def _splits(data: DataSet) -> dict[str, Split]:
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    return {name: split for name, split in splits.items() if split is not None}


@torch.no_grad()
def _finish(engine: Engine, files: _Files, save_features: bool) -> None:
    """Write the final model, the comparison with the theory and, on request, the features; then ``done.json``."""
    if not engine.team.leads:
        return
    engine.model.eval()
    summary: dict[str, Any] = {"epochs": engine.epoch, "best": files.best or None}
    needed = {"train": engine.data.train} if engine.plan.decay_on == "features" else {}
    if save_features:
        needed = {"train": engine.data.train, "test": engine.data.test}
    for name, split in needed.items():
        batches = list(features_of(engine.plan, engine.model, split, Team(), engine.device))
        features, logits, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        if name == "train" and engine.plan.decay_on == "features":
            summary["theory"] = compare_with_theory(engine.plan, engine.model, features, logits, labels)
        if save_features:
            arrays = {"features": features, "labels": labels, "weight": engine.model.head.weight.detach()}
            if engine.model.head.bias is not None:
                arrays["bias"] = engine.model.head.bias.detach()
            with writing(files.folder):
                arrays = {key: value.cpu().contiguous() for key, value in arrays.items()}
                write_tensors(files.folder / f"features-{name}.safetensors", arrays)
    files.finish(summary)
