"""The supervised contrastive model: features on the unit sphere, no classifier."""

from typing import ClassVar

from ..._support.fields.models import fields_of
from ...losses import SupervisedContrastive
from ..point import Point
from ..problem import Counts, problems
from ..results import Certificate, Optimum
from ..spheres import SphereProblem
from .certificate import certify_contrastive
from .objective import SphereContrast
from .optimum import contrastive_optimum

__all__ = ["ContrastiveUFM"]


@problems.add("contrastive")
class ContrastiveUFM(SphereProblem):
    """min over unit rows h_i of the supervised contrastive loss with exponents tau^2 <h_i, h_j> (normalized, eq. (40)).

    Args:
        num_classes: K >= 2.
        per_class: samples a class n >= 2, since the loss is about pairs: one number, or a list of K counts.
        dim: feature dimension d.
        temperature: tau > 0.

    >>> model = ContrastiveUFM(num_classes=2, per_class=2, dim=1)
    >>> round(model.optimum().value, 12)  # log(1 + 2 e^-2): similarities 1 and -1
    0.239544766222

    """

    kind: ClassVar[str] = "contrastive"
    has_classifier: ClassVar[bool] = False

    def __init__(self, num_classes: int, per_class: Counts, dim: int, temperature: float = 1.0):
        super().__init__(num_classes, per_class, dim)
        self.loss = SupervisedContrastive(fields_of(self.kind)["temperature"].check(temperature))
        if min(self.counts) < 2:
            raise ValueError(f"per_class must be at least 2 in the contrastive model, got {min(self.counts)}")

    @property
    def temperature(self) -> float:
        """tau."""
        return self.loss.temperature

    def linearize(self, point: Point) -> SphereContrast:
        """Value and Riemannian derivatives at ``point``."""
        return SphereContrast(self, point)

    def optimum(self) -> Optimum:
        """The global minimum in closed form (balanced classes, d >= K-1)."""
        return contrastive_optimum(self)

    def certify(self, point: Point, tolerance: float = 1e-8) -> Certificate:
        """A rigorous lower bound by semidefinite duality, and an escape direction at a strict saddle."""
        return certify_contrastive(self, self.check(point), tolerance)
