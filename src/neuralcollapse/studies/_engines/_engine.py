"""What an engine is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..._support.registry import Registry
from .._cells import Cell
from .._store import Store

__all__ = ["Engine", "Failure", "engines", "one_line"]

engines: Registry[type["Engine"]] = Registry("engine")


@dataclass(frozen=True)
class Failure:
    """A cell that did not finish, and why, in one line."""

    cell: Cell
    error: str


class Engine(ABC):
    """Runs cells; which one runs them does not change their results."""

    def __init__(self, workers: int | None = None):
        self.workers = workers

    @abstractmethod
    def run(self, cells: Sequence[Cell], store: Store, root: str | None) -> Iterator[Cell | Failure | None]:
        """Yield each cell when its result is in the store, or its failure; None now and then while there is neither."""


def one_line(error: BaseException) -> str:
    """The error as one line that names its kind."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
