"""Argument checks that raise one clear line: the argument's name, what it got, what it takes."""

import math
import numbers
import sys
from typing import Any

__all__ = ["describe", "flag", "integer", "real", "unusual_tensor"]


LARGEST = 2**63 - 1
"""The largest integer that arrays can hold."""


def describe(value: object) -> str:
    """A value in few characters, for an error message."""
    torch: Any = sys.modules.get("torch")  # not imported here: the command line's help does without
    if torch is not None and isinstance(value, torch.Tensor):
        tensor: Any = value
        unusual = unusual_tensor(tensor)
        shape = "" if tensor.is_nested else f" of shape {tuple(tensor.shape)}"
        kind = str(tensor.dtype).removeprefix("torch.")
        article = "an" if kind.startswith("int") else "a"
        return f"{article} {kind} tensor{shape}" + ("" if unusual is None else f" ({unusual})")
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python refuses to write integers of more than 4300 digits
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


def unusual_tensor(value: object) -> str | None:
    """What keeps a tensor from being numbers in memory, in a word or two; None for plain ones and other values."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    tensor: Any = value
    if tensor.is_nested:
        return "nested"
    if tensor.layout != torch.strided:
        return str(tensor.layout).removeprefix("torch.").replace("_", " ").strip()
    # A subclass that answers for itself may have numbers behind any device's name.
    if tensor.is_meta and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        return "on the meta device, without numbers"
    if tensor.is_quantized:
        return "quantized"
    if tensor.is_complex():
        return "complex"
    return None


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
