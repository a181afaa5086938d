"""Which classes a report is about: all, those that have samples, or those with enough of them."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from .._support.checks import flag, integer

__all__ = ["Selection"]


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
