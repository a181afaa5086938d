"""Any counts, any convex loss: one feature a class, solved and certified.

By Jensen's inequality a minimiser has one feature a class. With g_k = sqrt(n_k) h_k the model is

    min over W, g, b of  sum_k (n_k/N) loss(W g_k/sqrt(n_k) + b, k) + lW/2 |W|^2 + lH/2 |g|^2 + lb/2 |b|^2,

a model of K samples whose loss is weighted and scaled sample by sample; with d >= K it is the convex program in
Z = g W' with the nuclear norm, and its dual bound closes.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

import torch
from torch import Generator, Tensor

from ..._support.files import JSONObject
from ..._support.numerics import svd, svdvals
from ..point import Point
from ..problem import Problem, ProblemLinearization
from ..results import GLOBAL_MINIMUM, UNDECIDED, Certificate, Optimum, mean_margin
from ..solvers.loop import solve
from .class_logits import from_class_logits

if TYPE_CHECKING:
    from .model import RegularizedUFM

__all__ = ["ClassMeansUFM", "convex_program_optimum"]

PROGRAM: Final = "convex program"
CLOSED = 1e-11
"""The relative gap up to which the program's own certificate proves the optimum."""
ROUNDS = 6
"""Solves until the certificate closes."""
RANK = 1e-7
"""Singular values of the logits below this share of the largest count as zero (they are zero or of order one)."""


class ClassMeansUFM(Problem):
    """The program: Point(W, g, b) with one row of g a class, its logits W g_k/sqrt(n_k) + b, d = K."""

    kind: ClassVar[str] = "class-means"

    def __init__(self, model: "RegularizedUFM"):
        super().__init__(model.num_classes, 1, model.num_classes)
        self.model = model
        counts = torch.tensor(model.counts, dtype=torch.float64)[:, None]
        self.scale, self.share = counts.rsqrt(), counts / model.num_samples
        self.mean_decay = model.mu
        """Decay of W and g alike: only the product of both decays matters, and equal ones are the best scaled."""

    @property
    def has_bias(self) -> bool:
        """As the model."""
        return self.model.has_bias

    def linearize(self, point: Point) -> "ClassMeansLinearization":
        """Value and derivatives."""
        return ClassMeansLinearization(self, point)

    def random_point(self, seed: int | Generator) -> Point:
        """Gaussian entries of variance 1/K, without bias."""
        generator, size = self._generator(seed), self.num_classes
        rows = torch.randn(2 * size, size, dtype=torch.float64, generator=generator) / math.sqrt(size)
        return Point(rows[:size], rows[size:], torch.zeros(size, dtype=torch.float64) if self.has_bias else None)

    def lift(self, point: Point) -> Point:
        """The point of the whole model (with at least K dimensions) that stands for ``point``."""
        balance = (self.model.feature_decay / self.model.weight_decay) ** 0.25
        means = point.H * self.scale / balance
        return Point(point.classifier * balance, means, point.b)

    def rebalanced(self, point: Point) -> Point:
        """The point with the same logits and the least decays: g W' = U S V', g = U S^(1/2), W = V S^(1/2)."""
        left, singular, right = svd(point.H @ point.classifier.T)
        root = singular.sqrt()
        return Point(right.T * root, left * root, point.b)

    def optimum(self) -> Optimum:
        """Not known: this is how it is found."""
        raise NotImplementedError("the program is solved, not known in closed form")

    def certify(self, point: Point, tolerance: float = 1e-8) -> Certificate:
        """The whole model's certificate; the program has no business with escape directions."""
        model, lifted = self.model, self.lift(point)
        wide = type(model)(
            model.loss, model.num_classes, model.per_class, self.dim,
            model.weight_decay, model.feature_decay, model.bias_decay,
        )  # fmt: skip
        whole = Point(lifted.W, lifted.H[model.labels], lifted.b)
        found = wide.certify(whole, tolerance)
        verdict = found.verdict if found.verdict == GLOBAL_MINIMUM else UNDECIDED
        return replace(found, verdict=verdict, escape=None, curvature=None)

    def parameters(self) -> JSONObject:
        """Those of the model."""
        return self.model.parameters()


