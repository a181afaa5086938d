"""Parts of a split: balanced subsets, random labels, validation, each drawn once from the seed."""

import hashlib

import torch
from torch import Generator, Tensor

from .._support.checks import flag, integer, real
from ._split import Split

__all__ = ["balanced_subset", "hold_out", "random_labels", "stream"]


def stream(seed: int, purpose: str) -> Generator:
    """A generator for one purpose; what one purpose draws does not depend on the others."""
    digest = hashlib.blake2b(f"{integer('seed', seed, minimum=0)}:{purpose}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def balanced_subset(split: Split, per_class: int, seed: int = 0) -> Split:
    """``per_class`` samples of each class, chosen at random, in their old order."""
    return take_per_class(split, [integer("per_class", per_class, minimum=1)] * split.num_classes, seed)


def take_per_class(split: Split, counts: list[int], seed: int = 0) -> Split:
    """``counts[k]`` samples of class k, chosen at random, in their old order.

    The choice for a smaller count is part of the choice for a larger one.
    """
    chosen: list[Tensor] = []
    for label, count in enumerate(counts):
        mine = torch.nonzero(split.labels == label).flatten()
        if count > len(mine):
            raise ValueError(f"class {label} has {len(mine)} samples, fewer than the {count} asked for")
        order = torch.randperm(len(mine), generator=stream(seed, f"subset {label}"))
        chosen.append(mine[order[:count]])
    return split.select(torch.cat(chosen).sort().values)


def random_labels(split: Split, seed: int = 0, balanced: bool = True) -> Split:
    """The same images with labels that mean nothing, drawn once (geometric, Figures 4 and 8; normalized, Figure 4).

    Args:
        split: The images.
        seed: Where the labels are drawn from.
        balanced: A random permutation of 0, 1, ..., K-1, 0, 1, ..., as in the released code: class sizes differ by at
            most one. Otherwise each label is drawn by itself, uniformly.

    """
    generator = stream(seed, "labels")
    if flag("balanced", balanced):
        return split.relabel(torch.randperm(len(split), generator=generator) % split.num_classes)
    return split.relabel(torch.randint(0, split.num_classes, (len(split),), generator=generator))


def hold_out(split: Split, fraction: float = 0.1, seed: int = 0) -> tuple[Split, Split]:
    """Training and validation parts; each class gives the same share, and at least one sample to each."""
    share = real("fraction", fraction, above=0.0, below=1.0)
    held = torch.zeros(len(split), dtype=torch.bool)
    for label in range(split.num_classes):
        mine = torch.nonzero(split.labels == label).flatten()
        if len(mine) == 1:
            raise ValueError(f"class {label} has one sample, which cannot be split for validation")
        if len(mine):
            count = min(max(1, round(share * len(mine))), len(mine) - 1)
            held[mine[torch.randperm(len(mine), generator=stream(seed, f"validation {label}"))[:count]]] = True
    return split.select(torch.nonzero(~held).flatten()), split.select(torch.nonzero(held).flatten())
