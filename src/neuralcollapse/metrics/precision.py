"""The rounding that features carry, from the coarsest dtype they had.

A count of samples is kept for each number of binary digits: it adds up under merges and sums over processes,
and the coarsest dtype is the first with samples.
"""

import torch
from torch import Tensor

from .._support.checks import describe

__all__ = [
    "DIGITS",
    "as_precision",
    "coarser",
    "coarsest",
    "computed_in",
    "digits_of",
    "precision_named",
    "rounding_of",
]

DIGITS = 53
"""Length of the counts: a float64 has 52 binary digits after the leading one."""

KNOWN = {
    round(-torch.tensor(torch.finfo(dtype).eps, dtype=torch.float64).log2().item()): dtype
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
}


def digits_of(dtype: torch.dtype) -> int:
    """Binary digits after the leading one: 52, 23, 10 and 7 for float64, float32, float16 and bfloat16."""
    return next((digits for digits, known in KNOWN.items() if known == dtype), min(KNOWN))


def coarsest(counts: Tensor) -> torch.dtype:
    """The dtype with the fewest digits that has samples; float64 where there are none."""
    found = [digits for digits in sorted(KNOWN) if int(counts[digits])]
    return KNOWN[found[0]] if found else torch.float64


def as_precision(value: object, dtype: torch.dtype) -> torch.dtype:
    """The coarser of the features' ``dtype`` and ``value``, a floating dtype or ``None``."""
    if value is None:
        return dtype
    if not isinstance(value, torch.dtype) or value not in KNOWN.values():
        names = ", ".join(str(known) for known in KNOWN.values())
        raise TypeError(f"precision must be None or one of {names}, got {describe(value)}")
    return coarser(value, dtype)


def coarser(*dtypes: torch.dtype | None) -> torch.dtype:
    """The dtype with the fewest digits; float64 where none is given.

    >>> coarser(torch.float32, None, torch.bfloat16)
    torch.bfloat16
    """
    return min((dtype for dtype in dtypes if dtype is not None), key=digits_of, default=torch.float64)


def computed_in(tensor: Tensor) -> torch.dtype:
    """The coarser of a floating tensor's dtype and that of the autocast in force, which it may have been rounded to."""
    kind = tensor.device.type
    # Autocast leaves float64 alone.
    if tensor.dtype == torch.float64 or not torch.amp.is_autocast_available(kind):
        return tensor.dtype
    return coarser(tensor.dtype, torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None)


def precision_named(name: object) -> torch.dtype | None:
    """The dtype of a name such as ``"bfloat16"`` in a file; ``None`` for other values."""
    return next((dtype for dtype in KNOWN.values() if str(dtype) == f"torch.{name}"), None)


def rounding_of(dtype: torch.dtype, size: float) -> float:
    """How far apart numbers of about ``size`` lie in ``dtype``, subnormal ones included."""
    limits = torch.finfo(dtype)
    return limits.eps * max(size, limits.tiny)
