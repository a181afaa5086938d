"""Random crop with padding and horizontal flip, for a whole batch at once."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from .._support.checks import flag, integer

__all__ = ["CropFlip"]


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
        count, channels, height, width = images.shape
        shifts = torch.randint(0, 2 * self.padding + 1, (2, count, 1), generator=generator)
        rows = shifts[0] + torch.arange(height)
        columns = torch.arange(width).expand(count, width)
        if self.flip:
            mirrored = torch.randint(0, 2, (count, 1), generator=generator).bool()
            columns = torch.where(mirrored, columns.flip(1), columns)
        columns = columns + shifts[1]
        padded = pad(images, (self.padding,) * 4)
        places = rows[:, :, None] * padded.shape[3] + columns[:, None, :]
        places = places.reshape(count, 1, height * width).expand(count, channels, height * width)
        return padded.flatten(2).gather(2, places).reshape(images.shape)
