"""Imbalances: how many samples of each class are kept, from the largest class to the smallest."""

from collections.abc import Callable
from dataclasses import dataclass

from .._support.checks import real
from .._support.registry import Registry
from .._support.renamed import renamed_arguments
from ._split import Split
from .subsets import take_per_class

__all__ = ["ExponentialImbalance", "StepImbalance", "imbalanced_subset", "imbalances"]

imbalances: Registry[type[Callable[[int, int], list[int]]]] = Registry("imbalance")


@imbalances.add("exponential")
@dataclass(frozen=True)
class ExponentialImbalance:
    """Class k keeps ``largest * ratio^(-k/(K-1))`` samples: a long tail."""

    ratio: float = 10.0

    def __post_init__(self) -> None:
        real("ratio", self.ratio, minimum=1.0)

    def __call__(self, largest: int, num_classes: int) -> list[int]:
        """Samples of each class, at least one."""
        return [max(1, round(largest * self.ratio ** (-k / (num_classes - 1)))) for k in range(num_classes)]


@imbalances.add("step")
@dataclass(frozen=True)
class StepImbalance:
    """The last ``minority`` of the classes keep ``largest / ratio`` samples, the others all."""

    ratio: float = 10.0
    minority: float = 0.5

    def __post_init__(self) -> None:
        real("ratio", self.ratio, minimum=1.0)
        real("minority", self.minority, above=0.0, below=1.0)

    def __call__(self, largest: int, num_classes: int) -> list[int]:
        """Samples of each class, at least one."""
        few = min(max(1, round(self.minority * num_classes)), num_classes - 1)
        return [largest] * (num_classes - few) + [max(1, round(largest / self.ratio))] * few


@renamed_arguments(profile="imbalance")
def imbalanced_subset(split: Split, imbalance: str, seed: int = 0) -> Split:
    """The split with its classes cut to an imbalance such as ``"exponential:ratio=100"`` or ``"step:ratio=10"``.

    The largest class keeps as many samples as the smallest class of ``split`` has.
    """
    name, arguments = imbalances.parse(imbalance)
    counts = imbalances[name](**arguments)(int(split.class_counts.min()), split.num_classes)
    return take_per_class(split, counts, seed)
