"""``train``: from a plan to a run directory, resumable at any moment."""

import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch

from .._support.checks import flag, integer, real
from .._support.files import JSONObject, locked
from ..data import DataSet, Split, load
from ._checkpoints import write_state, writing
from ._distributed import Team, team, with_synchronised_batch_norm
from ._folder import RunFolder, finished
from ._measure import features_of, measure_split
from ._trainer import Progress, Trainer
from .matching import compare_with_theory
from .plan import Plan
from .run import Run, net_of

__all__ = ["measured_epochs", "train"]

LOG_POINTS = 20


def train(
    plan: Plan,
    out: str | os.PathLike[str] | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    resume: bool = False,
    keep: int = 2,
    checkpoint_seconds: float = 60.0,
    save_features: bool = False,
    on_step: Callable[[Progress], None] | None = None,
    on_measure: Callable[[JSONObject], None] | None = None,
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
    with team(device) as processes, ExitStack() as held:
        processes.agree("the plan", plan.to_json())
        flag("resume", resume)
        processes.first(lambda: held.enter_context(locked(folder)))
        going_on = processes.first(lambda: _open_folder(folder, plan, resume))
        if going_on and processes.first(lambda: finished(folder, say)):
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
            _check_shares(plan, len(data.train), processes)
            with_synchronised_batch_norm(model)
        model.to(device)
        if plan.channels_last:
            model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        trainer = Trainer(plan, model, data, processes, device)
        files = RunFolder(folder, trainer, keep, checkpoint_seconds)
        if going_on:
            processes.first(lambda: files.mend(data, say))
            files.restore(say)
        else:
            files.start(data)
        processes.wait()
        _train_to_the_end(trainer, files, on_step, on_measure)
        _finish(trainer, files, save_features)
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
        device = torch.device(name)
    except RuntimeError:
        device = None
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    here = "cpu" if count == 0 else f"cpu, cuda and cuda:0 to cuda:{count - 1}" if count > 1 else "cpu and cuda"
    known = device is not None and (
        (device.type == "cpu" and not device.index) or (device.type == "cuda" and (device.index or 0) < count)
    )
    if device is None or not known:
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}; this machine has {here}")
    return device


def _open_folder(folder: Path, plan: Plan, resume: bool) -> bool:
    """Whether to go on with the run in ``folder``; an empty folder starts a new one."""
    started = (folder / "plan.json").is_file()
    if started and Plan.from_file(folder / "plan.json") != plan:
        raise ValueError(f"{folder} holds a run of another plan: choose another folder")
    if started and not resume:
        raise ValueError(f"{folder} holds a run already: resume it or choose another folder")
    return started


def _check_shares(plan: Plan, size: int, processes: Team) -> None:
    """Every process needs a sample of every batch, of which the smallest has size // steps."""
    smallest = size // math.ceil(size / plan.batch_size)
    if smallest < processes.size:
        raise ValueError(
            f"{processes.size} processes need batches of at least {processes.size} samples, but with batch_size "
            f"{plan.batch_size} and {size} training samples the smallest has {smallest}"
        )


def _train_to_the_end(
    trainer: Trainer,
    files: RunFolder,
    on_step: Callable[[Progress], None] | None,
    on_measure: Callable[[JSONObject], None] | None,
) -> None:
    wanted = measured_epochs(trainer.plan)

    def after_step(progress: Progress) -> None:
        if on_step is not None:
            on_step(progress)
        if trainer.step < trainer.steps:
            files.checkpoint_when_due()

    while trainer.epoch < trainer.plan.epochs:
        trainer.run_epoch(after_step)
        if trainer.epoch in wanted:
            rows = _measure_all(trainer)
            files.add(rows)
            for row in rows:
                if row["split"] == "validation":
                    files.keep_best(row["accuracy"])
                if on_measure is not None:
                    on_measure(row)
            files.checkpoint()
        else:
            files.checkpoint_when_due()


def _measure_all(trainer: Trainer) -> list[JSONObject]:
    rows = []
    for name, split in _splits(trainer.data).items():
        values = measure_split(trainer.plan, trainer.model, split, trainer.team, trainer.device)
        rows.append({"epoch": trainer.epoch, "split": name, **values})
    return rows


def _splits(data: DataSet) -> dict[str, Split]:
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    return {name: split for name, split in splits.items() if split is not None}


@torch.no_grad()
def _finish(trainer: Trainer, files: RunFolder, save_features: bool) -> None:
    """Write the final model, the comparison with the theory and, on request, the features; then ``done.json``."""
    if not trainer.team.leads:
        return
    trainer.model.eval()
    summary: JSONObject = {"epochs": trainer.epoch, "best": files.best or None}
    sizes = torch.bincount(trainer.data.train.labels, minlength=trainer.data.num_classes).tolist()
    if len(set(sizes)) > 1:
        summary["class_sizes"] = sizes
    needed = {"train": trainer.data.train} if trainer.plan.decay_on == "features" else {}
    if save_features:
        needed = {"train": trainer.data.train, "test": trainer.data.test}
    for name, split in needed.items():
        batches = list(features_of(trainer.plan, trainer.model, split, Team(), trainer.device))
        features, logits, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        if name == "train" and trainer.plan.decay_on == "features":
            summary["theory"] = compare_with_theory(trainer.plan, trainer.model, features, logits, labels)
        if save_features:
            arrays = {"features": features, "labels": labels, "weight": trainer.model.head.weight.detach()}
            if trainer.model.head.bias is not None:
                arrays["bias"] = trainer.model.head.bias.detach()
            with writing(files.folder):
                arrays = {key: value.cpu().contiguous() for key, value in arrays.items()}
                write_state(files.folder / f"features-{name}.safetensors", arrays)
    files.finish(summary)
