"""A loss at the logits of many trials at once: (T, K, N), classes before samples.

With few classes a softmax over the last dimension is many short loops; over the middle one it runs along the samples,
which is several times faster. Each trial's numbers depend on its own logits alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["LossStack"]


class LossStack(ABC):
    """Values and derivatives of the mean loss of each trial; ``arrays`` is all that depends on the trial, T first."""

    arrays: list[Tensor]

    @abstractmethod
    def at(self, logits: Float[Tensor, "T K N"]) -> "LossStack":
        """The same loss at other logits, which may be overwritten."""

    @property
    @abstractmethod
    def values(self) -> Float[Tensor, " T"]:
        """The mean loss of each trial."""

    @property
    @abstractmethod
    def gradient(self) -> Float[Tensor, "T K N"]:
        """Its gradient in the logits, in a new tensor."""

    @abstractmethod
    def curvature(self, direction: Float[Tensor, "T K N"]) -> Float[Tensor, " T"]:
        """<v, L v> with L the Hessian of the trial's mean loss in the logits."""

    def map(self, rows: Callable[[np.ndarray], np.ndarray]) -> "LossStack":
        """Only the trials whose rows ``rows`` takes of each array."""
        return self._with([torch.from_numpy(rows(array.numpy())) for array in self.arrays])

    def put_(self, index: np.ndarray, other: "LossStack") -> None:
        """These trials as in ``other``."""
        for array, fresh in zip(self.arrays, other.arrays, strict=True):
            array.numpy()[index] = fresh.numpy()

    def _with(self, arrays: list[Tensor]) -> "LossStack":
        result = object.__new__(type(self))
        vars(result).update(vars(self), arrays=arrays)  # copy.copy takes four times as long
        return result


def one_hot(labels: Tensor, num_classes: int) -> Float[Tensor, "K N"]:
    """1 where the row is the sample's class."""
    return torch.nn.functional.one_hot(labels, num_classes).T.to(torch.float64).contiguous()
