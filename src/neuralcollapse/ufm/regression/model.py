"""Squared error against any targets Y (N, t): mse Lemma B.2; regression: Andriopoulos et al. (2024).

In Z = H W' the model is min |Z + 1b' - Y|^2/(2N) + mu |Z|_*, rank Z <= d, mu = sqrt(lW lH).
"""

import math
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from ..._support.checks import describe
from ..._support.fields.models import fields_of
from ..._support.tensor_checks import finite_tensor
from ..point import Point
from ..problem import Problem, problems
from ..results import Certificate, Optimum
from .certificate import certify_regression
from .critical_points import CriticalPoint, SingularPairs
from .objective import RegressionLinearization

__all__ = ["RegressionUFM"]


@problems.add("regression")
class RegressionUFM(Problem):
    """min |H W' + 1b' - Y|^2/(2N) + lW/2 |W|^2 + lH/2 |H|^2 + lb/2 |b|^2 over W (t, d), H (N, d), b (t,).

    One-hot targets are the squared error of :class:`RegularizedUFM` with any counts.

    >>> model = RegressionUFM([[2.0, 0.0], [0.0, 1.0]], dim=2, weight_decay=0.1, feature_decay=0.1)
    >>> round(model.optimum().value, 12)  # (2*0.1)^2/2 + 0.1*(1.8 + 0.8), with N mu = 0.2
    0.28

    Args:
        targets: Y, N rows of t numbers (a list of lists, an array or a tensor).
        dim: feature dimension d.
        weight_decay: lW > 0.
        feature_decay: lH > 0.
        bias_decay: None for no bias, 0.0 for a free one.

    """

    kind: ClassVar[str] = "regression"
    has_classes: ClassVar[bool] = False

    def __init__(
        self,
        targets: ArrayLike | Tensor,
        dim: int,
        weight_decay: float,
        feature_decay: float,
        bias_decay: float | None = None,
    ):
        self.targets = _checked_targets(targets)
        samples, outputs = self.targets.shape
        # A classifier row an output; all samples belong to one group, since there are no classes.
        self.num_classes, self.num_samples = int(outputs), int(samples)
        self.counts = (self.num_samples,)
        self._labels = None
        fields = fields_of(self.kind)
        self.dim: int = fields["dim"].check(dim)
        self.weight_decay: float = fields["weight_decay"].check(weight_decay)
        self.feature_decay: float = fields["feature_decay"].check(feature_decay)
        self.bias_decay: float | None = fields["bias_decay"].check(bias_decay)

    @property
    def labels(self) -> Tensor:
        """Zeros: one group."""
        if self._labels is None:
            with torch.inference_mode(False):
                self._labels = torch.zeros(self.num_samples, dtype=torch.int64)
        return self._labels

    @property
    def has_bias(self) -> bool:
        """Whether there is a bias."""
        return self.bias_decay is not None

    @property
    def mu(self) -> float:
        """sqrt(lW lH)."""
        return math.sqrt(self.weight_decay) * math.sqrt(self.feature_decay)

    @property
    def balance(self) -> float:
        """(lH/lW)^(1/4): the scale of W against H at critical points."""
        return (self.feature_decay / self.weight_decay) ** 0.25

    def linearize(self, point: Point) -> RegressionLinearization:
        """Value and derivatives."""
        return RegressionLinearization(self, point)

    def random_point(self, seed: int | Generator) -> Point:
        """Gaussian entries of variance 1/d."""
        return self._gaussian_point(seed)

    @cached_property
    def _pairs(self) -> SingularPairs:
        return SingularPairs(self)

    @property
    def singular_values(self) -> Float[Tensor, " r"]:
        """s_i of the targets (centred if the bias is free), falling."""
        return self._pairs.values

    def optimum(self) -> Optimum:
        """f* = sum_i [(s_i - x_i)^2/(2N) + mu x_i], x_i = max(0, s_i - N mu) for i <= d; no bias or a free one."""
        return self._pairs.optimum()

    def critical_points(self) -> list[CriticalPoint]:
        """All subsets of at most d of the singular pairs above N mu, the lowest value first.

        With repeated singular values each stands for all rotations within the repeated ones.
        """
        return self._pairs.critical_points()

    def certify(self, point: Point, tolerance: float = 1e-8) -> Certificate:
        """The closed form as bound (a dual bound for a bias with a decay), and the lemma's escape directions."""
        return certify_regression(self, self.check(point), tolerance)

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in self.targets.shape)
        rest = ", ".join(f"{key}={value!r}" for key, value in self.parameters().items() if key != "targets")
        return f"RegressionUFM(targets {shape}, {rest})"


def _checked_targets(targets: object) -> Float[Tensor, "N t"]:
    if isinstance(targets, Tensor):
        array = targets.detach().to("cpu", torch.float64, copy=True)
    else:
        try:
            array = torch.from_numpy(np.array(targets, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise TypeError(f"targets must be a matrix of numbers, got {describe(targets)}") from error
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"targets must have shape (N, t) with N, t >= 1, got shape {tuple(array.shape)}")
    return finite_tensor("targets", array, (None, None))
