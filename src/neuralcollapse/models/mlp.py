"""The multilayer perceptron with batch norm of the geometric paper (random labels, Figures 4 and 8)."""

from torch import Tensor, nn

from .._support.checks import LARGEST_DEPTH, LARGEST_WIDTH, describe, integer
from ._classifier import Classifier, assemble, nets
from ._initialise import Init

__all__ = ["mlp"]


class MLPEncoder(nn.Module):
    """``depth`` times (linear, batch norm, ReLU) on the flattened image."""

    def __init__(self, inputs: int, sizes: tuple[int, ...]):
        super().__init__()
        self.inputs = inputs
        layers: list[nn.Module] = []
        for size in sizes:
            layers += [nn.Linear(inputs, size), nn.BatchNorm1d(size), nn.ReLU(inplace=True)]
            inputs = size
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, d)."""
        flat = images.flatten(1)
        if flat.shape[1] != self.inputs:
            raise ValueError(
                f"this net takes {self.inputs} values an image, got {describe(images)}: "
                "set in_channels and image_size to match"
            )
        return self.layers(flat)


@nets.add("mlp")
def mlp(
    width: int = 512,
    feature_dim: int | None = None,
    in_channels: int = 3,
    num_classes: int = 10,
    head: str = "linear",
    depth: int = 4,
    image_size: int | tuple[int, int] | None = None,
    seed: int = 0,
    init: Init = "kaiming-fan-out",
) -> Classifier:
    """``depth`` hidden layers of ``width`` units, each linear, batch norm, ReLU; then the head.

    ``feature_dim`` is the size of the last hidden layer (``width`` when not given). ``image_size`` is the
    side of the images or (height, width); when not given, 28 for one channel and 32 for more, MNIST's and
    CIFAR's.

    >>> mlp(width=16, in_channels=1, image_size=8).feature_dim
    16
    """
    units = integer("width", width, minimum=1, maximum=LARGEST_WIDTH)
    last = units if feature_dim is None else integer("feature_dim", feature_dim, minimum=1, maximum=LARGEST_WIDTH)
    layers = integer("depth", depth, minimum=1, maximum=LARGEST_DEPTH)
    channels = integer("in_channels", in_channels, minimum=1)
    if image_size is None:
        image_size = 28 if channels == 1 else 32
    size = image_size if isinstance(image_size, tuple) else (image_size, image_size)
    if len(size) != 2:
        raise ValueError(f"image_size must be a side or (height, width), got {describe(image_size)}")
    inputs = channels
    for side in size:
        inputs *= integer("image_size", side, minimum=1)
    sizes = (units,) * (layers - 1) + (last,)
    return assemble(lambda: MLPEncoder(inputs, sizes), last, num_classes, head, seed, init)
