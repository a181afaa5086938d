"""The papers' one-dimensional curves, whose minima are the closed-form optima."""

import math

import numpy as np
from numpy.typing import ArrayLike

from .._support.checks import integer, real
from ..losses import Curve, LogitLoss, logit_loss

__all__ = ["bound_curve", "decay_curve"]


def bound_curve(
    rho: ArrayLike,
    loss: LogitLoss | str,
    num_classes: int,
    per_class: int,
    weight_decay: float,
    feature_decay: float,
) -> Curve:
    """xi(rho) = ell(rho/(K-1) sqrt(lW/(n lH))) + lW rho: the least objective at |W|_F^2 = rho (geometric, D.1).

    Its minimum over rho >= 0 is the optimum of the regularised model; it is finite because lW rho grows.

    >>> value = bound_curve(0.0, "ce", num_classes=4, per_class=5, weight_decay=0.01, feature_decay=0.01)
    >>> round(float(value), 12)  # log 4
    1.38629436112

    Args:
        rho: |W|_F^2, one number or an array.
        loss: one of margins.
        num_classes: K.
        per_class: n, the same for all classes.
        weight_decay: lW > 0.
        feature_decay: lH > 0.

    """
    count = integer("num_classes", num_classes, minimum=2)
    samples = integer("per_class", per_class, minimum=1)
    weight, feature = (
        real("weight_decay", weight_decay, above=0),
        real("feature_decay", feature_decay, above=0),
    )
    rho = np.asarray(rho, dtype=np.float64)
    margin = rho / (count - 1) * math.sqrt(weight / (samples * feature))
    return logit_loss(loss).margin_value(margin, count) + weight * rho


def decay_curve(t: ArrayLike, loss: LogitLoss | str, num_classes: int, c: float) -> Curve:
    """psi(t) = phi(t) + c |t|, with t the *sum* of z_j - z_y over wrong classes (losses, appendix B).

    With c = s = sqrt(n lW lH) its minimum is the optimum of the regularised model (the constant K s that the paper
    prints is wrong in every reading of t). For the focal loss it can have two local minima.

    >>> from neuralcollapse import ufm
    >>> model = ufm.RegularizedUFM("ce", 3, 2, 4, weight_decay=0.01, feature_decay=0.02)
    >>> grid = np.linspace(-20, 0, 20001)
    >>> bool(abs(decay_curve(grid, "ce", 3, model.s).min() - model.optimum().value) < 1e-6)
    True

    Args:
        t: one number or an array; negative where samples are told right.
        loss: one of margins.
        num_classes: K.
        c: the factor of |t|, at least 0.

    """
    t = np.asarray(t, dtype=np.float64)
    return logit_loss(loss).phi(t, num_classes) + real("c", c, minimum=0) * np.abs(t)
