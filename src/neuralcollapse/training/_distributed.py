"""Several processes as one: sums over ranks, and batch norm over the whole batch.

Every process holds the same weights and takes its share of each batch; gradients are summed, so the steps are those
of one process with the whole batch.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import FunctionCtx

from ._checkpoints import TrainingStopped

__all__ = ["Team", "gathered", "team", "with_synchronised_batch_norm"]


Result = TypeVar("Result")


@dataclass(frozen=True)
class Team:
    """The processes of a run; one process alone is a team of one."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """``tensor`` summed over the processes, in place."""
        if self.size > 1:
            with _ending_together():
                distributed.all_reduce(tensor)
        return tensor

    def share(self, positions: Tensor) -> Tensor:
        """The process's own part of a batch or of a split."""
        return positions[self.rank :: self.size]

    def wait(self) -> None:
        """Wait for the others."""
        if self.size > 1:
            with _ending_together():
                distributed.barrier()

    def first(self, do: Callable[[], Result]) -> Result:
        """What ``do`` gives in the leading process, in every process; what is wrong there is wrong everywhere."""
        if self.size == 1:
            return do()
        answer: list[Any] = [None, None]
        if self.leads:
            try:
                answer[0] = do()
            except (ValueError, OSError) as error:
                answer[1] = str(error)
        with _ending_together():
            distributed.broadcast_object_list(answer)
        if answer[1] is not None:
            raise ValueError(answer[1])
        return answer[0]

    def agree(self, name: str, value: str) -> None:
        """ValueError in every process unless all have the same ``value``."""
        if self.size == 1:
            return
        values: list[Any] = [None] * self.size
        with _ending_together():
            distributed.all_gather_object(values, value)
        others = [rank for rank, other in enumerate(values) if other != values[0]]
        if others:
            raise ValueError(f"{name} differs between processes: that of rank {others[0]} is not that of rank 0")


@contextmanager
def _ending_together() -> Iterator[None]:
    """A process that ends takes the others' connections with it: they end with a line instead of the backend's."""
    try:
        yield
    except RuntimeError as error:
        raise TrainingStopped(
            "another process of this run has ended, so this one cannot go on; the last checkpoint is whole: start all "
            "again with --resume"
        ) from error


@contextmanager
def team(device: torch.device) -> Iterator[Team]:
    """The team that ``torchrun`` started, or that the caller set up; alone when there is none."""
    if distributed.is_available() and distributed.is_initialized():
        yield Team(distributed.get_rank(), distributed.get_world_size())
    elif int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        try:
            yield Team(distributed.get_rank(), distributed.get_world_size())
        finally:
            distributed.destroy_process_group()
    else:
        yield Team()


class _Sum(torch.autograd.Function):
    """The sum over processes; what arrives backwards at the processes is summed as well."""

    @staticmethod
    def forward(ctx: FunctionCtx, tensor: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        total = tensor.clone()
        with _ending_together():
            distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        total = gradient.contiguous().clone()
        with _ending_together():
            distributed.all_reduce(total)
        return total


def _summed(tensor: Tensor) -> Tensor:
    total = _Sum.apply(tensor)
    assert isinstance(total, Tensor)
    return total


def gathered(rows: Tensor, labels: Tensor, processes: Team) -> tuple[Tensor, Tensor]:
    """The rows and labels of all processes, in the order of their ranks; gradients flow back to every one."""
    if processes.size == 1:
        return rows, labels
    counts = torch.zeros(processes.size, dtype=torch.int64, device=rows.device)
    counts[processes.rank] = len(rows)
    ends = processes.sum(counts).cumsum(0).tolist()
    mine = slice(ends[processes.rank] - len(rows), ends[processes.rank])
    everyone = rows.new_zeros(ends[-1], rows.shape[1])
    everyone[mine] = rows
    classes = labels.new_zeros(ends[-1])
    classes[mine] = labels
    return _summed(everyone), processes.sum(classes)


class SynchronisedBatchNorm(nn.Module):
    """Batch norm whose mean and variance are those of the batch over all processes; works on the CPU too.

    It takes over the parameters and buffers of an ordinary batch norm, under the same names.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, original: nn.BatchNorm1d | nn.BatchNorm2d):
        super().__init__()
        assert original.momentum is not None
        self.eps = original.eps
        self.momentum: float = original.momentum
        self.weight, self.bias = original.weight, original.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(original, name))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise over all dimensions but the channels."""
        shape = (1, -1) + (1,) * (inputs.ndim - 2)
        if self.training:
            mean, variance = self._statistics(inputs, shape)
        else:
            mean, variance = self.running_mean, self.running_var
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (inputs - mean.view(shape)) * scale.view(shape) + self.bias.view(shape)

    def _statistics(self, inputs: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        over = (0, *range(2, inputs.ndim))
        local = inputs.numel() // inputs.shape[1]
        sums = torch.cat([inputs.sum(over), inputs.new_tensor([local])])
        sums = _summed(sums)
        count = sums[-1].detach()
        mean = sums[:-1] / count
        variance = _summed((inputs - mean.view(shape)).square().sum(over)) / count
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean.detach(), self.momentum)
            self.running_var.lerp_(variance.detach() * (count / (count - 1)), self.momentum)
        return mean, variance


def with_synchronised_batch_norm(module: nn.Module) -> nn.Module:
    """``module`` with every batch norm replaced by a synchronised one, weights kept."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
            setattr(module, name, SynchronisedBatchNorm(child))
        else:
            with_synchronised_batch_norm(child)
    return module
