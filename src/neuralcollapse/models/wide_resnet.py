"""Wide residual nets of the losses paper.

``width`` multiplies only the planes inside each block, so d stays 2048 (512 for the basic blocks of 18
layers) whatever the width: the paper's {.25, .5, 1, 2}. The other arguments are those of :mod:`.resnet`.
"""

from .._support.checks import LARGEST_WIDTH, real
from ._classifier import Classifier, assemble, nets
from ._initialise import Init
from ._residual import Kind, ResidualEncoder, residual_shape

__all__ = ["wide_resnet18", "wide_resnet50"]

BASE_WIDTH = 64


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
    return _wide("basic", (2, 2, 2, 2), width, feature_dim, in_channels, num_classes, head, stem, seed, init)


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
    return _wide("bottleneck", (3, 4, 6, 3), width, feature_dim, in_channels, num_classes, head, stem, seed, init)


def _wide(
    kind: Kind,
    depths: tuple[int, ...],
    width: float,
    feature_dim: int | None,
    in_channels: int,
    num_classes: int,
    head: str,
    stem: str,
    seed: int,
    init: Init,
) -> Classifier:
    scale = real("width", width, above=0.0, maximum=LARGEST_WIDTH / BASE_WIDTH)
    shape = residual_shape(kind, depths, BASE_WIDTH, scale, feature_dim, in_channels, stem)
    return assemble(lambda: ResidualEncoder(shape), shape.feature_dim, num_classes, head, seed, init)
