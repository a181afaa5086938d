"""The squared error of a classifier in three parts, from statistics alone (Han, Papyan and Donoho 2022)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .._support.checks import describe, real
from .._support.numerics import eigh
from .accumulators.statistics import ClassStatistics
from .inputs import as_classifier

__all__ = ["SquaredErrorParts", "squared_error_parts"]


@dataclass(frozen=True, eq=False)
class SquaredErrorParts:
    """``loss = nc1 + nc23 + perp`` and the least-squares classifier that splits it.

    Attributes:
        loss: (1/2N) sum over samples of |W h + b - e_y|^2, plus decay/2 (|W|^2 + |b|^2).
        nc1: what the spread within classes costs the best classifier, with its decay.
        nc23: how far that classifier's outputs at the class means are from one-hot.
        perp: what the actual classifier loses against the best one for the same features.
        weight: the best classifier, (K, d).
        bias: its bias, (K,), or ``None`` where there was none.

    """

    loss: float
    nc1: float
    nc23: float
    perp: float
    weight: Float[Tensor, "K d"]
    bias: Float[Tensor, " K"] | None


@torch.no_grad()
def squared_error_parts(
    statistics: ClassStatistics, weight: Tensor, bias: Tensor | None = None, *, decay: float = 0.0
) -> SquaredErrorParts:
    """Split the squared error of a classifier on features of which only the statistics are known.

    With class shares p_k = n_k/N, the second moment T = S_W + sum_k p_k m_k m_k' and the least-squares
    classifier W_LS = (sum_k p_k e_k m_k') (T + decay I)^-1,

        L_NC1 = tr(W_LS (S_W + decay I) W_LS')/2,   L_NC2/3 = sum_k p_k |W_LS m_k - e_k|^2/2,
        L_perp = tr((W - W_LS)(T + decay I)(W - W_LS)')/2.

    Args:
        statistics: of ``passes=1``, with samples.
        weight: the classifier, (K, d).
        bias: its bias, (K,): features are then extended by a one, and the decay holds for it, too, as in the
            paper. ``None`` for a classifier without bias.
        decay: lambda >= 0; at 0 the least-norm solution is taken.

    >>> statistics = ClassStatistics(num_classes=2, dim=2)
    >>> statistics.update(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    >>> parts = squared_error_parts(statistics, torch.zeros(2, 2))
    >>> parts.loss, round(parts.perp, 12), round(parts.nc1, 12), round(parts.nc23, 12)
    (0.5, 0.5, 0.0, 0.0)

    """
    if not isinstance(statistics, ClassStatistics):
        raise TypeError(f"statistics must be ClassStatistics, got {describe(statistics)}")
    penalty = real("decay", decay, minimum=0.0)
    matrix, vector = as_classifier(weight, bias, statistics.num_classes, statistics.dim)
    if matrix is None:
        raise TypeError("weight must be a floating tensor or numpy array, got None")
    within = statistics.within_covariance
    if within is None:
        raise ValueError("statistics must be of passes=1: the split needs the d x d scatter within classes")
    if statistics.total == 0:
        raise ValueError("the statistics hold no samples")
    within, means = within.to("cpu"), statistics.means.to("cpu")
    share = statistics.counts.to("cpu").to(torch.float64) / statistics.total
    if vector is not None:
        matrix = torch.cat([matrix, vector[:, None]], dim=1)
        means = torch.cat([means, torch.ones(means.shape[0], 1, dtype=torch.float64)], dim=1)
        within = torch.nn.functional.pad(within, (0, 1, 0, 1))
    weighted = share[:, None] * means
    spread = within + penalty * torch.eye(means.shape[1], dtype=torch.float64)
    moment = spread + means.T @ weighted
    best = _least_squares(moment, weighted.T).T
    misfit = best @ means.T - torch.eye(means.shape[0], dtype=torch.float64)
    gap = matrix - best
    nc1 = float(((best @ spread) * best).sum() / 2)
    nc23 = float((misfit.square() @ share).sum() / 2)
    perp = float(((gap @ moment) * gap).sum().clamp(min=0) / 2)
    outputs = matrix @ means.T - torch.eye(means.shape[0], dtype=torch.float64)
    loss = float((outputs.square() @ share).sum() / 2 + ((matrix @ spread) * matrix).sum() / 2)
    last = None if vector is None else best[:, -1].clone()
    return SquaredErrorParts(loss, nc1, nc23, perp, best[:, : statistics.dim].clone(), last)


def _least_squares(matrix: Float[Tensor, "d d"], right: Float[Tensor, "d K"]) -> Float[Tensor, "d K"]:
    """The least-norm solution of a positive semidefinite system."""
    values, vectors = eigh(matrix)
    kept = values > matrix.shape[0] * torch.finfo(values.dtype).eps * values[-1]
    return vectors[:, kept] @ ((vectors[:, kept].T @ right) / values[kept][:, None])
