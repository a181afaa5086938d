"""The regularised unconstrained feature model: weight decay on classifier, features and bias."""

import math
from dataclasses import replace
from typing import ClassVar, Literal

from torch import Generator

from ..._support.fields.models import fields_of
from ...losses import LossLike, logit_loss
from ..logit_problem import LogitProblem
from ..objectives.base import Objective
from ..point import Point
from ..problem import Counts, problems
from ..results import Certificate, Optimum
from .certificate import certify_regularized
from .imbalanced import count_threshold, learned_classes
from .nonnegative import SquaredFeatures
from .objective import RegularizedObjective
from .optimum import closed_regularized, regularized_optimum

__all__ = ["RegularizedUFM"]


@problems.add("regularized")
class RegularizedUFM(LogitProblem):
    """min g(H W' + 1 b') + lW/2 |W|^2 + lH/2 |H|^2 + lb/2 |b|^2, g the mean loss (geometric (3), mse (3), losses (7)).

    Args:
        loss: a loss, its string form such as "focal:gamma=3", or a function of (logits, labels).
        num_classes: K >= 2.
        per_class: samples a class n: one number, or a list, array or tensor of K counts.
        dim: feature dimension d.
        weight_decay: lW >= 0.
        feature_decay: lH >= 0; a minimum is attained where both are positive.
        bias_decay: lb; None for no bias, 0.0 for a free one.
        features: "nonnegative" restricts the entries of H, as after a ReLU.

    >>> from neuralcollapse import losses
    >>> model = RegularizedUFM(losses.CrossEntropy(), 10, per_class=100, dim=20, weight_decay=5e-4, feature_decay=5e-4)
    >>> model.optimum().regime
    'neural collapse'

    """

    kind: ClassVar[str] = "regularized"

    def __init__(
        self,
        loss: LossLike,
        num_classes: int,
        per_class: Counts,
        dim: int,
        weight_decay: float,
        feature_decay: float,
        bias_decay: float | None = None,
        features: Literal["free", "nonnegative"] = "free",
    ):
        super().__init__(num_classes, per_class, dim)
        self.loss = logit_loss(loss)
        fields = fields_of(self.kind)
        self.weight_decay: float = fields["weight_decay"].check(weight_decay)
        self.feature_decay: float = fields["feature_decay"].check(feature_decay)
        self.features: Literal["free", "nonnegative"] = fields["features"].check(features)
        self.bias_decay: float | None = fields["bias_decay"].check(bias_decay)

    @property
    def has_bias(self) -> bool:
        """Whether there is a bias (``bias_decay`` is not None)."""
        return self.bias_decay is not None

    @property
    def nonnegative(self) -> bool:
        """Whether features are restricted to non-negative entries, as after a ReLU."""
        return self.features == "nonnegative"

    @property
    def mu(self) -> float:
        """sqrt(lW lH): the weight of the nuclear norm in the equivalent problem in the logits."""
        return math.sqrt(self.weight_decay * self.feature_decay)

    @property
    def s(self) -> float:
        """sqrt(n lW lH), the only combination that a balanced optimum depends on."""
        if not self.balanced:
            raise ValueError("s = sqrt(n lW lH) is defined for balanced classes only")
        return math.sqrt(self.counts[0]) * self.mu

    def logit_objective(self) -> RegularizedObjective:
        """The objective in W, H and b."""
        return RegularizedObjective(self)

    def objective(self) -> Objective:
        """The same, for methods; where features must not be negative, in their square roots."""
        return SquaredFeatures(self) if self.nonnegative else self.logit_objective()

    def with_one_sample(self) -> "RegularizedUFM":
        """The model with n = 1 and n times the feature decay."""
        decay = self.feature_decay * self.counts[0]
        return RegularizedUFM(
            self.loss, self.num_classes, 1, self.dim, self.weight_decay, decay, self.bias_decay, self.features
        )

    def random_point(self, seed: int | Generator) -> Point:
        """Gaussian entries of variance 1/d; their sizes where features must not be negative."""
        point = self._gaussian_point(seed)
        return replace(point, H=point.H.abs()) if self.nonnegative else point

    def check(self, point: Point) -> Point:
        """``point`` if its blocks have this model's shapes, are float64 and finite (and H is not negative)."""
        super().check(point)
        if self.nonnegative and float(point.H.min()) < 0:
            raise ValueError(f"point.H must not be negative in this model, but one entry is {float(point.H.min()):.3g}")
        return point

    def optimum(self) -> Optimum:
        """The global minimum, for any counts; see docs/theory.md for each regime.

        In closed form for balanced classes, for the squared error, and for cross-entropy with two group sizes; else,
        for a convex loss, by a convex program with a certificate (regime "convex program").
        """
        return regularized_optimum(self)

    def closed_form(self) -> Optimum | None:
        """The optimum if a closed form gives it at once; None where the convex program would have to."""
        try:
            return closed_regularized(self)
        except NotImplementedError:
            return None

    def count_threshold(self) -> float | tuple[float, ...]:
        """The count n at and below which a class is not learned: minority collapse (docs/theory.md, the gap law).

        Classes of equal count n are told apart from one another at the optimum if and only if n is above N^2 lW lH
        (divided by (1 - eps)^2 for label smoothing, by omega_k^2 for class weights: then one number a class), whatever
        the other classes are, with any bias. For the squared error without a bias every class is by itself, and the
        threshold is N^2 lW lH/(alpha M)^2; so it is with non-negative features for cross-entropy without a bias, where
        the threshold is K/(K-1) times as large.

        >>> model = RegularizedUFM("ce", 4, [50, 50, 5, 5], 6, weight_decay=0.01, feature_decay=0.05)
        >>> round(model.count_threshold(), 9)
        6.05

        Raises:
            NotImplementedError: where none is known: other losses, the squared error with a bias, and non-negative
                features with a bias (but for balanced classes) or an adjusted loss.

        """
        return count_threshold(self)

    def learned_classes(self) -> tuple[int, ...]:
        """The classes whose own logit, without the bias, is above all others at the optimum's features.

        >>> RegularizedUFM("ce", 4, [50, 50, 5, 5], 6, weight_decay=0.01, feature_decay=0.05).learned_classes()
        (0, 1)
        """
        return learned_classes(self)

    def certify(self, point: Point, tolerance: float = 1e-8) -> Certificate:
        """A rigorous duality gap, the spectral test, and an escape direction at a strict saddle."""
        return certify_regularized(self, self.check(point), tolerance)
