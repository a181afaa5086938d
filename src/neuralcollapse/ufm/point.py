"""A point of an unconstrained feature model, and its plain file."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .._support.checks import describe
from .._support.tensors import read_tensors, write_tensors

__all__ = ["Point", "load_point", "save_point"]


@dataclass(frozen=True, eq=False)
class Point:
    """Classifier W (K, d), features H (N, d) with rows sorted by class, bias b (K,); float64.

    W is ``None`` in the contrastive model, b is ``None`` where there is no bias. Points add, subtract and scale, so
    that directions are points too.
    """

    W: Tensor | None
    H: Tensor
    b: Tensor | None = None

    def __repr__(self) -> str:
        named = (("W", self.W), ("H", self.H), ("b", self.b))
        return f"Point({', '.join(f'{name} {tuple(block.shape)}' for name, block in named if block is not None)})"

    @property
    def classifier(self) -> Tensor:
        """W, where the model has one."""
        if self.W is None:
            raise ValueError("this point has no classifier W: it belongs to the contrastive model")
        return self.W

    @property
    def blocks(self) -> tuple[Tensor, ...]:
        """The arrays that are there, in the order W, H, b."""
        return tuple(block for block in (self.W, self.H, self.b) if block is not None)

    def map(self, function: Callable[..., Tensor], *others: "Point") -> "Point":
        """``function`` applied block by block."""
        # In the order of `blocks`: `like` relies on it.
        named = (("W", self.W), ("H", self.H), ("b", self.b))
        classifier, features, bias = (
            None if block is None else function(block, *(getattr(other, name) for other in others))
            for name, block in named
        )
        if not isinstance(features, Tensor):
            raise TypeError(f"function must return a tensor, got {describe(features)}")
        return Point(classifier, features, bias)

    def __add__(self, other: "Point") -> "Point":
        return self.map(torch.add, other)

    def __sub__(self, other: "Point") -> "Point":
        return self.map(torch.sub, other)

    def __mul__(self, factor: float) -> "Point":
        return self.map(lambda block: block * factor)

    __rmul__ = __mul__

    def __neg__(self) -> "Point":
        return self.map(torch.neg)

    def dot(self, other: "Point") -> float:
        """Sum of the entrywise products of all blocks."""
        shapes = [[tuple(block.shape) for block in point.blocks] for point in (self, other)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"other must have the shapes of this point, {shapes[0]}, got {shapes[1]}")
        return sum(float(torch.sum(a * b)) for a, b in zip(self.blocks, other.blocks, strict=True))

    def norm(self) -> float:
        """Frobenius norm over all blocks."""
        return math.hypot(*(float(block.norm()) for block in self.blocks))

    def flatten(self) -> Tensor:
        """All entries in one new vector, in the order W, H, b."""
        return torch.cat([block.reshape(-1) for block in self.blocks])

    def like(self, flat: Tensor) -> "Point":
        """The point of this point's shapes whose entries are views into ``flat``."""
        size = sum(block.numel() for block in self.blocks)
        if flat.shape != (size,):
            raise ValueError(f"flat must have shape ({size},), got {describe(flat)}")
        pieces = iter(torch.split(flat, [block.numel() for block in self.blocks]))
        return self.map(lambda block: next(pieces).view(block.shape))


def save_point(path: str | Path, point: Point, metadata: Mapping[str, str] | None = None) -> None:
    """Write ``point`` to a safetensors file (arrays W, H, b), atomically and with a checksum."""
    names = {name: getattr(point, name) for name in ("W", "H", "b")}
    write_tensors(path, {name: block for name, block in names.items() if block is not None}, metadata)


def load_point(path: str | Path) -> tuple[Point, dict[str, str]]:
    """Read a point and its metadata from a safetensors file; ValueError names what is wrong with it."""
    arrays, metadata = read_tensors(path)
    names = set(arrays)
    if "H" not in arrays:
        raise ValueError(f"{path}: the array 'H' is missing (it has: {', '.join(sorted(names)) or 'nothing'})")
    if unknown := names - {"W", "H", "b"}:
        raise ValueError(f"{path}: unexpected array {sorted(unknown)[0]!r} (a point has W, H and b)")
    for name, array in arrays.items():
        if array.dtype != torch.float64:
            raise ValueError(f"{path}: {name} must be float64, got {describe(array)}")
    return Point(arrays.get("W"), arrays["H"], arrays.get("b")), metadata
