"""The objective of the normalised model."""

from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..objectives.base import dot
from ..objectives.logit_state import LogitHessian, LogitState
from ..objectives.logits import LogitObjective

if TYPE_CHECKING:
    from .model import NormalizedUFM

__all__ = ["NormalizedObjective"]


class NormalizedObjective(LogitObjective):
    """g(tau H W') over unit rows: Riemannian derivatives, and steps that are scaled back to the spheres.

    With alpha_k = <w_k, (G'H)_k>, beta_i = <h_i, (GW)_i> the gradient is tau (G'H - alpha W, GW - beta H) and the
    Hessian the projection of the Euclidean one less tau (alpha dW, beta dH) (normalized (7), (8), corrected).

    The metric weighs W by 1/K and H by 1/N: a feature's gradient is n times smaller than a classifier's.
    """

    unit_rows: ClassVar[bool] = True

    def __init__(self, problem: "NormalizedUFM"):
        super().__init__(problem, problem.temperature, (float(problem.num_classes), float(problem.num_samples)))
        self._slice = max(part.rows for part in self.parts) + self.classes

    def retract(self, x: Float[Tensor, " D"], direction: Float[Tensor, " D"], length: float) -> Float[Tensor, " D"]:
        """Rows of x + length * direction, scaled to unit norm."""
        result = super().retract(x, direction, length)
        rows = self.rows(result)
        rows /= torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        return result

    def project_(self, x: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Take each row's radial part away."""
        self._radial_(self.rows(x), self.rows(vector))
        return vector

    def finish_gradient_(self, x: Float[Tensor, " D"], gradient: Float[Tensor, " D"]) -> Float[Tensor, "R 1"]:
        """Project; the radial parts are the multipliers tau (alpha, beta)."""
        return self._radial_(self.rows(x), self.rows(gradient))

    def finish_hessian_(self, hessian: LogitHessian, direction: Float[Tensor, " D"]) -> None:
        """Subtract multipliers times ``direction`` and project."""
        rows = self.rows(hessian.result).addcmul_(hessian.multipliers, self.rows(direction), value=-1)
        self._radial_(self.rows(hessian.x), rows)

    def along(self, state: LogitState, direction: Float[Tensor, " D"], unit: float) -> "SphereAlong":
        """Rows of x + t d have norms sqrt(1 + t^2 |d|^2)."""
        squares = torch.linalg.vector_norm(self.rows(direction), dim=1).square_().mul_(unit**2)
        return SphereAlong(state.multipliers[:, 0], squares)

    def _radial_(self, base: Float[Tensor, "R d"], rows: Float[Tensor, "R d"]) -> Float[Tensor, "R 1"]:
        """Take the radial part of ``rows`` away, and return it; in slices, since the products are held."""
        if self.whole:
            radial = torch.linalg.vecdot(base, rows, dim=1)[:, None]
            rows.addcmul_(base, radial, value=-1)
            return radial
        radial = rows.new_empty(len(rows))
        for left, right, out in zip(*(array.split(self._slice) for array in (base, rows, radial)), strict=True):
            torch.linalg.vecdot(left, right, dim=1, out=out)
        rows.addcmul_(base, radial[:, None], value=-1)
        return radial[:, None]


class SphereAlong:
    """Unit rows along a ray: t^2 |d|^2 of each row, and the multipliers at its start."""

    def __init__(self, multipliers: Float[Tensor, " R"], squares: Float[Tensor, " R"]):
        self._multipliers, self._squares = multipliers, squares

    def curvature(self) -> float:
        """What the retraction adds: the rows bend inwards."""
        return -dot(self._multipliers, self._squares)

    def penalty(self, step: float) -> float:
        """There is none."""
        return 0.0

    def factors(self, step: float) -> Float[Tensor, " R"]:
        """1/sqrt(1 + t^2 |d|^2)."""
        return self._squares.mul(step**2).add_(1).rsqrt_()
