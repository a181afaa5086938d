"""Running a model over a loader to look at it: in evaluation mode, eagerly, and leaving everything as it was."""

import random
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ..._support.checks import describe, flag, integer
from .batches import BatchReader, to_device
from .heads import unwrapped

__all__ = ["Run", "check_model", "eager", "evaluating"]

BATCH = 64
"""Samples a batch where a data set is given instead of a loader."""


def check_model(model: object) -> None:
    """Raise unless ``model`` is a module that hooks can watch."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {describe(model)}")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError("model is a scripted module, which takes no hooks; give the module that it was made from")


@contextmanager
def eager() -> Iterator[None]:
    """Run compiled models as they were written: compiled code skips hooks that came after it."""
    stance = getattr(torch.compiler, "set_stance", None)
    if stance is None:
        yield
        return
    with stance("force_eager"):
        yield


@contextmanager
def kept_random_state(loader: object) -> Iterator[None]:
    """Restore every random state that a pass over a loader may draw from."""
    generators = {}
    for owner in (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
        for holder in (owner, getattr(owner, "sampler", None)):
            generator = getattr(holder, "generator", None)
            if isinstance(generator, torch.Generator):
                generators[id(generator)] = (generator, generator.get_state())
    python, arrays = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
        for generator, state in generators.values():
            generator.set_state(state)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module has its own mode again."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.no_grad(), eager():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class Run:
    """Batches of a loader through a model; the model and the random state are left as found."""

    def __init__(
        self,
        model: nn.Module,
        loader: Any,
        reader: BatchReader,
        *,
        max_batches: int | None = None,
        progress: bool = False,
    ):
        if isinstance(loader, Dataset):
            loader = DataLoader(loader, batch_size=BATCH)
        if not isinstance(loader, Iterable):
            raise TypeError(f"loader must be iterable or a Dataset, got {describe(loader)}")
        self.loader = loader
        self.reader = reader
        self.limit = None if max_batches is None else integer("max_batches", max_batches, minimum=1)
        self.cut = False
        self._progress = flag("progress", progress)
        self._model = unwrapped(model)
        tensor = next(iter(model.parameters()), None)
        tensor = next(iter(model.buffers()), None) if tensor is None else tensor
        self._device = torch.device("cpu") if tensor is None else tensor.device
        self.repeatable = not isinstance(loader, Iterator)

    @contextmanager
    def looking(self, remove: Callable[[], None]) -> Iterator[None]:
        """Everything set for a look at the model; ``remove`` takes the hooks away at the end."""
        with ExitStack() as stack:
            stack.enter_context(kept_random_state(self.loader))
            stack.enter_context(evaluating(self._model))
            stack.callback(remove)
            yield

    def batches(self, before: Callable[[], None]) -> Iterator[tuple[Any, Callable[..., Any]]]:
        """Run every batch, after a call of ``before``; its labels, and a function that runs it once more."""
        iterator = iter(self._tracked())
        try:
            for number, batch in enumerate(iterator):
                if self.limit is not None and number >= self.limit:
                    self.cut = True
                    return
                batch = to_device(batch, self._device)
                before()
                labels = self.reader.run(self._model, batch)
                yield labels, self._again(batch)
        finally:
            close = getattr(iterator, "close", None)
            if callable(close):
                close()

    @property
    def notes(self) -> list[str]:
        """What a reader of the report should know of the run."""
        return [f"measured on the first {self.limit} batches only (max_batches)"] if self.cut else []

    def _again(self, batch: Any) -> Callable[..., Any]:
        def again(**extra: Any) -> Any:
            if extra:
                return self.reader.call(self._model, batch, **extra)
            return self.reader.run(self._model, batch)

        return again

    def _tracked(self) -> Iterable[Any]:
        if not self._progress:
            return self.loader
        from rich.console import Console
        from rich.progress import track

        total: float | None = float(len(self.loader)) if isinstance(self.loader, Sized) else None
        if self.limit is not None:
            total = self.limit if total is None else min(total, self.limit)
        return track(self.loader, "measuring", total=total, console=Console(stderr=True), transient=True)
