"""Residual encoders: stem, stages of blocks, average pooling. Features come after the last ReLU and pooling.

Every convolution is without bias and followed by batch norm; the ReLU of a block comes after the sum.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from .._support.checks import LARGEST_WIDTH, describe, integer

__all__ = ["ResidualEncoder", "Shape", "residual_shape"]

BlockKind = Literal["basic", "bottleneck"]
STEMS = ("cifar", "imagenet")


@dataclass(frozen=True)
class Shape:
    """All that decides a residual encoder."""

    kind: BlockKind
    depths: tuple[int, ...]
    """Blocks per stage."""
    stem_width: int
    inner: tuple[int, ...]
    """Channels inside the blocks of each stage."""
    outer: tuple[int, ...]
    """Channels after each block of each stage."""
    feature_dim: int
    """Channels after the very last block."""
    in_channels: int
    stem: str


def residual_shape(
    kind: BlockKind,
    depths: tuple[int, ...],
    width: int,
    inner_scale: float,
    feature_dim: int | None,
    in_channels: int,
    stem: str,
) -> Shape:
    """Stage i has ``2^i * width`` planes; ``inner_scale`` multiplies those inside the blocks only.

    A feature dimension other than the last stage's is reached in the last block alone: its last convolution
    has that many outputs and its shortcut is a 1x1 convolution, so features still are a ReLU followed by the
    pooling.
    """
    planes = tuple(width * 2**stage for stage in range(len(depths)))
    expansion = 4 if kind == "bottleneck" else 1
    outer = tuple(expansion * plane for plane in planes)
    if stem not in STEMS:
        raise ValueError(f"stem must be one of {', '.join(STEMS)}, got {describe(stem)}")
    last = outer[-1] if feature_dim is None else integer("feature_dim", feature_dim, minimum=1, maximum=LARGEST_WIDTH)
    return Shape(
        kind=kind,
        depths=depths,
        stem_width=width,
        inner=tuple(max(1, int(plane * inner_scale)) for plane in planes),
        outer=outer,
        feature_dim=last,
        in_channels=integer("in_channels", in_channels, minimum=1),
        stem=stem,
    )


class ResidualEncoder(nn.Module):
    """Images (N, C, height, width) of any size to features (N, d)."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.stem = _stem(shape)
        stages = []
        channels = shape.stem_width
        for stage, (depth, inner, outer) in enumerate(zip(shape.depths, shape.inner, shape.outer, strict=True)):
            blocks = []
            for index in range(depth):
                last = stage == len(shape.depths) - 1 and index == depth - 1
                target = shape.feature_dim if last else outer
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(_Block(shape.kind, channels, inner, target, stride))
                channels = target
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, d)."""
        return self.pool(self.stages(self.stem(images))).flatten(1)


class _Block(nn.Module):
    def __init__(self, kind: BlockKind, inputs: int, inner: int, outputs: int, stride: int):
        super().__init__()
        if kind == "basic":
            self.body = nn.Sequential(
                *_normalised_convolution(inputs, inner, 3, stride),
                nn.ReLU(inplace=True),
                *_normalised_convolution(inner, outputs, 3),
            )
        else:
            self.body = nn.Sequential(
                *_normalised_convolution(inputs, inner, 1),
                nn.ReLU(inplace=True),
                *_normalised_convolution(inner, inner, 3, stride),
                nn.ReLU(inplace=True),
                *_normalised_convolution(inner, outputs, 1),
            )
        same = stride == 1 and inputs == outputs
        thinned = [_EveryOther()] if stride == 2 else []
        self.shortcut = nn.Identity() if same else nn.Sequential(*thinned, *_normalised_convolution(inputs, outputs, 1))
        self.activation = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        return self.activation(self.body(images) + self.shortcut(images))


class _EveryOther(nn.Module):
    """Every other row and column: with a 1x1 convolution after it, the same as that convolution with stride 2.

    A 1x1 convolution with stride 2 of fewer than 8 channels in channels_last layout writes beyond its memory in
    PyTorch 2.13 on the CPU and ends the process; narrow nets are what such channels are for.
    """

    def forward(self, images: Tensor) -> Tensor:
        return images[:, :, ::2, ::2]


def _stem(shape: Shape) -> nn.Sequential:
    if shape.stem == "cifar":
        return nn.Sequential(*_normalised_convolution(shape.in_channels, shape.stem_width, 3), nn.ReLU(inplace=True))
    return nn.Sequential(
        *_normalised_convolution(shape.in_channels, shape.stem_width, 7, stride=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    )


def _normalised_convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1
) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(outputs)
