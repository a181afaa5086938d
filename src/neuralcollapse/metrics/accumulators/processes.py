"""Sums and gathers over torch.distributed, on whatever device the group works on."""

from typing import Any

import torch
from torch import Tensor, distributed

__all__ = ["gather_rows", "rank_of", "sum_over", "world_of"]


def _device_of(group: Any) -> torch.device:
    """The CPU where the group can use it (gloo), else its accelerator (NCCL)."""
    kinds = [part.split(":")[0] for part in str(distributed.get_backend_config(group)).split(",")]
    if "cpu" in kinds or not kinds:
        return torch.device("cpu")
    kind = kinds[0]
    return torch.device(kind, torch.get_device_module(kind).current_device())


def world_of(group: Any) -> int:
    """How many processes the group has."""
    return distributed.get_world_size(group)


def rank_of(group: Any) -> int:
    """The number of this process in the group."""
    return distributed.get_rank(group)


def sum_over(tensors: list[Tensor], group: Any) -> list[Tensor]:
    """Each tensor summed over all processes, by one reduction in float64."""
    flat = torch.cat([tensor.to("cpu").to(torch.float64).reshape(-1) for tensor in tensors]).to(_device_of(group))
    distributed.all_reduce(flat, group=group)
    parts = flat.split([tensor.numel() for tensor in tensors])
    result = []
    for part, tensor in zip(parts, tensors, strict=True):
        whole = part if tensor.is_floating_point() else part.round()
        result.append(whole.to(tensor.device, tensor.dtype).view_as(tensor).clone())
    return result


def gather_rows(rows: Tensor, group: Any, counts: list[int]) -> Tensor:
    """The rows of all processes, in the order of their ranks; ``counts`` says how many each has."""
    device, longest = _device_of(group), max(counts)
    padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype, device=device)
    padded[: rows.shape[0]] = rows.to(device)
    parts = [torch.empty_like(padded) for _ in counts]
    distributed.all_gather(parts, padded, group=group)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)]).to(rows.device)
