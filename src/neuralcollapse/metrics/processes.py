"""Several processes: who measures together, which samples a sampler repeats, sums and gathers over all of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.utils.data import DistributedSampler

from .._support.checks import describe
from .inputs import NonFiniteError, length_of

__all__ = ["Group", "MeasuringTeam", "Reduce", "Shares", "gather_rows", "rank_of", "sum_over", "team_of", "world_of"]

Group = distributed.ProcessGroup | None
"""Processes that sum and gather together; ``None`` for all."""
Reduce = bool | Group
"""Whether to measure over processes: all, a group of them, none, or ``None`` for what the loader does."""
Value = TypeVar("Value")


class MeasuringTeam:
    """The processes whose samples make one report; alone, every method does nothing."""

    def __init__(self, group: Group = None, together: bool = False):
        self.group, self.together = group, together
        running = distributed.is_available() and distributed.is_initialized()
        self.size = distributed.get_world_size(group) if running else 1
        self.rank = distributed.get_rank(group) if running else 0
        self.together = together and self.size > 1

    @property
    def note(self) -> str | None:
        """What a report on a part of the data says."""
        if self.together or self.size == 1:
            return None
        return f"the samples of process {self.rank} of {self.size} only; reduce=True measures those of all"

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes, in order."""
        if not self.together:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value, group=self.group)
        return values

    @contextmanager
    def failing_together(self) -> Iterator[None]:
        """An error in one process is raised in all, so that none waits for the others for ever."""
        mine: Exception | None = None
        try:
            yield
        except Exception as error:
            mine = error
        sizes = mine.sizes if isinstance(mine, NonFiniteError) else None
        told = None if mine is None else (isinstance(mine, NonFiniteError), str(mine), sizes)
        errors = self.gather(told)
        if mine is not None:
            raise mine
        for rank, error in enumerate(errors):
            if error is not None:
                diverged, text, sizes = error
                raised = (NonFiniteError if diverged else RuntimeError)(f"in process {rank}: {text}")
                if isinstance(raised, NonFiniteError):
                    raised.sizes = sizes
                raise raised


def team_of(reduce: object, loader: object) -> MeasuringTeam:
    """The processes to measure with: by default all, where the loader gives each process a share of its own."""
    if reduce is None:
        return MeasuringTeam(None, Shares(loader).distributed)
    if isinstance(reduce, bool):
        return MeasuringTeam(None, reduce)
    if not isinstance(reduce, distributed.ProcessGroup):
        raise TypeError(f"reduce must be None, True, False or a process group, got {describe(reduce)}")
    return MeasuringTeam(reduce, True)


class Shares:
    """The share that a process has of a distributed loader, without the samples that fill up the last round.

    Samplers repeat samples so that all processes have as many. The i-th sample of process r of n is sample
    r + i n of all under ``DistributedSampler``; with whole batches dealt out in turn (accelerate), batch b is
    batch r + b n of all. What lies beyond the end of the data is a repetition.
    """

    def __init__(self, loader: object):
        self._samples = self._batches = 0
        sampler, batches = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
        if isinstance(inner := getattr(batches, "sampler", None), DistributedSampler):
            sampler = inner  # of a loader that was given its batches
        self._total: int | None = None
        self._stride = self._rank = 1
        self._size: int | None = None
        self.distributed = False
        if isinstance(sampler, DistributedSampler):
            self.distributed = True
            self._total, self._stride, self._rank = length_of(sampler.dataset), sampler.num_replicas, sampler.rank
        elif int(getattr(batches, "num_processes", 1) or 1) > 1:
            self.distributed = True
            if not getattr(batches, "split_batches", False):
                self._total, self._size = (
                    length_of(getattr(loader, "dataset", None)),
                    getattr(batches, "batch_size", None),
                )
                self._stride = int(getattr(batches, "num_processes", 1))
                self._rank = int(getattr(batches, "process_index", 0))
        elif int(getattr(getattr(loader, "dataset", None), "num_processes", 1) or 1) > 1:
            self.distributed = True

    def restart(self) -> None:
        """A new pass over the loader begins."""
        self._samples = self._batches = 0

    def own(self, size: int) -> Tensor | None:
        """Which of the next ``size`` samples are no repetitions; ``None`` for all."""
        first, batch = self._samples, self._batches
        self._samples, self._batches = first + size, batch + 1
        if self._total is None:
            return None
        if self._size is None:
            places = self._rank + (first + torch.arange(size)) * self._stride
        else:
            places = (self._rank + batch * self._stride) * self._size + torch.arange(size)
        kept = places < self._total
        return None if bool(kept.all()) else kept


def _device_of(group: Group) -> torch.device:
    """The CPU where the group can use it (gloo), else its accelerator (NCCL)."""
    kinds = [part.split(":")[0] for part in str(distributed.get_backend_config(group)).split(",")]
    if "cpu" in kinds or not kinds:
        return torch.device("cpu")
    kind = kinds[0]
    return torch.device(kind, torch.get_device_module(kind).current_device())


def world_of(group: Group) -> int:
    """How many processes the group has."""
    return distributed.get_world_size(group)


def rank_of(group: Group) -> int:
    """The number of this process in the group."""
    return distributed.get_rank(group)


def sum_over(tensors: list[Tensor], group: Group) -> list[Tensor]:
    """Each tensor summed over all processes, by one reduction in float64."""
    flat = torch.cat([tensor.to("cpu").to(torch.float64).reshape(-1) for tensor in tensors]).to(_device_of(group))
    distributed.all_reduce(flat, group=group)
    parts = flat.split([tensor.numel() for tensor in tensors])
    result = []
    for part, tensor in zip(parts, tensors, strict=True):
        whole = part if tensor.is_floating_point() else part.round()
        result.append(whole.to(tensor.device, tensor.dtype).view_as(tensor).clone())
    return result


def gather_rows(rows: Tensor, group: Group, counts: list[int]) -> Tensor:
    """The rows of all processes, in the order of their ranks; ``counts`` says how many each has."""
    device, longest = _device_of(group), max(counts)
    padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype, device=device)
    padded[: rows.shape[0]] = rows.to(device)
    parts = [torch.empty_like(padded) for _ in counts]
    distributed.all_gather(parts, padded, group=group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)]).to(rows.device)
