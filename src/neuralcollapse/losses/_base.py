"""What a loss is here: a callable for training, and all that is known of it for theory.

Logits z have rows of K entries; y is the true class; p = softmax(z). Mean reduction throughout.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from torch import Tensor

from .._support.checks import describe, integer, real, unusual_tensor
from .._support.registry import Registry, Spec
from ._linearization import AutogradLinearization, Linearization
from ._stack import LossStack

__all__ = ["Curve", "FunctionLoss", "Linearization", "LogitLoss", "Loss", "MarginOptimum", "Transition", "losses"]

losses: "Registry[type[Loss]]" = Registry("loss")

Curve = np.ndarray | np.floating
"""What a scalar function of array-like arguments returns."""


@dataclass(frozen=True)
class MarginOptimum:
    """The minimiser a >= 0 of ell(a) + slope * a, where ell(a) is the loss at z_true - z_other = a."""

    margin: float
    value: float


@dataclass(frozen=True)
class Transition:
    """Where, in s = sqrt(n lW lH), the zero solution and the collapsed one exchange.

    ``zero_stable_above <= exchange <= collapse_exists_below``; all three coincide for a transition of second order.
    """

    zero_stable_above: float
    exchange: float
    collapse_exists_below: float

    @property
    def first_order(self) -> bool:
        """Whether both solutions are local minima in a range of s."""
        return self.collapse_exists_below > self.zero_stable_above * (1 + 1e-12)


class Loss(ABC):
    """A named, frozen, parametrised loss; equal when its parameters are."""

    name: ClassVar[str]
    takes: ClassVar[str] = "logits"
    summary: ClassVar[str]

    @property
    def spec(self) -> str:
        """The string that :func:`neuralcollapse.losses.get` turns back into this loss.

        >>> from neuralcollapse.losses import Focal
        >>> Focal(gamma=2).spec
        'focal:gamma=2.0'
        """
        given = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        plain: dict[str, object] = {}
        for key, value in given.items():
            if value is not None:
                plain[key] = value.spec if isinstance(value, Loss) else value
        return str(Spec(self.name, plain))

    @abstractmethod
    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss, differentiable by autograd."""


