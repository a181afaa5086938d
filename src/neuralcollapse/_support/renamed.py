"""Names of the last version: they work for one version more, and say what they are called now."""

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["renamed_arguments", "warn_renamed"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Say that ``old`` is called ``new``, to who called the function that calls this."""
    warnings.warn(f"{old} is called {new} now; the old name goes with version 0.3", DeprecationWarning, stacklevel)


def renamed_arguments(**names: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Let a function take keywords by their old names, ``old="new"``.

    >>> @renamed_arguments(size="side")
    ... def area(side: float) -> float:
    ...     return side**2
    >>> with warnings.catch_warnings(action="ignore"):
    ...     area(size=3)
    9
    """

    def decorate(call: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(call)
        def renamed(*given: Arguments.args, **named: Arguments.kwargs) -> Result:
            for old, new in names.items():
                if old in named and new not in named:
                    warn_renamed(f"{old}= of {call.__name__}", f"{new}=")
                    named[new] = named.pop(old)
            return call(*given, **named)

        return renamed

    return decorate
