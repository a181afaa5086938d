"""Random crop with padding and horizontal flip, for a whole batch at once."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Generator, Tensor
from torch.nn.functional import pad

from .._support.checks import flag, integer

__all__ = ["CropFlip", "Draws"]


@dataclass(frozen=True)
class CropFlip:
    """The papers' augmentation: pad by ``padding`` black pixels, crop back at random, mirror at random.

    >>> images = torch.arange(9, dtype=torch.uint8).reshape(1, 1, 3, 3)
    >>> CropFlip(padding=1, flip=False)(images, torch.Generator().manual_seed(0)).shape
    torch.Size([1, 1, 3, 3])
    """

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        integer("padding", self.padding, minimum=0)
        flag("flip", self.flip)

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Every image of (N, C, height, width) with its own shift and mirror, drawn from ``generator``."""
        return self.apply(images, self.draw(len(images), generator))

    def draw(self, count: int, generator: Generator) -> "Draws":
        """Shifts and mirrors for ``count`` images."""
        integer("count", count, minimum=0)
        shifts = torch.randint(0, 2 * self.padding + 1, (2, count, 1), generator=generator)
        mirrored = torch.zeros(count, 1, dtype=torch.bool)
        if self.flip:
            mirrored = torch.randint(0, 2, (count, 1), generator=generator).bool()
        return Draws(shifts[0], shifts[1], mirrored)

    def apply(self, images: Tensor, draws: "Draws") -> Tensor:
        """The images, shifted and mirrored as drawn."""
        count, channels, height, width = images.shape
        rows = draws.down + torch.arange(height)
        columns = torch.arange(width).expand(count, width)
        columns = torch.where(draws.mirrored, columns.flip(1), columns) + draws.right
        padded = pad(images, (self.padding,) * 4)
        places = rows[:, :, None] * padded.shape[3] + columns[:, None, :]
        places = places.reshape(count, 1, height * width).expand(count, channels, height * width)
        return padded.flatten(2).gather(2, places).reshape(images.shape)


@dataclass(frozen=True)
class Draws:
    """What is random about an augmented batch, image by image."""

    down: Int64[Tensor, "n 1"]
    right: Int64[Tensor, "n 1"]
    mirrored: Bool[Tensor, "n 1"]

    def select(self, positions: Tensor) -> "Draws":
        """The draws of some of the images."""
        return Draws(self.down[positions], self.right[positions], self.mirrored[positions])
