"""Gaussian clusters around a simplex ETF, whose Bayes error is known."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import log_ndtr

from ..._support.checks import integer, real
from ..._support.machine import check_room
from ...frames import simplex_etf
from ._base import Arrays, Source, sources

__all__ = ["Synthetic", "bayes_error", "separation_for"]


def bayes_error(num_classes: int, separation: float) -> float:
    """The least error of any classifier of K equally likely classes N(separation * e_k, I), e a simplex ETF.

    The K scores <x, e_j> differ like independent normal variables of which one is shifted by
    delta = separation * sqrt(K/(K-1)), so the error is 1 - int phi(t - delta) Phi(t)^(K-1) dt.
    """
    delta = separation * math.sqrt(num_classes / (num_classes - 1))

    def wrong(t: float) -> float:
        at_most = (num_classes - 1) * float(log_ndtr(t))
        return math.exp(-0.5 * (t - delta) ** 2) / math.sqrt(2 * math.pi) * -math.expm1(at_most)

    return float(quad(wrong, delta - 12, delta + 12, points=[0.0, delta], epsabs=1e-14, limit=400)[0])


def separation_for(num_classes: int, error: float) -> float:
    """The separation at which the Bayes error is ``error``."""
    root = brentq(lambda size: bayes_error(num_classes, size) - error, 0.0, 20.0, xtol=1e-12)
    assert isinstance(root, float)
    return root


@sources.add("synthetic", renamed={"classes": "num_classes"})
@dataclass(frozen=True)
class Synthetic(Source):
    """Clusters in R^dim with a stated Bayes error: unit normal noise around the vectors of a simplex ETF.

    A sample is an "image" of one channel and one row. ``facts`` hold ``bayes_error`` and ``separation``.
    """

    title = "Gaussian clusters around a simplex ETF"
    image_shape = (1, 1, 32)
    train_size = 1000
    test_size = 1000
    licence = "made here"
    embedded = True

    num_classes: int = 10  # pyright: ignore[reportIncompatibleVariableOverride]  (here it is a parameter)
    dim: int = 32
    per_class: int = 100
    bayes_error: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        count = integer("num_classes", self.num_classes, minimum=2)
        integer("dim", self.dim, minimum=count - 1)
        integer("per_class", self.per_class, minimum=1)
        check_room("these samples", 24 * self.num_classes * self.per_class * self.dim)
        real("bayes_error", self.bayes_error, minimum=1e-9, below=1 - 1 / count)
        integer("seed", self.seed, minimum=0)

    def read(self, root: Path) -> Arrays:
        """Draw the samples, as many for testing as for training."""
        separation = separation_for(self.num_classes, self.bayes_error)
        generator = torch.Generator().manual_seed(self.seed)
        means = separation * simplex_etf(self.num_classes, self.dim, generator)
        labels = torch.arange(self.num_classes).repeat_interleave(self.per_class)

        def draw() -> np.ndarray:
            noise = torch.randn(len(labels), self.dim, dtype=torch.float64, generator=generator)
            return (means[labels] + noise).float()[:, None, None, :].numpy()

        names = tuple(str(label) for label in range(self.num_classes))
        facts = {"bayes_error": float(self.bayes_error), "separation": separation}
        return Arrays(draw(), labels.numpy(), draw(), labels.numpy().copy(), names, facts)
