"""The one table of how large and how small a number may be before it is taken for a slip of the pen.

Decays, temperatures and the like are positive numbers whose products, squares and quotients are formed; between 1e-30
and 1e30 a product of ten of them neither overflows nor vanishes. Counts are bounded so that nothing is made of them
before the memory for it is known to be there.
"""

from .checks import describe, real

__all__ = ["LARGEST_COUNT", "LARGEST_DEPTH", "LARGEST_WIDTH", "MOST_TRIALS", "positive_scale"]

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