class ClassMeansLinearization(ProblemLinearization):
    """The program around one point: rows of the loss are weighted by n_k/N."""

    def __init__(self, problem: ClassMeansUFM, point: Point):
        self.problem, self.point = problem, point
        classes = problem.num_classes
        logits = problem.scale * (point.H @ point.classifier.T)
        if point.b is not None:
            logits += point.b
        loss, labels = problem.model.loss, problem.labels
        # The inner loss averages over K rows; each counts n_k/N instead.
        self._rows = classes * problem.share
        self._loss = loss.linearize(logits, labels)
        decay = problem.mean_decay * float(point.classifier.square().sum() + point.H.square().sum())
        if point.b is not None:
            decay += (problem.model.bias_decay or 0.0) * float(point.b.square().sum())
        self.value = float(loss.values(logits, labels) @ problem.share.squeeze(1)) + decay / 2
        self._slope = self._loss.gradient * self._rows

    @property
    def gradient(self) -> Point:
        """With G the gradient in the logits and r = 1/sqrt(n): (G' r g, r G W, G'1) and the decays."""
        return self._pulled(self._slope, self.point, self.point)

    def hessian_vector(self, direction: Point) -> Point:
        """As in the regularised model, with r in between."""
        problem, point = self.problem, self.point
        change = problem.scale * (direction.H @ point.classifier.T + point.H @ direction.classifier.T)
        if direction.b is not None:
            change = change + direction.b
        curved = self._loss.hessian_vector(change) * self._rows
        slope = problem.scale * self._slope
        cross = Point(
            slope.T @ direction.H, slope @ direction.classifier, None if point.b is None else torch.zeros_like(point.b)
        )
        return self._pulled(curved, point, direction) + cross

    def _pulled(self, rows: Tensor, point: Point, decayed: Point) -> Point:
        problem = self.problem
        scaled = problem.scale * rows
        decay = problem.mean_decay
        bias = None
        if decayed.b is not None:
            bias = rows.sum(0) + (problem.model.bias_decay or 0.0) * decayed.b
        return Point(
            scaled.T @ point.H + decay * decayed.classifier, scaled @ point.classifier + decay * decayed.H, bias
        )


def _solved(program: ClassMeansUFM) -> tuple[Point, Certificate]:
    """The minimiser and its certificate.

    Where the decays are tiny against the loss's curvature, a solve fits the logits at once and then creeps along the
    curved valley of equal logits: the least decays for them are known, and it goes on from there.
    """
    start: Point | None = None
    found: list[tuple[Point, Certificate]] = []
    for _ in range(ROUNDS):
        point = solve(program, "trust-region", start, seed=0, tol=1e-14, max_iter=500, record=()).point
        found.append((point, program.certify(point)))
        if found[-1][1].gap <= CLOSED * abs(found[-1][1].value):
            break
        start = program.rebalanced(point)
    return min(found, key=lambda pair: pair[1].value)


def convex_program_optimum(problem: "RegularizedUFM") -> Optimum:
    """The certified minimum; NotImplementedError where the rank that d allows is too small for it."""
    loss = problem.loss
    if not (loss.is_convex and loss.has_conjugate):
        raise NotImplementedError(
            f"no closed form is known for {loss.spec} and these counts, and no convex program: "
            "the loss must be convex with a known conjugate"
        )
    program = ClassMeansUFM(problem)
    point, certificate = _solved(program)
    lifted = program.lift(point)
    logits = lifted.H @ lifted.classifier.T
    roots = torch.tensor(problem.counts, dtype=torch.float64).sqrt()[:, None]
    singular = svdvals(roots * logits)
    largest = float(singular[0])
    rank = int((singular > RANK * largest).sum()) if largest > RANK else 0
    if rank > problem.dim:
        raise NotImplementedError(
            f"no closed form is known for {loss.spec} and these counts with dim = {problem.dim}: the unconstrained "
            f"minimiser has rank {rank}"
        )
    proved = certificate.gap <= CLOSED * abs(certificate.value)
    note = f"solved as a convex program, one feature a class; certified to {max(certificate.gap, 0.0):.1e}"
    return from_class_logits(
        problem,
        certificate.value,
        PROGRAM if rank else "zero",
        lambda: (logits, lifted.b),
        (mean_margin(logits), float(singular.sum()), problem.num_samples),
        note=note,
        proved=proved,
    )
