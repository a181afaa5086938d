"""Classifier heads: one file each, found by name (``linear``, ``etf``, ``normalized:temperature=5``).

Each head maps features (N, d) to logits (N, K) and has

- ``weight`` (K, d) and ``bias`` (K,) or ``None``, such that the logits are ``prepare(features) @ weight.T +
  bias``;
- ``prepare(features)``, what enters the linear map (the identity, except on the sphere);
- ``after_step()``, which a training loop calls after each optimizer step (nothing, except on the sphere).
"""

from typing import Protocol, runtime_checkable

from torch import Generator, Tensor, nn

from ..._support.registry import Registry, load_entries

__all__ = ["Head", "create_head", "heads"]

heads: Registry[type] = Registry("head")

_FROM_THE_NET = ("feature_dim", "num_classes", "generator")


@runtime_checkable
class Head(Protocol):
    """What every head has."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, features: Tensor) -> Tensor:
        """Logits (N, K)."""
        ...

    def prepare(self, features: Tensor) -> Tensor:
        """What enters the linear map."""
        ...

    def after_step(self) -> None:
        """Restore what an optimizer step may have broken."""
        ...


def create_head(spec: str, feature_dim: int, num_classes: int, generator: Generator | None = None) -> nn.Module:
    """The head named by ``spec``, such as ``"etf:bias=False"``, for a net with these sizes (``generator``: seed 0)."""
    name, arguments = heads.parse(spec)
    for key in _FROM_THE_NET:
        if key in arguments:
            raise ValueError(f"head {spec!r}: {key} comes from the net, do not give it here")
    return heads[name](feature_dim=feature_dim, num_classes=num_classes, generator=generator, **arguments)


load_entries(__name__, list(__path__))
