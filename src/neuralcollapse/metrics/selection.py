"""Which classes a report is about (all, those that have samples, or enough of them), and which group a sample is in.

Groups are for intervals: any split of the samples that does not look at the features will do, as long as every class is
spread evenly over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from .._support.checks import flag, integer
from .processes import Group, rank_of, world_of

__all__ = ["SampleGroups", "Selection", "group_turn", "rank_turn", "turned"]

Part = TypeVar("Part")


@dataclass(frozen=True)
class Selection:
    """Classes to measure, as if there were no others.

    Attributes:
        present_only: leave out classes without samples.
        min_samples: leave out classes with fewer samples than this; 1 for none but, with ``present_only``, those
            without samples.

    >>> import torch
    >>> Selection(min_samples=3).kept(torch.tensor([5, 2, 0, 3])).tolist()
    [0, 3]

    """

    present_only: bool = False
    min_samples: int = 1

    def __post_init__(self) -> None:
        flag("present_only", self.present_only)
        integer("min_samples", self.min_samples, minimum=1)

    def kept(self, counts: Int[Tensor, " K"]) -> Int[Tensor, " kept"] | None:
        """The numbers of the classes to measure, on the CPU; ``None`` for all of them."""
        if not self.present_only and self.min_samples == 1:
            return None
        enough = counts >= self.min_samples
        if bool(enough.all()):
            return None
        kept = enough.nonzero().squeeze(1).to("cpu")
        if kept.shape[0] < 2:
            least = "samples" if self.min_samples == 1 else f"at least {self.min_samples} samples"
            raise ValueError(f"neural collapse needs at least two classes with {least}, got {kept.shape[0]}")
        return kept

    def note(self, counts: Int[Tensor, " K"]) -> str | None:
        """What to tell the reader where samples are left out."""
        few = (counts > 0) & (counts < self.min_samples)
        if not bool(few.any()):
            return None
        return (
            f"{int(few.sum())} of {counts.shape[0]} classes have fewer than {self.min_samples} samples and are left "
            f"out, with their {int(counts[few].sum())} samples"
        )


@dataclass
class SampleGroups:
    """Hands out groups: at random within each batch, in turn within each class over all batches."""

    groups: int
    seen: Int[Tensor, " K"]
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def assign(self, labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """The group of each sample of a batch."""
        order = torch.randperm(labels.shape[0], generator=self.generator)
        shuffled = labels[order]
        by_class = torch.argsort(shuffled, stable=True)
        counts = torch.bincount(labels, minlength=self.seen.shape[0])
        starts = counts.cumsum(0) - counts
        sorted_labels = shuffled[by_class]
        rank = torch.arange(labels.shape[0]) - starts[sorted_labels] + self.seen[sorted_labels]
        self.seen = self.seen + counts
        result = torch.empty_like(labels)
        # Each class starts with another group, so that the groups have the same size.
        result[order[by_class]] = (rank + sorted_labels) % self.groups
        return result


def group_turn(mine: Int[Tensor, "G K"], theirs: Int[Tensor, "G K"]) -> int:
    """By how many places to turn the groups of other samples, so that each class stays spread over all groups.

    Every share of the data hands out groups from the same start: many small shares would fill the first groups only.
    """
    share = mine / mine.sum(0).clamp(min=1)
    overlap = torch.stack([(share.roll(-turn, 0) * theirs).sum() for turn in range(len(mine))])
    return int((overlap <= overlap.min() * (1 + 1e-12)).nonzero()[0])


def rank_turn(groups: int, group: Group) -> int:
    """The same for the processes of a group, which do not know of one another's counts."""
    return rank_of(group) * groups // world_of(group)


def turned(parts: Sequence[Part], turn: int) -> tuple[Part, ...]:
    """The parts, each ``turn`` places later.

    >>> turned("abcd", 1)
    ('d', 'a', 'b', 'c')
    """
    return tuple(parts[(number - turn) % len(parts)] for number in range(len(parts)))
