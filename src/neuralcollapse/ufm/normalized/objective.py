"""The flat form of the normalised model."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..logit_objective import LogitHessian, LogitModel, LogitState
from ..objective import dot
from .model import NormalizedUFM

__all__ = ["NormalizedModel"]


class NormalizedModel(LogitModel):
    """Unit rows: Riemannian derivatives, and steps that are scaled back to the spheres.

    The metric weighs W by 1/K and H by 1/N: a feature's gradient is n times smaller than a classifier's.
    """

    def __init__(self, problem: NormalizedUFM):
        super().__init__(problem, problem.temperature, (float(problem.num_classes), float(problem.num_samples)))
        self._slice = max(part.rows for part in self.parts) + self.classes

    def retract(self, x: Float[Tensor, " D"], direction: Float[Tensor, " D"], length: float) -> Float[Tensor, " D"]:
        """Rows of x + length * direction, scaled to unit norm."""
        result = super().retract(x, direction, length)
        rows = result.view(self.shape)
        rows /= torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        return result

    def project_(self, x: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Take each row's radial part away."""
        self._radial_(x.view(self.shape), vector.view(self.shape))
        return vector

    def finish_gradient_(self, x: Float[Tensor, " D"], pull: Float[Tensor, " D"]) -> Tensor:
        """Project; the radial parts are the multipliers tau (alpha, beta)."""
        return self._radial_(x.view(self.shape), pull.view(self.shape))

    def finish_hessian_(
        self,
        hessian: LogitHessian,
        direction: Float[Tensor, " D"],
        turn: Float[Tensor, "R d"],
        bend: Float[Tensor, " D"],
        out: Float[Tensor, "R d"],
    ) -> None:
        """Subtract multipliers times ``direction`` and project (normalized, eqs. (7) and (8), corrected)."""
        assert hessian.multipliers is not None
        out.addcmul_(hessian.multipliers, turn, value=-1)
        self._radial_(hessian.base, out)

    def along(self, state: LogitState, direction: Float[Tensor, " D"], unit: float) -> "_SphereAlong":
        """Rows of x + t d have norms sqrt(1 + t^2 |d|^2)."""
        squares = torch.linalg.vector_norm(direction.view(self.shape), dim=1).square_().mul_(unit**2)
        assert state.multipliers is not None
        return _SphereAlong(state.multipliers[:, 0], squares)

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


class _SphereAlong:
    def __init__(self, multipliers: Float[Tensor, " R"], squares: Float[Tensor, " R"]):
        self._multipliers, self._squares = multipliers, squares

    def curvature(self) -> float:
        return -dot(self._multipliers, self._squares)

    def penalty(self, step: float) -> float:
        return 0.0

    def factors(self, step: float) -> Float[Tensor, " R"]:
        return self._squares.mul(step**2).add_(1).rsqrt_()
