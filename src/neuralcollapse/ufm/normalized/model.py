"""The normalised unconstrained feature model: classifier and features on unit spheres."""

from typing import ClassVar

from ..._support.fields.models import fields_of
from ...losses import LossLike, logit_loss
from ..logit_problem import LogitProblem
from ..point import Point
from ..problem import Counts, problems
from ..results import Certificate, Optimum
from ..spheres import SphereProblem
from .certificate import certify_normalized
from .objective import NormalizedObjective
from .optimum import normalized_optimum

__all__ = ["NormalizedUFM"]


@problems.add("normalized")
class NormalizedUFM(LogitProblem, SphereProblem):
    """min g(tau H W') over unit rows of W and H, g the mean loss (normalized, eq. (4); no bias).

    Args:
        loss: a loss, its string form such as "ls:alpha=0.1", or a function of (logits, labels).
        num_classes: K >= 2.
        per_class: samples a class n: one number, or a list, array or tensor of K counts.
        dim: feature dimension d.
        temperature: tau > 0, which multiplies the cosines.

    >>> model = NormalizedUFM("ce", num_classes=2, per_class=1, dim=1)
    >>> round(model.optimum().value, 12)  # log(1 + e^-2): logits 1 and -1
    0.126928011043

    """

    kind: ClassVar[str] = "normalized"

    def __init__(
        self,
        loss: LossLike,
        num_classes: int,
        per_class: Counts,
        dim: int,
        temperature: float = 1.0,
    ):
        super().__init__(num_classes, per_class, dim)
        self.loss = logit_loss(loss)
        self.temperature: float = fields_of(self.kind)["temperature"].check(temperature)

    def logit_objective(self) -> NormalizedObjective:
        """The objective in W and H."""
        return NormalizedObjective(self)

    def with_one_sample(self) -> "NormalizedUFM":
        """The model with n = 1."""
        return NormalizedUFM(self.loss, self.num_classes, 1, self.dim, self.temperature)

    def optimum(self) -> Optimum:
        """The global minimum in closed form (balanced classes); see docs/theory.md for each regime."""
        return normalized_optimum(self)

    def certify(self, point: Point, tolerance: float = 1e-8) -> Certificate:
        """A rigorous duality gap, the weighted spectral test, and an escape direction at a strict saddle."""
        return certify_normalized(self, self.check(point), tolerance)
