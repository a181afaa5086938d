"""Residual nets of the four papers: plain ones, and the wide ones of the losses paper.

``width`` k is the number of channels of the first stage; the stages have k, 2k, 4k (and 8k) planes. ``stem``
is ``"cifar"`` (3x3, stride 1, no pooling) or ``"imagenet"`` (7x7, stride 2, then max-pooling, which the
geometric paper uses even on 32x32 images). ``feature_dim`` d changes the last block only: its last
convolution gets d outputs.

In a wide net ``width`` multiplies only the planes inside each block, so d stays 2048 (512 for the basic blocks of 18
layers) whatever the width: the paper's {.25, .5, 1, 2}.
"""

from .._support.checks import LARGEST_WIDTH, integer, real
from ._classifier import Classifier, assemble, nets
from ._initialise import Init
from ._residual import ResidualEncoder, Shape, residual_shape

__all__ = ["resnet8", "resnet18", "resnet50", "wide_resnet18", "wide_resnet50"]

BASE_WIDTH = 64
"""Of the wide nets, as of the plain ones in the papers."""


@nets.add("resnet8")
def resnet8(
    width: int = 16,
    feature_dim: int | None = None,
    in_channels: int = 3,
    num_classes: int = 10,
    head: str = "linear",
    stem: str = "cifar",
    seed: int = 0,
    init: Init = "kaiming-fan-out",
) -> Classifier:
    """Three stages of one basic block, d = 4 * width: for small images such as the embedded digits."""
    shape = residual_shape("basic", (1, 1, 1), _planes(width), 1.0, feature_dim, in_channels, stem)
    return _residual_classifier(shape, num_classes, head, seed, init)


@nets.add("resnet18")
def resnet18(
    width: int = 64,
    feature_dim: int | None = None,
    in_channels: int = 3,
    num_classes: int = 10,
    head: str = "linear",
    stem: str = "cifar",
    seed: int = 0,
    init: Init = "kaiming-fan-out",
) -> Classifier:
    """Four stages of two basic blocks, d = 8 * width (512 in the papers).

    >>> model = resnet18(width=8, num_classes=10)
    >>> model.feature_dim
    64
    """
    shape = residual_shape("basic", (2, 2, 2, 2), _planes(width), 1.0, feature_dim, in_channels, stem)
    return _residual_classifier(shape, num_classes, head, seed, init)


@nets.add("resnet50")
def resnet50(
    width: int = 64,
    feature_dim: int | None = None,
    in_channels: int = 3,
    num_classes: int = 10,
    head: str = "linear",
    stem: str = "cifar",
    seed: int = 0,
    init: Init = "kaiming-fan-out",
) -> Classifier:
    """Four stages of 3, 4, 6 and 3 bottlenecks with expansion 4, d = 32 * width (2048 in the papers)."""
    shape = residual_shape("bottleneck", (3, 4, 6, 3), _planes(width), 1.0, feature_dim, in_channels, stem)
    return _residual_classifier(shape, num_classes, head, seed, init)


@nets.add("wide-resnet18", "wide_resnet18")
def wide_resnet18(
    width: float = 2.0,
    feature_dim: int | None = None,
    in_channels: int = 3,
    num_classes: int = 10,
    head: str = "linear",
    stem: str = "cifar",
    seed: int = 0,
    init: Init = "kaiming-fan-out",
) -> Classifier:
    """ResNet18 whose basic blocks have ``width`` times the planes between their two convolutions."""
    shape = residual_shape("basic", (2, 2, 2, 2), BASE_WIDTH, _checked_width(width), feature_dim, in_channels, stem)
    return _residual_classifier(shape, num_classes, head, seed, init)


@nets.add("wide-resnet50", "wide_resnet50")
def wide_resnet50(
    width: float = 2.0,
    feature_dim: int | None = None,
    in_channels: int = 3,
    num_classes: int = 10,
    head: str = "linear",
    stem: str = "cifar",
    seed: int = 0,
    init: Init = "kaiming-fan-out",
) -> Classifier:
    """ResNet50 whose bottlenecks have ``width`` times the inner planes (6.1 to 67.0 M parameters)."""
    shape = residual_shape(
        "bottleneck", (3, 4, 6, 3), BASE_WIDTH, _checked_width(width), feature_dim, in_channels, stem
    )
    return _residual_classifier(shape, num_classes, head, seed, init)


def _planes(width: int) -> int:
    return integer("width", width, minimum=1, maximum=LARGEST_WIDTH)


def _checked_width(width: float) -> float:
    return real("width", width, above=0.0, maximum=LARGEST_WIDTH / BASE_WIDTH)


def _residual_classifier(shape: Shape, num_classes: int, head: str, seed: int, init: Init) -> Classifier:
    return assemble(lambda: ResidualEncoder(shape), shape.feature_dim, num_classes, head, seed, init)
