"""The regularised unconstrained feature model: weight decay on classifier, features and bias."""

import math
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor

from ..._support.model_fields import fields_of
from ...losses import LossLike, logit_loss
from ..certificate import Certificate
from ..optimum import Optimum
from ..point import Point
from ..problem import Counts, Problem, ProblemLinearization, problems

__all__ = ["RegularizedLinearization", "RegularizedUFM"]


@problems.add("regularized")
class RegularizedUFM(Problem):
    """min g(H W' + 1 b') + lW/2 |W|^2 + lH/2 |H|^2 + lb/2 |b|^2, g the mean loss (geometric (3), mse (3), losses (7)).

    ``bias_decay=None`` means no bias, ``0.0`` a free one. ``per_class`` may be a list, array or tensor of K counts.
    ``features="nonnegative"`` restricts the entries of H, as after a ReLU.

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

    def linearize(self, point: Point) -> "RegularizedLinearization":
        """Value and derivatives at ``point``, sharing the softmax."""
        return RegularizedLinearization(self, point)

    def random_point(self, seed: int | Generator) -> Point:
        """Gaussian entries of variance 1/d; their sizes where features must not be negative."""
        generator = self._generator(seed)

        def gaussian(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator) / math.sqrt(self.dim)

        classifier = gaussian(self.num_classes, self.dim)
        features = gaussian(self.num_samples, self.dim)
        if self.nonnegative:
            features = features.abs()
        return Point(classifier, features, gaussian(self.num_classes) if self.has_bias else None)

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
        from .optimum import regularized_optimum

        return regularized_optimum(self)

    def closed_form(self) -> Optimum | None:
        """The optimum if a closed form gives it at once; None where the convex program would have to."""
        from .optimum import closed_regularized

        try:
            return closed_regularized(self)
        except NotImplementedError:
            return None

    def count_threshold(self) -> float | tuple[float, ...]:
        """The count n at and below which a class is not learned: minority collapse (docs/theory.md, the gap law).

        Classes of equal count n are told apart from one another at the optimum if and only if n is above N^2 lW lH
        (divided by (1 - eps)^2 for label smoothing, by omega_k^2 for class weights: then one number a class), whatever
        the other classes are, with any bias. For the squared error without a bias it holds for every class alone.

        >>> model = RegularizedUFM("ce", 4, [50, 50, 5, 5], 6, weight_decay=0.01, feature_decay=0.05)
        >>> round(model.count_threshold(), 9)
        6.05
        """
        from .learned import count_threshold

        return count_threshold(self)

    def learned_classes(self) -> tuple[int, ...]:
        """The classes whose own logit, without the bias, is above all others at the optimum's features.

        >>> RegularizedUFM("ce", 4, [50, 50, 5, 5], 6, weight_decay=0.01, feature_decay=0.05).learned_classes()
        (0, 1)
        """
        from .learned import learned_classes

        return learned_classes(self)

    def certify(self, point: Point, tolerance: float = 1e-8) -> Certificate:
        """A rigorous duality gap, the spectral test, and an escape direction at a strict saddle."""
        from .certificate import certify_regularized

        return certify_regularized(self, self.check(point), tolerance)


class RegularizedLinearization(ProblemLinearization):
    """The regularised model around one point."""

    def __init__(self, problem: RegularizedUFM, point: Point):
        classifier, bias = point.classifier, point.b
        self.problem, self.point = problem, point
        logits = point.H @ classifier.T
        if bias is not None:
            logits += bias
        self.loss = problem.loss.linearize(logits, problem.labels)
        decay = problem.weight_decay * float(classifier.square().sum())
        decay += problem.feature_decay * float(point.H.square().sum())
        if bias is not None and problem.bias_decay:
            decay += problem.bias_decay * float(bias.square().sum())
        self.value = self.loss.value + decay / 2
        self.logit_gradient = self.loss.gradient

    @property
    def gradient(self) -> Point:
        """(G'H + lW W, G W + lH H, G'1 + lb b) with G the gradient of the mean loss in the logits."""
        problem, point, slope = self.problem, self.point, self.logit_gradient
        classifier = torch.addmm(point.classifier, slope.T, point.H, beta=problem.weight_decay)
        features = torch.addmm(point.H, slope, point.classifier, beta=problem.feature_decay)
        bias = None if point.b is None else slope.sum(0) + (problem.bias_decay or 0.0) * point.b
        return Point(classifier, features, bias)

    def hessian_vector(self, direction: Point) -> Point:
        """Hessian times ``direction``: two products in, one softmax-Hessian, four products out."""
        problem, point, slope = self.problem, self.point, self.logit_gradient
        change = direction.H @ point.classifier.T
        change.addmm_(point.H, direction.classifier.T)
        if direction.b is not None:
            change += direction.b
        bend = self.loss.hessian_vector(change)
        classifier = torch.addmm(direction.classifier, bend.T, point.H, beta=problem.weight_decay)
        classifier.addmm_(slope.T, direction.H)
        features = torch.addmm(direction.H, bend, point.classifier, beta=problem.feature_decay)
        features.addmm_(slope, direction.classifier)
        bias = None if direction.b is None else bend.sum(0) + (problem.bias_decay or 0.0) * direction.b
        return Point(classifier, features, bias)
