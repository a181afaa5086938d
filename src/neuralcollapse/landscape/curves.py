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
    """
    t = np.asarray(t, dtype=np.float64)
    return logit_loss(loss).phi(t, num_classes) + real("c", c, minimum=0) * np.abs(t)
