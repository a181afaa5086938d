"""Argument checks that raise one clear line: the argument's name, what it got, what it takes.

Decays, temperatures and the like are positive numbers whose products, squares and quotients are formed; between 1e-30
and 1e30 a product of ten of them neither overflows nor vanishes. Counts are bounded so that nothing is made of them
before the memory for it is known to be there.
"""

import math
import numbers
import sys
from typing import Any

__all__ = [
    "LARGEST_COUNT",
    "LARGEST_DEPTH",
    "LARGEST_WIDTH",
    "MOST_TRIALS",
    "describe",
    "flag",
    "integer",
    "is_out_of_memory",
    "kind_and_line",
    "one_line",
    "positive_scale",
    "real",
    "unusual_tensor",
]

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


def one_line(error: BaseException, longest: int | None = None) -> str:
    r"""What an error says, in one line of at most ``longest`` characters; its kind where it says nothing.

    >>> one_line(ValueError("no such\n    folder")), one_line(ValueError("long story"), 7), one_line(KeyError())
    ('no such folder', 'long...', 'KeyError')
    """
    text = " ".join(str(error).split()) or type(error).__name__
    return text if longest is None or len(text) <= longest else text[: longest - 3] + "..."


def kind_and_line(error: BaseException) -> str:
    """The error as one line that begins with its kind.

    >>> kind_and_line(ValueError("no such folder")), kind_and_line(KeyError())
    ('ValueError: no such folder', 'KeyError')
    """
    kind, text = type(error).__name__, one_line(error)
    return kind if text == kind else f"{kind}: {text}"


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


SMALLEST_SCALE, LARGEST_SCALE = 1e-30, 1e30

LARGEST_COUNT = 10**12
"""Samples a class."""
LARGEST_WIDTH = 10**6
"""Channels, units or feature dimensions of a net."""
LARGEST_DEPTH = 1000
"""Layers of a net."""
MOST_TRIALS = 10**6
"""Solves in one command."""


def positive_scale(name: str, value: object, *, or_zero: bool = False) -> float:
    """``value`` as a positive float of a size that can be computed with, or zero where that has a meaning.

    >>> positive_scale("weight_decay", 5e-4)
    0.0005
    """
    number = real(name, value)
    if (or_zero and number == 0) or SMALLEST_SCALE <= number <= LARGEST_SCALE:
        return number
    if number <= 0:
        raise ValueError(f"{name} must be {'at least' if or_zero else 'greater than'} 0, got {number:g}")
    zero = "0 or " if or_zero else ""
    raise ValueError(f"{name} must be {zero}between {SMALLEST_SCALE:g} and {LARGEST_SCALE:g}, got {describe(number)}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is not enough memory, as Python's own does and torch's in words.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    (True, True)
    """
    words = ("can't allocate memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(text in str(error) for text in words)
