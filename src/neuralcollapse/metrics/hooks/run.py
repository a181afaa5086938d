"""Running a model over a loader to look at it: in evaluation mode, eagerly, and leaving everything as it was."""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ..._support.checks import describe, flag, integer
from ..._support.theme import counting_bar
from ..inputs import length_of
from .batches import Again, Batch, Batches, BatchReader, RawLabels, to_device
from .heads import unwrapped

__all__ = ["ModelRun", "RandomStates", "check_model", "eager", "evaluating"]

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


class RandomStates:
    """Every random state that a pass over a loader may draw from, as it is now."""

    def __init__(self, loader: object):
        self._python, self._arrays, self._torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        self._generators: dict[int, tuple[torch.Generator, torch.Tensor]] = {}
        for owner in (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
            for holder in (owner, getattr(owner, "sampler", None)):
                generator = getattr(holder, "generator", None)
                if isinstance(generator, torch.Generator):
                    self._generators[id(generator)] = (generator, generator.get_state())

    def restore(self) -> None:
        """Put them back."""
        random.setstate(self._python)
        np.random.set_state(self._arrays)
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        for generator, state in self._generators.values():
            generator.set_state(state)


class Buffers:
    """The buffers that a model saves, as they are now: counters, queues and means may move in evaluation, too."""

    def __init__(self, model: nn.Module):
        self._kept = [
            (module, name, tensor, tensor.detach().clone())
            for module in model.modules()
            for name, tensor in module.named_buffers(recurse=False)
            if name not in module._non_persistent_buffers_set
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Put them back."""
        for module, name, tensor, before in self._kept:
            if getattr(module, name) is not tensor:
                setattr(module, name, tensor)
            if not torch.equal(tensor, before):
                tensor.copy_(before)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module has its own mode again."""
    modes = {module: module.training for module in model.modules()}
    try:
        try:
            model.eval()
        except NotImplementedError as error:  # exported programs
            raise TypeError(f"model has no evaluation mode ({error}); give the module that it was made from") from error
        with torch.no_grad(), eager():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class ModelRun:
    """Batches of a loader through a model; the model and the random state are left as found."""

    def __init__(
        self,
        model: nn.Module,
        loader: Batches,
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
        self._why, self._seen, self._cut = "max_batches", 0, False
        self._progress = flag("progress", progress)
        self._model = unwrapped(model)
        tensor = next(iter(model.parameters()), None)
        tensor = next(iter(model.buffers()), None) if tensor is None else tensor
        self._device = torch.device("cpu") if tensor is None else tensor.device
        self._random: RandomStates | None = None
        self._buffers: Buffers | None = None
        self.repeatable = not isinstance(loader, Iterator)

    @contextmanager
    def looking(self, remove: Callable[[], None]) -> Iterator[None]:
        """Everything set for a look at the model; ``remove`` takes the hooks away at the end."""
        with ExitStack() as stack:
            self._random = RandomStates(self.loader)
            stack.callback(self._random.restore)
            self._buffers = Buffers(self._model)
            stack.callback(self._buffers.restore)
            stack.enter_context(evaluating(self._model))
            stack.callback(remove)
            yield

    def batches(self, before: Callable[[], None]) -> Iterator[tuple[RawLabels, Again]]:
        """Run every batch, after a call of ``before``; its labels, and a function that runs it once more.

        Every pass over the loader draws the same random numbers and finds the same buffers, so that a second one sees
        the same samples.
        """
        if self._random is not None:
            self._random.restore()
        if self._buffers is not None:
            self._buffers.restore()
        iterator = iter(self._tracked())
        try:
            for self._seen, batch in enumerate(iterator):
                if self.limit is not None and self._seen >= self.limit:
                    self._cut = True
                    return
                batch = to_device(batch, self._device)
                before()
                states = RandomStates(self.loader)
                labels = self.reader.run(self._model, batch)
                yield labels, self._again(batch, states)
        finally:
            close = getattr(iterator, "close", None)
            if callable(close):
                close()

    def end(self, why: str) -> None:
        """The batch that has just passed is the last, in this run and in others over the loader."""
        self.limit, self._why = self._seen + 1, why

    @property
    def notes(self) -> list[str]:
        """What a reader of the report should know of the run."""
        return [f"measured on the first {self.limit} batches only ({self._why})"] if self._cut else []

    def _again(self, batch: Batch, before: RandomStates) -> Again:
        def again(**extra: object) -> object:
            # With the same random numbers, and the batches that follow are what they would have been without this.
            states = RandomStates(self.loader)
            before.restore()
            try:
                if extra:
                    return self.reader.call(self._model, batch, **extra)
                return self.reader.run(self._model, batch)
            finally:
                states.restore()

        return again

    def _tracked(self) -> Iterable[Batch]:
        return self._counted() if self._progress else self.loader

    def _counted(self) -> Iterator[Batch]:
        total = length_of(self.loader)
        if self.limit is not None:
            total = self.limit if total is None else min(total, self.limit)
        with counting_bar("measuring", total) as tick:
            for batch in self.loader:
                yield batch
                tick()
