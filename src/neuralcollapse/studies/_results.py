"""What the cells of a study gave, found by their labels."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np

from ..training import Run
from ..ufm import Trace
from ._cells import Cell

__all__ = ["Planned", "Result", "Results", "name_of_labels"]

Label: TypeAlias = Any
"""A string, a number, a truth value or None."""
Value = TypeVar("Value")


def name_of_labels(labels: Mapping[str, Label]) -> str:
    """The labels of a cell in one line, by which it is called.

    >>> name_of_labels({"loss": "ce", "seed": 3})
    'loss=ce, seed=3'
    """
    return ", ".join(f"{name}={value}" for name, value in labels.items())


@dataclass(frozen=True)
class Planned:
    """A cell and the words that say which one of the study it is; labels do not decide its result."""

    cell: Cell
    labels: Mapping[str, Label]

    @property
    def name(self) -> str:
        """The labels in one line."""
        return name_of_labels(self.labels)


@dataclass(frozen=True)
class Result(Generic[Value]):
    """What one cell gave: a :class:`Run`, a :class:`Trace` or a dictionary."""

    labels: Mapping[str, Label]
    value: Value


@dataclass(frozen=True)
class Results(Sequence[Result[Any]]):
    """The results of a study's cells, in the order of its plan; failed cells are left out."""

    profile: str
    entries: tuple[Result[Any], ...]

    @overload
    def __getitem__(self, index: int) -> Result[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Result[Any]]: ...
    def __getitem__(self, index: int | slice) -> Result[Any] | Sequence[Result[Any]]:
        return self.entries[index]

    def __len__(self) -> int:
        return len(self.entries)

    def where(self, **labels: Label) -> "Results":
        """The results that have all of these labels."""
        return self.select(lambda entry: all(entry.labels.get(name) == value for name, value in labels.items()))

    def select(self, condition: Callable[[Result[Any]], bool]) -> "Results":
        """The results for which ``condition`` is true."""
        return Results(self.profile, tuple(entry for entry in self.entries if condition(entry)))

    def only(self, **labels: Label) -> Any:
        """The value of the one result that has these labels; LookupError if there are none or several."""
        found = self.where(**labels)
        if len(found) != 1:
            raise LookupError(f"{len(found)} results have the labels {labels}")
        return found[0].value

    def labels(self, name: str) -> list[Any]:
        """The different values of a label, in the order in which they come."""
        return list(dict.fromkeys(e.labels[name] for e in self.entries if name in e.labels))

    def groups(self, *names: str) -> Iterator[tuple[tuple[Any, ...], "Results"]]:
        """The results by the values of some labels, in the order in which they come."""
        for key in dict.fromkeys(tuple(e.labels.get(name) for name in names) for e in self.entries):
            yield key, self.where(**dict(zip(names, key, strict=True)))

    # numbers ----------------------------------------------------------------------------------------------------

    def final(self, name: str, split: str = "train") -> np.ndarray:
        """The last value of a metric, one a result; NaN where it is not defined."""
        return np.array([_final_value(entry.value, name, split) for entry in self.entries], dtype=float)

    def curves(self, name: str, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
        """Steps (epochs or iterations) and values of a metric, one row a result, for means and bands.

        Results that were recorded at different steps are read off at all steps of any, between their own by linear
        interpolation; after their own last step, which is where they stopped, their last value stands.
        """
        if not self.entries:
            raise LookupError(f"no results to draw {name!r} from")
        pairs = [_curve_of(entry.value, name, split) for entry in self.entries]
        steps = np.unique(np.concatenate([x for x, _ in pairs]))
        return steps, np.array([np.interp(steps, x, y) for x, y in pairs])


def _curve_of(value: object, name: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(value, Run):
        steps, values = value.curve(name, split)
    elif isinstance(value, Trace):
        steps, values = value.history["iteration"], value.history[name]
    else:
        raise TypeError(f"a {type(value).__name__} has no curve")
    return np.array(steps, dtype=float), np.array([np.nan if v is None else v for v in values], dtype=float)


def _final_value(value: Run | Trace | Mapping[str, Any], name: str, split: str) -> float:
    if isinstance(value, Run):
        last = value.final(split)[name]
        return np.nan if last is None else float(last)
    if isinstance(value, Trace):
        last = value.history[name][-1]
        return np.nan if last is None else float(last)
    return float(value[name])
