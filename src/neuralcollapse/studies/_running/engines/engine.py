"""What an engine is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...._support.registry import Registry
from ..._cells import Cell
from ..store import Store

__all__ = ["Engine", "Event", "Failure", "Running", "engines"]

engines: Registry[type["Engine"]] = Registry("engine")


@dataclass(frozen=True)
class Failure:
    """A cell that did not finish, and why, in one line."""

    cell: Cell
    error: str


@dataclass(frozen=True)
class Running:
    """Nothing new: these cells are under way (or about to be), and only they need be asked how far they are."""

    cells: tuple[Cell, ...]


Event = Cell | Failure | Running


class Engine(ABC):
    """Runs cells; which one runs them does not change their results."""

    def __init__(self, workers: int | None = None):
        self.workers = workers

    @property
    @abstractmethod
    def parallel(self) -> int:
        """How many cells run at a time."""

    @abstractmethod
    def run(self, cells: Sequence[Cell], store: Store, root: str | None) -> Iterator[Event]:
        """Begin the cells in this order; yield each when its result is in the store, or its failure.

        Now and then, while there is neither, the cells that are under way.
        """
