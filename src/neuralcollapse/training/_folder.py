"""The run directory while the run goes on: what is written when, and what a run that was killed finds again."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from .._support.files import (
    JSONObject,
    damaged,
    digest,
    digests,
    json_text,
    sealed,
    unsealed,
    write_bytes,
    write_json,
    write_text,
)
from ..data import DataSet
from ._checkpoints import Checkpoint, latest, tensors_bytes, write_checkpoint, write_state, writing
from ._trainer import Trainer
from .run import changed_environment, describe_data, describe_environment

__all__ = ["RunFolder", "finished"]


def finished(folder: Path, say: Callable[[str], None]) -> bool:
    """Whether the run has come to its end and what it wrote last is whole; what is not is thrown away, with a line."""
    path = folder / "done.json"
    if not path.is_file():
        return False
    try:
        summary = unsealed(json.loads(path.read_text(encoding="utf-8")))
        fault = damaged(folder, summary.get("files", {})) if "epochs" in summary else "done.json"
    except (ValueError, AttributeError, RecursionError):
        fault = "done.json"
    if fault is None:
        return True
    say(f"{folder / fault} is damaged: this part of the run is done again")
    path.unlink()
    return False


@dataclass
class RunFolder:
    """The run directory while the run goes on; only the leading process writes."""

    folder: Path
    trainer: Trainer
    keep: int
    every: float
    best: JSONObject = field(default_factory=dict)
    best_digest: str | None = None
    """Checksum of ``best.safetensors``."""
    written: int = 0
    """Bytes of ``metrics.jsonl`` that belong to the state of the trainer."""
    last: float = field(default_factory=time.monotonic)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    def start(self, data: DataSet) -> None:
        if not self.trainer.team.leads:
            return
        with writing(self.folder):
            write_json(self.folder / "environment.json", self._environment())
            write_json(self.folder / "data.json", describe_data(data))
            write_text(self.metrics, "")
            write_text(self.folder / "plan.json", self.trainer.plan.to_json() + "\n")

    def _environment(self) -> JSONObject:
        trainer = self.trainer
        return describe_environment(trainer.device, trainer.team.size, trainer.plan.batch_size)

    def mend(self, data: DataSet, say: Callable[[str], None]) -> None:
        """Write anew what a run to go on with should hold and does not, and say what is not as it was."""
        with writing(self.folder):
            texts = {"plan.json": self.trainer.plan.to_json() + "\n", "data.json": json_text(describe_data(data))}
            for name, text in texts.items():
                if not (self.folder / name).is_file() or (self.folder / name).read_bytes() != text.encode():
                    say(f"{self.folder / name} was damaged: written again")
                    write_text(self.folder / name, text)
            now = self._environment()
            try:
                before = json.loads((self.folder / "environment.json").read_text(encoding="utf-8"))
                changes = changed_environment(before, now)
            except (OSError, ValueError, AttributeError, RecursionError):
                say(f"{self.folder / 'environment.json'} was damaged: written again")
                write_json(self.folder / "environment.json", now)
                return
        if changes:
            say(f"this run began with {changes}: its last bits may differ from an undisturbed run's")

    def _first_bytes(self, count: int) -> bytes:
        with self.metrics.open("rb") as file:
            return file.read(count)

    def _fault(self, checkpoint: Checkpoint) -> str | None:
        """Why a checkpoint cannot be gone on from: the measurements up to it must be what they were."""
        stated = checkpoint.state.get("metrics_digest")
        try:
            content = self._first_bytes(checkpoint.state["metrics_bytes"])
        except OSError:
            content = b""
        if len(content) < checkpoint.state["metrics_bytes"] or stated not in (None, digest(content)):
            return "needs lines of metrics.jsonl that are lost or damaged"
        best, stated = checkpoint.state["best"], checkpoint.state.get("best_digest")
        here = bool(best) and (best["epoch"], 0) == (checkpoint.epoch, checkpoint.step)  # then it is written again
        if best and stated and not here and damaged(self.checkpoints, {self._best_file.name: stated}):
            return "needs best.safetensors, which is lost or damaged"
        return None

    def restore(self, say: Callable[[str], None]) -> None:
        """Go back to the last whole checkpoint and forget what was written after it."""
        tell = say if self.trainer.team.leads else lambda line: None
        found = latest(self.checkpoints, tell, self._fault)
        self.trainer.team.wait()  # nobody cuts the file before everybody has looked
        if found is not None:
            self.trainer.restore(found.state, found.epoch, found.step)
            self.best, self.best_digest = found.state["best"], found.state.get("best_digest")
            self.written = found.state["metrics_bytes"]
        where = f"epoch {self.trainer.epoch}, step {self.trainer.step}" if found else "the start"
        if self.trainer.team.leads:
            with writing(self.folder), self.metrics.open("ab") as file:
                file.truncate(self.written)
            if found is None:
                self._best_file.unlink(missing_ok=True)
            elif self._best_is_here():
                write_bytes(self._best_file, tensors_bytes(self._weights()))
            say(f"going on from {where}")

    def add(self, rows: list[JSONObject]) -> None:
        if not self.trainer.team.leads:
            return
        content = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
        with writing(self.folder), self.metrics.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.written += len(content)

    def keep_best(self, accuracy: float) -> None:
        """Keep the model if it is the best on the validation set so far."""
        if not self.best or accuracy > self.best["accuracy"]:
            self.best = {"epoch": self.trainer.epoch, "accuracy": accuracy}

    def checkpoint(self) -> None:
        self.last = time.monotonic()
        if not self.trainer.team.leads:
            return
        lines = self._first_bytes(self.written)
        new_best = self._best_is_here()
        best = tensors_bytes(self._weights()) if new_best else b""
        if new_best:
            self.best_digest = digest(best)
        facts = {"metrics_bytes": self.written, "metrics_digest": digest(lines)}
        state = {**self.trainer.state(), **facts, "best": self.best, "best_digest": self.best_digest}
        with writing(self.folder):
            write_checkpoint(self.checkpoints, Checkpoint(self.trainer.epoch, self.trainer.step, state), self.keep)
            if new_best:  # after the checkpoint, from which a killed run can write it again
                write_bytes(self._best_file, best)

    def checkpoint_when_due(self) -> None:
        if time.monotonic() - self.last >= self.every:
            self.checkpoint()

    @property
    def _best_file(self) -> Path:
        return self.checkpoints / "best.safetensors"

    def _best_is_here(self) -> bool:
        """Whether the weights of this moment are the best so far."""
        return bool(self.best) and (self.best["epoch"], 0) == (self.trainer.epoch, self.trainer.step)

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.cpu().contiguous() for name, tensor in self.trainer.model.state_dict().items()}

    def finish(self, summary: JSONObject) -> None:
        if self.trainer.team.leads:
            with writing(self.folder):
                write_state(self.folder / "model.safetensors", self._weights())
            names = [
                "plan.json",
                "data.json",
                "metrics.jsonl",
                "model.safetensors",
                *(path.name for path in self.folder.glob("features-*")),
            ]
            if self.best:
                names.append("checkpoints/best.safetensors")
            with writing(self.folder):
                summary = {**summary, "files": digests(self.folder, names)}
                write_json(self.folder / "done.json", sealed(summary))