class LogitLoss(Loss):
    """A loss on (logits, labels), in three steps; what is not stated is not assumed.

    1. ``_values`` (the loss of each sample) is enough for training, ``value`` and ``solve``: derivatives come from
       autograd.
    2. :meth:`linearize` gives analytic derivatives, which are faster.
    3. What certificates and closed forms use: :attr:`convex_from`, :attr:`tight_from` and :meth:`conjugate`;
       :attr:`depends_on_margins` with :meth:`margin_value` and :meth:`margin_derivative`. Where one that is needed is
       missing, a certificate says "undecided".
    """

    @property
    def depends_on_margins(self) -> bool | None:
        """Whether only differences of logits count, all classes alike, with the bound phi of losses, Definition 1.

        None: unknown.
        """
        return None

    @property
    def contrastive(self) -> bool:
        """An older name: whether :attr:`depends_on_margins` is known to be true."""
        return self.depends_on_margins is True

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of ``outputs`` (N, K) against ``labels`` (N,); half precision is computed in float32."""
        return self._mean(*self._checked(outputs, labels))

    def values(self, logits: Tensor, labels: Tensor) -> Float[Tensor, " N"]:
        """The loss of each sample."""
        return self._values(*self._checked(logits, labels))

    def gradient(self, logits: Tensor, labels: Tensor) -> Float[Tensor, "N K"]:
        """The gradient of the mean loss in the logits."""
        return self.linearize(*self._checked(logits, labels)).gradient

    def hessian_vector(self, logits: Tensor, labels: Tensor, direction: Tensor) -> Float[Tensor, "N K"]:
        """The Hessian of the mean loss in the logits, times ``direction`` (N, K)."""
        logits, labels = self._checked(logits, labels)
        if direction.shape != logits.shape:
            raise ValueError(f"direction must have the logits' shape {tuple(logits.shape)}, got {describe(direction)}")
        return self.linearize(logits, labels).hessian_vector(direction.to(logits, copy=True))

    def linearize(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Linearization:
        """Value and derivatives at checked arguments: what the unconstrained feature models evaluate."""
        return AutogradLinearization(lambda z: self._mean(z, labels), logits)

    def stack(self, labels: Int[Tensor, " N"], num_classes: int) -> LossStack | None:
        """The loss for the logits of many trials at once; None where it is not written for that."""
        return None

    @abstractmethod
    def _values(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]: ...

    def _mean(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, ""]:
        return self._values(logits, labels).mean()

    # What is known of convexity ---------------------------------------------------------------------------------

    @property
    def convex_from(self) -> float | None:
        """The loss is convex in z exactly where p_y >= this (0: everywhere; None: unknown)."""
        return None

    @property
    def is_convex(self) -> bool:
        """Whether the loss is known to be convex in the logits everywhere."""
        return self.convex_from == 0.0

    @property
    def tight_from(self) -> float | None:
        """The loss equals its convex envelope exactly where p_y >= this (0: everywhere; None: unknown)."""
        return 0.0 if self.is_convex else None

    def collapse_survives_bias(self, slope: float, num_classes: int) -> bool:
        """Whether ell(a) + slope a bounds the model with a bias too; proved where the loss equals its envelope.

        Without a bias the bound needs no convexity; a bias can pay where the loss is not convex at p = 1/K.
        """
        return self.tight_from is not None and self.tight_from <= 1 / num_classes

    # Fenchel duality --------------------------------------------------------------------------------------------

    @property
    def has_conjugate(self) -> bool:
        """Whether :meth:`conjugate` is stated."""
        return type(self).conjugate is not LogitLoss.conjugate

    def conjugate(self, dual: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """Fenchel conjugate sup_z <u, z> - loss(z, y) of each row u (of the convex envelope where not convex)."""
        raise NotImplementedError(f"no conjugate is known for the loss {self.spec}")

    def dual_rows(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, "N K"]:
        """Rows in the conjugate's domain that attain it at ``logits``: the per-sample gradients."""
        return self.linearize(logits, labels).gradient * logits.shape[0]

    def dual_centre(self, labels: Int[Tensor, " N"], num_classes: int) -> Float[Tensor, "N K"]:
        """Rows inside the conjugate's domain whose columns sum to zero (those of the class shares), for a free bias.

        pi - e_y with pi the class shares: the gradients of cross-entropy at z = log pi.
        """
        integer("num_classes", num_classes, minimum=2)
        shares = torch.bincount(labels, minlength=num_classes).to(torch.float64) / len(labels)
        rows = shares.repeat(len(labels), 1)
        return rows.scatter_add_(1, labels[:, None], torch.full((len(labels), 1), -1.0, dtype=torch.float64))

    def dual_reach(self, rows: Float[Tensor, "N K"]) -> float:
        """A c up to which the conjugate of c times ``rows`` may be finite (infinite for a quadratic loss)."""
        return 1 / max(1e-6, float(rows.abs().max()))

    # Margin form ------------------------------------------------------------------------------------------------

    def margin_value(self, margin: ArrayLike, num_classes: int) -> Curve:
        """ell(a): the loss at logits with z_true - z_other = a for every other class."""
        raise TypeError(f"{self.name} does not depend on the margin alone, so it has no margin form")

    def margin_derivative(self, margin: ArrayLike, num_classes: int) -> Curve:
        """d ell / d a."""
        raise TypeError(f"{self.name} does not depend on the margin alone, so it has no margin form")

    def phi(self, total: ArrayLike, num_classes: int) -> Curve:
        """Lower bound of the loss in t = sum_{j != y} (z_j - z_y), attained iff the wrong logits agree.

        losses, Definition 1: loss(z, y) >= phi(t). With t the *sum* over wrong classes, phi(t) = ell(-t/(K-1)).
        """
        count = integer("num_classes", num_classes, minimum=2)
        return self.margin_value(-np.asarray(total, dtype=np.float64) / (count - 1), count)

    def phi_derivative(self, total: ArrayLike, num_classes: int) -> Curve:
        """d phi / d t."""
        count = integer("num_classes", num_classes, minimum=2)
        slope = self.margin_derivative(-np.asarray(total, dtype=np.float64) / (count - 1), count)
        return -slope / (count - 1)

    def optimal_margin(self, slope: float, num_classes: int) -> MarginOptimum:
        """The global minimiser a >= 0 of ell(a) + slope * a; a scalar search where no closed form is given."""
        slope = real("slope", slope, above=0)
        horizon = (float(self.margin_value(0.0, num_classes)) + 1.0) / slope
        grid = np.concatenate([[0.0], np.geomspace(1e-6, max(horizon, 1.0), 2000)])
        values = self.margin_value(grid, num_classes) + slope * grid
        best = int(np.argmin(values))
        if best == 0 and float(self.margin_derivative(0.0, num_classes)) + slope >= 0:
            return MarginOptimum(0.0, float(values[0]))
        bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
        found = minimize_scalar(
            lambda a: float(self.margin_value(a, num_classes)) + slope * a,
            bounds=bounds,
            method="bounded",
            options={"xatol": 1e-12},
        )
        return MarginOptimum(float(found.x), float(found.fun))

    def transition(self, num_classes: int) -> Transition:
        """Where zero and collapse exchange; s = -ell'(0)/(K-1) for a loss that is convex in the margin."""
        threshold = max(0.0, -float(self.margin_derivative(0.0, num_classes)) / (num_classes - 1))
        return Transition(threshold, threshold, threshold)

    # Checks -----------------------------------------------------------------------------------------------------

    def _checked(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(logits, Tensor) or not isinstance(labels, Tensor):
            raise TypeError(f"{self.name} takes tensors, got {describe(logits)} and {describe(labels)}")
        if unusual_tensor(logits) is not None:
            raise ValueError(f"logits must be a dense tensor of real numbers, got {describe(logits)}")
        if logits.ndim != 2 or logits.shape[1] < 2 or not logits.is_floating_point():
            raise ValueError(f"logits must be floating point of shape (N, K) with K >= 2, got {describe(logits)}")
        check_target_labels(labels, logits.shape[0], logits.shape[1])
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        return logits, labels.long()


def check_target_labels(labels: Tensor, count: int, num_classes: int | None) -> None:
    """Raise unless ``labels`` are ``count`` integers in range (the range is read only on the CPU: no device sync)."""
    if unusual_tensor(labels) is not None:
        raise ValueError(f"labels must be a dense tensor of integers, got {describe(labels)}")
    if labels.ndim != 1 or labels.shape[0] != count or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be integers of shape ({count},), got {describe(labels)}")
    if count == 0:
        raise ValueError("labels and outputs are empty: a mean loss needs at least one sample")
    if num_classes is not None and labels.device.type == "cpu":
        low, high = (int(v) for v in torch.aminmax(labels))
        if low < 0 or high >= num_classes:
            raise ValueError(f"labels must be in 0..{num_classes - 1}, got {low if low < 0 else high}")


def entropy(probabilities: Float[Tensor, "N K"]) -> Float[Tensor, " N"]:
    """-sum p log p of each row, with 0 log 0 = 0; minus infinity where an entry is negative."""
    return torch.special.entr(probabilities).sum(1)


def log_wrong(num_classes: int) -> float:
    """log(K - 1)."""
    return math.log(integer("num_classes", num_classes, minimum=2) - 1)


def per_class_numbers(name: str, values: object, above: float | None = None) -> tuple[float, ...] | None:
    """One finite float a class from a list, array or tensor; None stays None."""
    if values is None:
        return None
    if isinstance(values, Tensor | np.ndarray):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        raise TypeError(f"{name} must be a list, array or tensor with one number a class, got {describe(values)}")
    if len(values) < 2:
        raise ValueError(f"{name} must name at least 2 classes, got {len(values)}")
    return tuple(real(f"{name}[{index}]", value, above=above) for index, value in enumerate(values))


def spread_over(name: str, numbers: Sequence[float] | np.ndarray | Tensor, logits: Tensor) -> Tensor:
    """The numbers as a tensor like ``logits``; ValueError unless there is one for each of its K columns."""
    if len(numbers) != logits.shape[-1]:
        raise ValueError(f"{name} names {len(numbers)} classes, but the logits have {logits.shape[-1]}")
    return torch.as_tensor(numbers, dtype=logits.dtype, device=logits.device)


@dataclass(frozen=True)
class FunctionLoss(LogitLoss):
    """``function(logits, labels)``, the mean over samples or one value a sample; nothing else is known of it.

    >>> hinge = FunctionLoss(lambda z, y: torch.nn.functional.multi_margin_loss(z, y))
    >>> hinge(torch.zeros(1, 4), torch.tensor([2])).item()
    0.75
    """

    function: Callable[[Tensor, Tensor], Tensor]

    name: ClassVar[str] = "function"
    summary: ClassVar[str] = "a user's function of logits and labels"

    @property
    def spec(self) -> str:
        """The function's own name; it cannot be rebuilt from it."""
        return f"function {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def _outcome(self, logits: Tensor, labels: Tensor) -> Tensor:
        found = self.function(logits, labels)
        if not isinstance(found, Tensor) or found.shape not in ((), (len(labels),)):
            raise ValueError(
                f"{self.spec} must return the mean loss or {len(labels)} values, one a sample, got {describe(found)}"
            )
        return found

    def _mean(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, ""]:
        return self._outcome(logits, labels).mean()

    def _values(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        found = self._outcome(logits, labels)
        if found.ndim == 1:
            return found
        pairs = zip(logits.split(1), labels.split(1), strict=True)
        return torch.stack([self._outcome(row, label) for row, label in pairs])
