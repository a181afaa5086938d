"""A loss of logits that are scaled and shifted class by class: inner(delta z + iota)."""

from abc import abstractmethod
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from ._base import LogitLoss, spread_over
from ._linearization import Linearization

__all__ = ["AffineLoss"]


class AffineLinearization(Linearization):
    """The chain rule: gradients and directions are multiplied by delta."""

    def __init__(self, inner: Linearization, scale: Float[Tensor, " K"] | None):
        self._inner, self._scale = inner, scale

    @property
    def value(self) -> float:
        """The inner loss's value."""
        return self._inner.value

    @property
    def gradient(self) -> Float[Tensor, "N K"]:
        """delta times the inner gradient."""
        return self._inner.gradient if self._scale is None else self._inner.gradient * self._scale

    def hessian_vector(self, direction: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """delta times the inner Hessian times delta times ``direction``."""
        if self._scale is None:
            return self._inner.hessian_vector(direction)
        return self._inner.hessian_vector(direction.mul_(self._scale)) * self._scale


class AffineLoss(LogitLoss):
    """What logit adjustment and vector scaling share: an inner loss of delta z + iota.

    Convexity is the inner loss's; the conjugate is sup_z <u, z> - l(delta z + iota) = l*(u/delta) - <u/delta, iota>.
    """

    inside: ClassVar[str] = "the loss inside"

    @property
    @abstractmethod
    def _inner(self) -> LogitLoss:
        """The loss of the moved logits."""

    @property
    def _scale(self) -> tuple[float, ...] | None:
        return None

    @property
    def _shift(self) -> tuple[float, ...] | None:
        return None

    @property
    def depends_on_margins(self) -> bool | None:
        """As the inner loss where nothing is scaled or shifted; otherwise classes are not treated alike."""
        changed = self._scale is not None or self._shift is not None
        return False if changed else self._inner.depends_on_margins

    @property
    def convex_from(self) -> float | None:
        """0 where the inner loss is convex everywhere, else unknown: p_y is another one here."""
        return 0.0 if self._inner.is_convex else None

    @property
    def has_conjugate(self) -> bool:
        """Whether the inner loss has one."""
        return self._inner.has_conjugate

    def _move(self, logits: Tensor) -> Tensor:
        if self._scale is not None:
            logits = logits * spread_over("multiplicative", self._scale, logits)
        if self._shift is not None:
            logits = logits + spread_over("prior" if self._scale is None else "additive", self._shift, logits)
        return logits

    def _values(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        return self._inner._values(self._move(logits), labels)

    def linearize(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> AffineLinearization:
        """The inner loss around the moved logits."""
        scale = None if self._scale is None else spread_over("multiplicative", self._scale, logits)
        return AffineLinearization(self._inner.linearize(self._move(logits), labels), scale)

    def conjugate(self, dual: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """The inner conjugate at u/delta, less <u/delta, iota>."""
        inner = self._divided(dual)
        conjugate = self._inner.conjugate(inner, labels)
        return conjugate if self._shift is None else conjugate - inner @ spread_over("additive", self._shift, dual)

    def _divided(self, dual: Tensor) -> Tensor:
        return dual if self._scale is None else dual / spread_over("multiplicative", self._scale, dual)

    def dual_rows(self, logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Float[Tensor, "N K"]:
        """delta times the inner rows at the moved logits."""
        rows = self._inner.dual_rows(self._move(logits), labels)
        return rows if self._scale is None else rows * spread_over("multiplicative", self._scale, rows)

    def dual_centre(self, labels: Int[Tensor, " N"], num_classes: int) -> Float[Tensor, "N K"]:
        """delta times the inner rows: column sums of zero stay zero."""
        rows = self._inner.dual_centre(labels, num_classes)
        return rows if self._scale is None else rows * spread_over("multiplicative", self._scale, rows)

    def dual_reach(self, rows: Float[Tensor, "N K"]) -> float:
        """The inner reach of u/delta."""
        return self._inner.dual_reach(self._divided(rows))
