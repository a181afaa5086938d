"""How collapsed a point is: nc1, nc2, nc3 of sorted features, in float64 and without N x d temporaries to
spare.

M (K, d) are the class means less the sample mean, S_W the covariance within classes.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["ClassMeans", "nc1", "nc2", "nc3", "simplex_deviation"]


class ClassMeans:
    """Class means of features whose rows are sorted by class."""

    def __init__(self, features: Float[Tensor, "N d"], counts: Sequence[int]):
        self.features, self.counts = features, counts
        self.balanced = len(set(counts)) == 1
        if self.balanced:
            self.raw = features.view(len(counts), counts[0], -1).mean(1)
        else:
            self.raw = torch.stack([rows.mean(0) for rows in torch.split(features, list(counts))])
        # The sample mean: that of the means where classes are equally large.
        weights = torch.tensor(counts, dtype=torch.float64) / sum(counts)
        self.centred: Float[Tensor, "K d"] = self.raw - weights @ self.raw

    def residuals(self) -> Float[Tensor, "N d"]:
        """Features less the mean of their class."""
        if self.balanced:
            rows = self.features.view(len(self.counts), self.counts[0], -1)
            return (rows - self.raw[:, None]).view_as(self.features)
        return self.features - torch.repeat_interleave(self.raw, torch.tensor(self.counts), dim=0)


def nc1(means: ClassMeans) -> float | None:
    """tr(S_W S_B^+)/K on the span of the centred means by their thin SVD (geometric, section 4); None if they
    coincide.

    With M = U diag(s) V', S_B = M'M/K, so this is the mean over samples of sum_i (v_i'(h - mean))^2 / s_i^2.
    """
    _, singular, right = torch.linalg.svd(means.centred, full_matrices=False)
    largest = float(singular[0])
    kept = singular > largest * max(means.centred.shape) * 2e-16
    if largest == 0:
        return None
    whitened = means.residuals() @ (right[kept].T / singular[kept])
    return torch.linalg.vector_norm(whitened).square().item() / len(whitened)


def nc2(rows: Float[Tensor, "K d"]) -> float | None:
    """|| W W'/|W W'|_F - (I - 11'/K)/sqrt(K-1) ||_F (geometric, with the constant of the unit simplex); None
    at W = 0.
    """
    return simplex_deviation(rows @ rows.T)


def nc3(rows: Float[Tensor, "K d"], means: ClassMeans) -> float | None:
    """The same for W M'."""
    return simplex_deviation(rows @ means.centred.T)


def simplex_deviation(array: Float[Tensor, "K K"]) -> float | None:
    """|| A/|A|_F - (I - 11'/K)/sqrt(K-1) ||_F."""
    norm, classes = float(array.norm()), len(array)
    if norm == 0:
        return None
    result = array / norm
    result += 1 / (classes * math.sqrt(classes - 1))
    result.diagonal().sub_(1 / math.sqrt(classes - 1))
    return float(result.norm())
