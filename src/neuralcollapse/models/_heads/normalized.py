"""Features and classifier on spheres (normalized, Section 2)."""

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ..._support.checks import flag, integer, real
from .._initialise import seeded
from . import heads

__all__ = ["NormalizedHead", "Sphere"]


class Sphere(nn.Module):
    """Rows scaled to norm ``radius``; a row of zeros stays zero."""

    def __init__(self, radius: float = 1.0):
        super().__init__()
        self.radius = real("radius", radius, above=0.0)

    def forward(self, features: Tensor) -> Tensor:
        """``radius * features / |features|``, row by row."""
        return self.radius * normalize(features, dim=-1)

    def extra_repr(self) -> str:
        """The radius, for ``print(head)``."""
        return f"radius={self.radius:g}"


@heads.add("normalized")
class NormalizedHead(nn.Module):
    """Logits ``tau * <h/|h|, w_k> (+ b_k)`` with unit rows w_k; ``temperature`` is tau.

    The paper has no bias; its released ResNets have one (``bias=True``), which starts by PyTorch's rule.

    The rows of ``weight`` start uniformly on the unit sphere. A plain optimizer step moves them off it, so a
    loop calls :meth:`after_step` after each step, or :meth:`attach` once. In between the rows are used as
    they are, as in the paper's experiments.
    """

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        temperature: float = 1.0,
        generator: Generator | None = None,
        bias: bool = False,
    ):
        super().__init__()
        dim = integer("feature_dim", feature_dim, minimum=1)
        count = integer("num_classes", num_classes, minimum=2)
        self.sphere = Sphere(real("temperature", temperature, above=0.0))
        self.classifier = nn.Linear(dim, count, bias=flag("bias", bias), device=torch.device("meta"))
        self.classifier.to_empty(device="cpu")
        draws = seeded(0) if generator is None else generator
        with torch.no_grad():
            self.weight.normal_(generator=draws)
            if self.bias is not None:
                self.bias.uniform_(-(dim**-0.5), dim**-0.5, generator=draws)
        self.after_step()

    @property
    def temperature(self) -> float:
        """The radius tau of the features' sphere."""
        return self.sphere.radius

    @property
    def weight(self) -> Tensor:
        """The classifier (K, d), its rows on the unit sphere."""
        return self.classifier.weight

    @property
    def bias(self) -> Tensor | None:
        """The bias (K,), where there is one."""
        return self.classifier.bias

    @property
    def in_features(self) -> int:
        """The feature dimension d."""
        return self.classifier.in_features

    @property
    def out_features(self) -> int:
        """The number of classes K."""
        return self.classifier.out_features

    def prepare(self, features: Tensor) -> Tensor:
        """The features projected to the sphere of radius tau."""
        return self.sphere(features)

    def forward(self, features: Tensor) -> Tensor:
        """Logits from features of any norm."""
        return self.classifier(self.sphere(features))

    @torch.no_grad()
    def after_step(self) -> None:
        """Project the rows of the classifier back to the unit sphere."""
        self.weight.copy_(normalize(self.weight, dim=1))

    def attach(self, optimizer: Optimizer) -> RemovableHandle:
        """Call :meth:`after_step` after every step of ``optimizer`` until ``.remove()`` on the result."""

        def project(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
            self.after_step()

        return optimizer.register_step_post_hook(project)
