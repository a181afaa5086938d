"""Residual nets of the geometric, mse and normalized papers.

``width`` k is the number of channels of the first stage; the stages have k, 2k, 4k (and 8k) planes. ``stem``
is ``"cifar"`` (3x3, stride 1, no pooling) or ``"imagenet"`` (7x7, stride 2, then max-pooling, which the
geometric paper uses even on 32x32 images). ``feature_dim`` d changes the last block only: its last
convolution gets d outputs.
"""

from .._support.checks import LARGEST_WIDTH, integer
from ._classifier import Classifier, assemble, nets
from ._initialise import Init
from ._residual import Kind, ResidualEncoder, residual_shape

__all__ = ["resnet8", "resnet18", "resnet50"]


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
    return _resnet("basic", (1, 1, 1), width, feature_dim, in_channels, num_classes, head, stem, seed, init)


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
    return _resnet("basic", (2, 2, 2, 2), width, feature_dim, in_channels, num_classes, head, stem, seed, init)


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
    return _resnet("bottleneck", (3, 4, 6, 3), width, feature_dim, in_channels, num_classes, head, stem, seed, init)


def _resnet(
    kind: Kind,
    depths: tuple[int, ...],
    width: int,
    feature_dim: int | None,
    in_channels: int,
    num_classes: int,
    head: str,
    stem: str,
    seed: int,
    init: Init,
) -> Classifier:
    planes = integer("width", width, minimum=1, maximum=LARGEST_WIDTH)
    shape = residual_shape(kind, depths, planes, 1.0, feature_dim, in_channels, stem)
    return assemble(lambda: ResidualEncoder(shape), shape.feature_dim, num_classes, head, seed, init)
