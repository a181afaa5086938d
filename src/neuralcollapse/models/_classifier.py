"""The one model class: an encoder and a head, with nothing to guess about where the features are."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .._support.checks import describe, integer
from .._support.registry import Registry
from ._heads import create_head
from ._initialise import Init, initialise, seeded

__all__ = ["Classifier", "ParameterCount", "assemble", "create", "nets", "parameter_count"]

nets: Registry[Callable[..., "Classifier"]] = Registry("net")


class Classifier(nn.Module):
    """An encoder from images (N, C, height, width) to (N, d), and a head from there to logits (N, K).

    ``features(x)`` is what enters the head's linear map, so ``logits = features(x) @ head.weight.T +
    head.bias`` holds for every head. ``encoder(x)`` is the same before a normalised head scales it.
    ``projection``, where there is one, follows the encoder in contrastive training only.
    """

    projection: nn.Module | None

    def __init__(self, encoder: nn.Module, head: nn.Module, projection: nn.Module | None = None):
        super().__init__()
        self.encoder = encoder
        self.head: Any = head  # a Head that is also a Module, which the type system cannot say
        self.projection = projection

    @property
    def feature_dim(self) -> int:
        """The feature dimension d."""
        return self.head.weight.shape[1]

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return self.head.weight.shape[0]

    def features(self, images: Tensor) -> Tensor:
        """Features (N, d) as they enter the classifier."""
        return self.head.prepare(self.encoder(images))

    def projected(self, features: Tensor) -> Tensor:
        """What a loss on features sees of them: the features (N, d), or their projection."""
        return features if self.projection is None else self.projection(features)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, K)."""
        return self.head(self.encoder(images))


@dataclass(frozen=True)
class ParameterCount:
    """Numbers of trainable parameters; ``fixed`` counts what a fixed head stores but no optimizer sees."""

    encoder: int
    head: int
    fixed: int
    projection: int = 0

    @property
    def trainable(self) -> int:
        """All that an optimizer sees."""
        return self.encoder + self.head + self.projection


def parameter_count(model: Classifier) -> ParameterCount:
    """Count the parameters of ``model`` by part: shows what a fixed head and d = K save."""
    if not isinstance(model, Classifier):
        raise TypeError(f"model must be one of nc.models, got {describe(model)}")
    encoder = sum(p.numel() for p in model.encoder.parameters() if p.requires_grad)
    head = sum(p.numel() for p in model.head.parameters() if p.requires_grad)
    fixed = sum(b.numel() for b in model.head.buffers())
    projection = 0 if model.projection is None else sum(p.numel() for p in model.projection.parameters())
    return ParameterCount(encoder, head, fixed, projection)


def assemble(
    build: Callable[[], nn.Module], feature_dim: int, num_classes: int, head: str, seed: int, init: Init
) -> Classifier:
    """A classifier whose encoder (from ``build``), then head, are drawn from one seeded generator."""
    generator = seeded(seed)
    count = integer("num_classes", num_classes, minimum=2)
    encoder = initialise(build, generator, init)
    return Classifier(encoder, create_head(head, feature_dim, count, generator))


def create(
    spec: str,
    image_shape: tuple[int, int, int],
    num_classes: int,
    head: str = "linear",
    seed: int = 0,
    init: Init = "kaiming-fan-out",
    projection: int | None = None,
) -> Classifier:
    """The net named by ``spec``, such as ``"resnet18:width=8"`` or ``"mlp:depth=4"``, for these images.

    Args:
        spec: Name and sizes of the net.
        image_shape: (channels, height, width).
        num_classes: K.
        head: Name of the head.
        seed: Where the initial weights are drawn from.
        init: Rule of the initial convolutions: ``"kaiming-fan-out"`` or ``"torch"``.
        projection: Outputs of a projection (linear, ReLU, linear) after the encoder for contrastive training; no
            projection when not given.

    """
    if len(image_shape) != 3:
        raise ValueError(f"image_shape must be (channels, height, width), got {describe(image_shape)}")
    channels, *size = image_shape
    name, arguments = nets.parse(spec)
    given: dict[str, Any] = {
        "in_channels": channels,
        "num_classes": num_classes,
        "head": head,
        "seed": seed,
        "init": init,
    }
    for key in given:
        if key in arguments:
            raise ValueError(f"model {spec!r}: {key} is an argument of its own, do not give it in the name")
    net = nets[name]
    if "image_size" in inspect.signature(net).parameters:
        given["image_size"] = tuple(size)
    model = net(**given, **arguments)
    if projection is not None:
        model.projection = _projection(model.feature_dim, integer("projection", projection, minimum=1), seed)
    return model


def _projection(inputs: int, outputs: int, seed: int) -> nn.Module:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, inputs), nn.ReLU(inplace=True), nn.Linear(inputs, outputs))

    return initialise(build, seeded(seed))
