"""The learned classifier of all four papers."""

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize

from ..._support.checks import flag, integer
from .._initialise import kaiming_uniform_rows, seeded
from . import heads

__all__ = ["LinearHead"]


@heads.add("linear")
class LinearHead(nn.Linear):
    """Logits ``features @ weight.T + bias``, all learned, initialised by PyTorch's rule for linear layers.

    ``generator`` draws the initial weights (a fresh one from seed 0 when not given). ``unit_rows`` scales the rows of
    the weight to norm one after every optimizer step, features and bias left free: what the normalized paper's code
    does to its regularised nets, so that decay of W has no effect there.
    """

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        bias: bool = True,
        generator: Generator | None = None,
        unit_rows: bool = False,
    ):
        dim = integer("feature_dim", feature_dim, minimum=1)
        count = integer("num_classes", num_classes, minimum=2)
        super().__init__(dim, count, bias=flag("bias", bias), device=torch.device("meta"))
        self.to_empty(device="cpu")
        self.unit_rows = flag("unit_rows", unit_rows)
        kaiming_uniform_rows(self.weight, self.bias, seeded(0) if generator is None else generator)

    def prepare(self, features: Tensor) -> Tensor:
        """The features themselves."""
        return features

    @torch.no_grad()
    def after_step(self) -> None:
        """Scale the rows to norm one where they are to be; otherwise there is nothing to restore."""
        if self.unit_rows:
            self.weight.copy_(normalize(self.weight, dim=1))
