"""Checks of tensors and devices, each one clear line: the argument's name, what it got, what it takes."""

import math

import torch
from torch import Tensor

from .checks import describe, unusual_tensor

__all__ = ["device", "finite_tensor", "positions"]


def device(name: str, value: object) -> torch.device:
    """``value`` as a device."""
    if not isinstance(value, str | int | torch.device) or isinstance(value, bool):
        raise TypeError(f"{name} must be a device such as 'cpu' or 'cuda:0', got {describe(value)}")
    try:
        return torch.device(value)
    except RuntimeError:
        raise ValueError(f"{name} must be a device such as 'cpu' or 'cuda:0', got {describe(value)}") from None


def positions(name: str, value: object, count: int) -> Tensor:
    """``value`` if it is a vector of integers from -``count`` to ``count`` - 1 (or of bools, one for each)."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {describe(value)}")
    if value.dtype == torch.bool and value.shape == (count,):
        return value
    if value.ndim != 1 or value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise ValueError(f"{name} must be a vector of integers, got {describe(value)}")
    if value.numel() and not (value.min() >= -count and value.max() < count):
        raise ValueError(f"{name} must lie in {-count}..{count - 1}, got {int(value.min())} to {int(value.max())}")
    return value


def finite_tensor(name: str, value: object, shape: tuple[int | None, ...], dtype: torch.dtype | None = None) -> Tensor:
    """``value`` if it is a finite floating tensor of this shape (``None``: any size) and dtype."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {describe(value)}")
    if unusual_tensor(value) is not None:
        raise ValueError(f"{name} must be a dense tensor of real numbers, got {describe(value)}")
    if value.shape != shape and (
        value.ndim != len(shape) or any(s is not None and s != v for s, v in zip(shape, value.shape, strict=True))
    ):
        wanted = "(" + ", ".join("*" if size is None else str(size) for size in shape) + ")"
        raise ValueError(f"{name} must have shape {wanted}, got {describe(value)}")
    if dtype is not None and value.dtype != dtype:
        raise ValueError(f"{name} must be {str(dtype).removeprefix('torch.')}, got {describe(value)}")
    if not value.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {describe(value)}")
    # The extremes are NaN if an entry is, and take no memory.
    if value.numel() and not all(math.isfinite(extreme) for extreme in torch.aminmax(value.detach())):
        bad = int((~torch.isfinite(value)).sum())
        raise ValueError(f"{name} must be finite, but {bad} of its {value.numel()} entries are NaN or infinite")
    return value
