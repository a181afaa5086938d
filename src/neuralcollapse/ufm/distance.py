"""How far a net's classifier and class means are from the exact geometry at its own decays and counts.

The limits of vanishing decay (a simplex, SELI) are approached only logarithmically; the optimum of the regularised
model at a net's own numbers is what it can be compared with.
"""

import torch
from torch import Tensor

from .._support.checks import describe
from .._support.tensor_checks import finite_tensor
from ..losses import LossLike
from .problem import Counts
from .regularized import RegularizedUFM

__all__ = ["optimum_means", "optimum_weight"]


def optimum_weight(
    weight: Tensor,
    counts: Counts,
    weight_decay: float,
    feature_decay: float,
    bias_decay: float | None = None,
    loss: LossLike = "ce",
) -> float:
    """|| WW'/|WW'|_F - W*W*'/|W*W*'|_F ||_F, W* the classifier of the model's global minimum; in [0, sqrt 2].

    >>> from neuralcollapse import frames
    >>> round(optimum_weight(frames.simplex_etf(4, 6, seed=0), 10, 1e-3, 1e-3), 12)
    0.0

    Args:
        weight: W (K, d) of a net.
        counts: samples of each class, or one number for all.
        weight_decay: lW of the net.
        feature_decay: lH, the decay that stands for the encoder's.
        bias_decay: None without a bias.
        loss: the loss it was trained with.

    """
    return _distance("weight", weight, counts, weight_decay, feature_decay, bias_decay, loss)


def optimum_means(
    means: Tensor,
    counts: Counts,
    weight_decay: float,
    feature_decay: float,
    bias_decay: float | None = None,
    loss: LossLike = "ce",
) -> float:
    """|| CMM'C'/|CMM'C'|_F - the same of M* ||_F, M* the optimum's class means, C = I - 1n'/N; in [0, sqrt 2].

    C takes the mean over all samples off both sides. The arguments are those of :func:`optimum_weight`, with M (K, d)
    in the place of W.

    >>> from neuralcollapse import frames
    >>> round(optimum_means(frames.simplex_etf(3, 4) + 5.0, 10, 1e-3, 1e-3), 12)
    0.0
    """
    return _distance("means", means, counts, weight_decay, feature_decay, bias_decay, loss)


def _distance(
    name: str,
    rows: Tensor,
    counts: Counts,
    weight_decay: float,
    feature_decay: float,
    bias_decay: float | None,
    loss: LossLike,
) -> float:
    array = finite_tensor(name, rows, (None, None)).detach().to("cpu").to(torch.float64)
    classes = array.shape[0]
    if classes < 2:
        raise ValueError(f"{name} must have a row for each of at least 2 classes, got {describe(rows)}")
    dim = max(array.shape[1], classes)
    problem = RegularizedUFM(loss, classes, counts, dim, weight_decay, feature_decay, bias_decay)
    optimum = problem.optimum()
    gram, exact = array @ array.T, optimum.weight_gram
    if name == "means":
        shares = torch.tensor(problem.counts, dtype=torch.float64) / problem.num_samples
        centre = torch.eye(classes, dtype=torch.float64) - shares
        gram, exact = centre @ gram @ centre.T, centre @ optimum.mean_gram @ centre.T
    if float(gram.norm()) == 0 or float(exact.norm()) == 0:
        which = f"{name} given" if float(gram.norm()) == 0 else "optimum at these decays"
        raise ValueError(f"the {which} is zero: there is no geometry to compare")
    return float((gram / gram.norm() - exact / exact.norm()).norm())
