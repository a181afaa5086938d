"""Learning rates as functions of the epoch: no state, so that a resumed run has nothing to restore."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

from .._support.checks import integer, real
from .._support.registry import Registry

__all__ = ["Schedule", "create_schedule", "schedules"]


@runtime_checkable
class Schedule(Protocol):
    """The learning rate of an epoch (counted from 0) of a run of ``epochs``."""

    def __call__(self, epoch: int, epochs: int, base: float) -> float:
        """The rate."""
        ...


schedules: Registry[type[Schedule]] = Registry("schedule")


def create_schedule(spec: str) -> Schedule:
    """The schedule named by ``spec``, such as ``"step:every=40"``."""
    name, arguments = schedules.parse(spec)
    return schedules[name](**arguments)


@schedules.add("constant")
@dataclass(frozen=True)
class Constant:
    """The same rate throughout."""

    def __call__(self, epoch: int, epochs: int, base: float) -> float:
        """The rate."""
        return base


@schedules.add("step")
@dataclass(frozen=True)
class Step:
    """Times ``factor`` after every ``every`` epochs (geometric, mse, normalized: .1 after every 40)."""

    every: int = 40
    factor: float = 0.1

    def __post_init__(self) -> None:
        integer("every", self.every, minimum=1)
        real("factor", self.factor, above=0.0)

    def __call__(self, epoch: int, epochs: int, base: float) -> float:
        """The rate."""
        return base * self.factor ** (epoch // self.every)


@schedules.add("milestones")
@dataclass(frozen=True)
class Milestones:
    """Times ``factor`` at ``int(first * epochs)`` and again at ``int(second * epochs)`` (losses: 3/7 and 5/7)."""

    first: str | float = "3/7"
    second: str | float = "5/7"
    factor: float = 0.1

    def __post_init__(self) -> None:
        real("factor", self.factor, above=0.0)
        for name in ("first", "second"):
            try:
                share = Fraction(str(getattr(self, name)))
            except (ValueError, ZeroDivisionError):
                raise ValueError(f"{name} must be a fraction such as 3/7, got {getattr(self, name)!r}") from None
            real(name, float(share), above=0.0, maximum=1.0)

    def __call__(self, epoch: int, epochs: int, base: float) -> float:
        """The rate."""
        passed = sum(epoch >= int(Fraction(str(share)) * epochs) for share in (self.first, self.second))
        return base * self.factor**passed


@schedules.add("cosine")
@dataclass(frozen=True)
class Cosine:
    """From the base rate down to ``minimum`` along half a cosine, starting anew after every ``period`` epochs.

    ``period=None`` is one period for the whole run (mse, miniImageNet: 200 epochs, 1e-4).
    """

    period: int | None = None
    minimum: float = 0.0

    def __post_init__(self) -> None:
        if self.period is not None:
            integer("period", self.period, minimum=1)
        real("minimum", self.minimum, minimum=0.0)

    def __call__(self, epoch: int, epochs: int, base: float) -> float:
        """The rate."""
        period = self.period or epochs
        phase = (epoch % period) / period
        return self.minimum + (base - self.minimum) * (1 + math.cos(math.pi * phase)) / 2
