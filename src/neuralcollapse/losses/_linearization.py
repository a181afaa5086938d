"""A mean loss and its derivatives at one array of logits: stated, or by autograd."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["AutogradLinearization", "Linearization"]


class Linearization(ABC):
    """Value and derivatives of the mean loss at one array of logits, which must not change meanwhile.

    What they share is computed once, and only what is asked for is computed.
    """

    @property
    @abstractmethod
    def value(self) -> float:
        """The mean loss."""

    @property
    @abstractmethod
    def gradient(self) -> Float[Tensor, "N K"]:
        """The gradient of the mean loss in the logits."""

    @abstractmethod
    def hessian_vector(self, direction: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """The Hessian of the mean loss times ``direction``; may overwrite ``direction``."""


class AutogradLinearization(Linearization):
    """Derivatives of any differentiable mean loss by autograd; the graph is built when a derivative is asked for."""

    def __init__(self, mean: Callable[[Tensor], Tensor], logits: Float[Tensor, "N K"]):
        self._mean, self._logits = mean, logits

    @property
    def value(self) -> float:
        """The mean loss."""
        with torch.inference_mode(False), torch.no_grad():
            return float(self._mean(self._logits.clone()))

    @cached_property
    def _graph(self) -> tuple[Tensor, Tensor]:
        """(logits, gradient with its graph); solvers run in inference mode, which autograd must leave."""
        with torch.inference_mode(False), torch.enable_grad():
            logits = self._logits.clone().requires_grad_()
            mean = self._mean(logits)
            if not mean.requires_grad:
                return logits, torch.zeros_like(logits)
            (slope,) = torch.autograd.grad(mean, logits, create_graph=True)
            return logits, slope

    @property
    def gradient(self) -> Float[Tensor, "N K"]:
        """The gradient of the mean loss, in a new tensor."""
        with torch.inference_mode(False):
            return self._graph[1].detach().clone()

    def hessian_vector(self, direction: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """The Hessian of the mean loss times ``direction``, by a second differentiation."""
        with torch.inference_mode(False), torch.enable_grad():
            logits, slope = self._graph
            if not slope.requires_grad:
                return torch.zeros_like(logits)
            (product,) = torch.autograd.grad(slope, logits, direction.clone(), retain_graph=True, allow_unused=True)
            return torch.zeros_like(logits) if product is None else product.detach()
