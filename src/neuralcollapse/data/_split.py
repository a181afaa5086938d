"""One part of a data set: rows of an image array (often memory-mapped), labels, normalisation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor
from torch.utils.data import Dataset

from .._support.checks import describe, integer
from .._support.tensor_checks import positions as places
from .augmentation import CropFlip, Draws

__all__ = ["Loader", "Normalisation", "Split", "measure_normalisation"]

CHUNK = 2048


@dataclass(frozen=True)
class Normalisation:
    """Per-channel mean and standard deviation, in the units of the stored images."""

    mean: Float[Tensor, " channels"]
    std: Float[Tensor, " channels"]

    def __repr__(self) -> str:
        return f"Normalisation of {len(self.mean)} channels"

    def __call__(self, images: Tensor) -> Float[Tensor, "n channels height width"]:
        """``(images - mean) / std`` as float32."""
        shape = (1, -1, 1, 1)
        return images.to(torch.float32).sub_(self.mean.view(shape)).mul_(self.std.reciprocal().view(shape))


@dataclass(frozen=True, eq=False)
class Split(Dataset):
    """Samples ``images[index]`` with ``labels``; ``split[i]`` is a normalised image and its label.

    ``images`` stays as it was read (bytes, possibly on disk); only the rows that are asked for are converted.
    """

    images: Tensor
    index: Int64[Tensor, " n"]
    labels: Int64[Tensor, " n"]
    num_classes: int
    normalisation: Normalisation

    def __repr__(self) -> str:
        channels, height, width = self.image_shape
        return f"Split({len(self)} samples of {self.num_classes} classes, {channels} x {height} x {width})"

    def __len__(self) -> int:
        return self.labels.shape[0]

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        row = range(len(self))[position]
        images, labels = self.batch(torch.tensor([row]))
        return images[0], int(labels[0])

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def class_counts(self) -> Int64[Tensor, " K"]:
        """Samples of each class."""
        return torch.bincount(self.labels, minlength=self.num_classes)

    def batch(
        self,
        positions: Tensor,
        augment: CropFlip | None = None,
        generator: Generator | None = None,
        draws: Draws | None = None,
    ) -> tuple[Float[Tensor, "b channels height width"], Int64[Tensor, " b"]]:
        """Normalised images and labels at ``positions``, augmented first when asked.

        Augmentation draws from ``generator``, or takes ``draws`` made before (for a part of a larger batch).
        """
        positions = places("positions", positions, len(self.index))
        images = self.images[self.index[positions]]
        if augment is not None:
            if draws is None:
                if generator is None:
                    raise ValueError("augmentation needs a generator")
                draws = augment.draw(len(images), generator)
            images = augment.apply(images, draws)
        return self.normalisation(images), self.labels[positions]

    def loader(self, batch_size: int = 256) -> "Loader":
        """All samples in order, in batches: what the metrics take."""
        return Loader(self, integer("batch_size", batch_size, minimum=1))

    def select(self, positions: Tensor) -> "Split":
        """The split of these samples only; images are shared, not copied."""
        positions = places("positions", positions, len(self.index))
        return replace(self, index=self.index[positions], labels=self.labels[positions])

    def relabel(self, labels: Tensor) -> "Split":
        """The same images with other labels, of type int64."""
        if not isinstance(labels, Tensor):
            raise TypeError(f"labels must be a tensor, got {describe(labels)}")
        if labels.shape != self.labels.shape or labels.dtype != torch.int64:
            raise ValueError(f"labels must be int64 and have shape {tuple(self.labels.shape)}, got {describe(labels)}")
        if labels.numel() and not (labels.min() >= 0 and labels.max() < self.num_classes):
            raise ValueError(
                f"labels must lie in 0..{self.num_classes - 1}, got {int(labels.min())} to {int(labels.max())}"
            )
        return replace(self, labels=labels)


@dataclass(frozen=True)
class Loader:
    """Batches (images, labels) of a split, in order; can be iterated again and again."""

    split: Split
    batch_size: int

    def __len__(self) -> int:
        return math.ceil(len(self.split) / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for positions in torch.arange(len(self.split)).split(self.batch_size):
            yield self.split.batch(positions)


def measure_normalisation(images: Tensor, index: Tensor) -> Normalisation:
    """Mean and standard deviation of every channel over these rows; a constant channel keeps its scale.

    Bytes are counted exactly; floats are summed in float64.
    """
    channels = images.shape[1]
    total = torch.zeros(channels, dtype=torch.float64)
    squares = torch.zeros(channels, dtype=torch.float64)
    count = len(index) * images.shape[2] * images.shape[3]
    if images.dtype == torch.uint8:
        values = torch.arange(256, dtype=torch.float64)
        for rows in index.split(CHUNK):
            chunk = images[rows]
            for channel in range(channels):
                histogram = torch.bincount(chunk[:, channel].reshape(-1), minlength=256).double()
                total[channel] += histogram @ values
                squares[channel] += histogram @ values.square()
        mean = total / count
        variance = squares / count - mean.square()
    else:
        for rows in index.split(CHUNK):
            total += images[rows].double().sum(dim=(0, 2, 3))
        mean = total / count
        for rows in index.split(CHUNK):
            squares += (images[rows].double() - mean.view(1, -1, 1, 1)).square().sum(dim=(0, 2, 3))
        variance = squares / count
    std = variance.clamp(min=0.0).sqrt()
    return Normalisation(mean.float(), torch.where(std > 1e-12, std, 1.0).float())
