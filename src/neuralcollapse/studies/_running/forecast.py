"""How long cells will take: from cells like them that have run, else from a guess that those correct."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .._cells import Cell

__all__ = ["CellProgress", "Forecast"]

TELLING = 0.02
"""The fraction of a cell from which its own pace says when it will end."""


@dataclass(frozen=True)
class CellProgress:
    """How far a cell is: the fraction that is done, and the seconds spent on it, by the clock and of a processor."""

    fraction: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


class Forecast:
    """Seconds that are left of a run.

    Cells that differ by their seed only are one family, and take the same time. A family of which nothing has run is
    guessed from its settings; the guesses of a kind of cell are scaled by what its families took that have run.
    """

    def __init__(self, cells: Iterable[Cell], workers: int):
        self.workers = workers
        self.spent = 0.0
        self._cells = {cell.key: cell for cell in cells}
        self._family = {key: cell.family for key, cell in self._cells.items()}
        self._kind = {self._family[key]: cell.kind for key, cell in self._cells.items()}
        self._guess = {self._family[key]: _guess(cell) for key, cell in self._first_of_families()}
        self._waiting = Counter(self._family.values())
        self._known: dict[str, list[float]] = {}

    def _first_of_families(self) -> list[tuple[str, Cell]]:
        first = {family: key for key, family in reversed(self._family.items())}
        return [(key, self._cells[key]) for key in first.values()]

    def learn(self, cell: Cell, seconds: float | None) -> None:
        """A cell has ended, after so many seconds (None: it failed, or did not say)."""
        family = self._family[cell.key]
        self._waiting[family] -= 1
        if seconds is not None:
            self._known.setdefault(family, []).append(seconds)
            self.spent += seconds

    def longest_first(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells, the longest first: a long one that begins last keeps one worker busy and the others idle."""
        scales = self._scales({})
        return sorted(cells, key=lambda cell: -self._expected(self._family[cell.key], scales, {}))

    def left(self, running: Mapping[str, CellProgress]) -> float | None:
        """Seconds until all is done, from how far the cells under way are, by key; None while nothing is known."""
        paces: dict[str, float] = {}
        for key, progress in running.items():
            if progress.fraction >= TELLING and progress.seconds > 0:
                paces[self._family[key]] = progress.seconds / progress.fraction
        if not self._known and not paces:
            return None
        scales = self._scales(paces)
        ends = []
        waiting = Counter(self._waiting)
        for key, progress in running.items():
            family = self._family[key]
            waiting[family] -= 1
            ends.append(self._remaining(family, progress, scales, paces))
        total = sum(ends)
        longest = max(ends, default=0.0)
        for family, count in waiting.items():
            if count > 0:
                seconds = self._expected(family, scales, paces)
                total += count * seconds
                longest = max(longest, seconds)
        return max(total / self.workers, longest)

    def _remaining(
        self, family: str, progress: CellProgress, scales: Mapping[str, float], paces: Mapping[str, float]
    ) -> float:
        if progress.fraction >= TELLING:
            own = progress.seconds * (1 - progress.fraction) / progress.fraction
            if family not in self._known:
                return own
            # A solve may end long before its last iteration: its siblings know better.
            usual = self._expected(family, scales, paces) - progress.seconds
            return min(own, usual) if usual > 0 else own
        return max(0.0, self._expected(family, scales, paces) - progress.seconds)

    def _expected(self, family: str, scales: Mapping[str, float], paces: Mapping[str, float]) -> float:
        known = self._known.get(family)
        if known:
            return sum(known) / len(known)
        return paces.get(family, self._guess[family] * scales.get(self._kind[family], scales.get("", 1.0)))

    def _scales(self, paces: Mapping[str, float]) -> dict[str, float]:
        """Seconds taken over seconds guessed, by kind of cell, and of all kinds."""
        taken: Counter[str] = Counter()
        guessed: Counter[str] = Counter()
        seen = {family: sum(values) / len(values) for family, values in self._known.items()}
        for family, seconds in {**paces, **seen}.items():
            for kind in (self._kind[family], ""):
                taken[kind] += seconds  # type: ignore[assignment]  (sums of seconds)
                guessed[kind] += self._guess[family]  # type: ignore[assignment]
        return {kind: taken[kind] / guessed[kind] for kind in taken if guessed[kind]}


def _guess(cell: Cell) -> float:
    try:
        return max(cell.guess(), 1e-3)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return 1.0  # the cell will say itself what is wrong with it
