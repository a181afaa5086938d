"""Argument checks that raise one clear line: the argument's name, what it got, what it takes."""

import math
import numbers

import torch
from torch import Tensor

__all__ = ["describe", "device", "finite_tensor", "flag", "integer", "positions", "real"]


LARGEST = 2**63 - 1
"""The largest integer that arrays can hold."""


def describe(value: object) -> str:
    """A value in few characters, for an error message."""
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python refuses to write integers of more than 4300 digits
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


def integer(name: str, value: object, minimum: int | None = None, maximum: int | None = None) -> int:
    """``value`` as an int within bounds (bools and fractional floats are refused)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {describe(value)}")
    number = int(value)
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {describe(number)}")
    largest = LARGEST if maximum is None else maximum
    if number > largest:
        raise ValueError(f"{name} must be at most {largest}, got {describe(number)}")
    if number < -LARGEST:
        raise ValueError(f"{name} must be at least {-LARGEST}, got {describe(number)}")
    return number


def real(
    name: str,
    value: object,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """``value`` as a finite float within closed (minimum, maximum) or open (above, below) bounds."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {describe(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be below 1.8e308 in size, got {describe(value)}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} must be at least {minimum:g}, got {number:g}")
    if maximum is not None and number > maximum:
        raise ValueError(f"{name} must be at most {maximum:g}, got {number:g}")
    if above is not None and number <= above:
        raise ValueError(f"{name} must be greater than {above:g}, got {number:g}")
    if below is not None and number >= below:
        raise ValueError(f"{name} must be less than {below:g}, got {number:g}")
    return number


def flag(name: str, value: object) -> bool:
    """``value`` if it is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {describe(value)}")
    return value


def device(name: str, value: object) -> torch.device:
    """``value`` as a device."""
    if not isinstance(value, str | int | torch.device) or isinstance(value, bool):
        raise TypeError(f"{name} must be a device such as 'cpu' or 'cuda:0', got {describe(value)}")
    try:
        return torch.device(value)
    except RuntimeError:
        raise ValueError(f"{name} must be a device such as 'cpu' or 'cuda:0', got {describe(value)}") from None


def positions(name: str, value: object, count: int) -> Tensor:
    """``value`` if it is a vector of integers from 0 to ``count`` - 1 (or of bools, one for each)."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {describe(value)}")
    if value.dtype == torch.bool and value.shape == (count,):
        return value
    if value.ndim != 1 or value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise ValueError(f"{name} must be a vector of integers, got {describe(value)}")
    if value.numel() and not (value.min() >= -count and value.max() < count):
        raise ValueError(f"{name} must be below the number of samples, {count}, got {int(value.max())}")
    return value


def finite_tensor(name: str, value: object, shape: tuple[int | None, ...], dtype: torch.dtype | None = None) -> Tensor:
    """``value`` if it is a finite floating tensor of this shape (``None``: any size) and dtype."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {describe(value)}")
    wanted = "(" + ", ".join("*" if size is None else str(size) for size in shape) + ")"
    if value.ndim != len(shape) or any(s is not None and s != v for s, v in zip(shape, value.shape, strict=True)):
        raise ValueError(f"{name} must have shape {wanted}, got {describe(value)}")
    if dtype is not None and value.dtype != dtype:
        raise ValueError(f"{name} must be {str(dtype).removeprefix('torch.')}, got {describe(value)}")
    if not value.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {describe(value)}")
    if value.layout != torch.strided:
        raise ValueError(f"{name} must be a dense tensor, got one of layout {value.layout}")
    # The extremes are NaN if an entry is, and take no memory.
    if value.numel() and not all(math.isfinite(extreme) for extreme in torch.aminmax(value)):
        bad = int((~torch.isfinite(value)).sum())
        raise ValueError(f"{name} must be finite, but {bad} of its {value.numel()} entries are NaN or infinite")
    return value
