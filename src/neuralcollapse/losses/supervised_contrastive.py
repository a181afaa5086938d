"""The supervised contrastive loss, on features instead of logits.

h are unit rows, tau the temperature in the normalised paper's sense: exponents are tau^2 <h_i, h_j>.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._support.checks import describe, positive_scale, unusual_tensor
from ._base import Loss, check_target_labels, losses

__all__ = ["ContrastiveLinearization", "SupervisedContrastive"]

BLOCK_ENTRIES = 1 << 21
"""Pairwise similarities that are held at once (16 MB): rows are taken in blocks, never N x N for large N."""


@losses.add("supervised-contrastive", "sc", "supcon")
@dataclass(frozen=True)
class SupervisedContrastive(Loss):
    """-mean_i mean_{j: y_j = y_i, j != i} log [ exp(tau^2 <h_i,h_j>) / sum_{l != i} exp(tau^2 <h_i,h_l>) ].

    normalized, eq. (40); h_i are the rows of ``features`` scaled to unit norm. In the notation of the contrastive
    literature its temperature is 1/tau^2. Samples that are alone in their class have no positive pair and are left
    out of the mean; a batch in which all are alone has loss 0.

    >>> two_pairs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    >>> round(SupervisedContrastive()(two_pairs, torch.tensor([0, 0, 1, 1])).item(), 12)  # log(1 + 2/e)
    0.551444713932
    """

    temperature: float = 1.0

    name: ClassVar[str] = "supervised-contrastive"
    takes: ClassVar[str] = "features"
    summary: ClassVar[str] = "-log of the share of positive pairs among exp(tau^2 <h_i, h_j>)"

    def __post_init__(self) -> None:
        object.__setattr__(self, "temperature", positive_scale("temperature", self.temperature))

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of ``outputs`` (N, d), which are scaled to unit rows, against ``labels`` (N,)."""
        features, labels = self._checked(outputs, labels)
        unit = torch.nn.functional.normalize(features, dim=1)
        similarity = self.temperature**2 * unit @ unit.T
        alone = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        log_share = torch.log_softmax(similarity.masked_fill(alone, -math.inf), dim=1)
        positive = (labels[:, None] == labels[None, :]) & ~alone
        count = positive.sum(1)
        anchors = count > 0
        total = torch.where(positive, log_share, 0.0).sum(1) / count.clamp(min=1)
        return -torch.where(anchors, total, 0.0).sum() / anchors.sum().clamp(min=1)

    def gradient(self, features: Tensor, labels: Tensor) -> Float[Tensor, "N d"]:
        """Analytic gradient in the raw features (through their normalisation)."""
        return self._through_normalisation(features, labels, None)

    def hessian_vector(self, features: Tensor, labels: Tensor, direction: Tensor) -> Float[Tensor, "N d"]:
        """Analytic Hessian in the raw features times ``direction``."""
        if direction.shape != features.shape:
            raise ValueError(f"direction must have the features' shape, got {describe(direction)}")
        return self._through_normalisation(features, labels, direction)

    def linearize(self, unit: Float[Tensor, "N d"], labels: Int[Tensor, " N"]) -> "ContrastiveLinearization":
        """Value and derivatives as a function of rows that are taken as they are (checked, of unit norm)."""
        return ContrastiveLinearization(unit, labels, self.temperature)

    def _through_normalisation(self, features: Tensor, labels: Tensor, direction: Tensor | None) -> Tensor:
        features, labels = self._checked(features, labels)
        norm = features.norm(dim=1, keepdim=True)
        unit = features / norm
        state = self.linearize(unit, labels)
        slope = state.gradient

        def tangent(rows: Tensor) -> Tensor:
            return rows - unit * (unit * rows).sum(1, keepdim=True)

        if direction is None:
            return tangent(slope) / norm
        turn = tangent(direction) / norm
        growth = (unit * direction).sum(1, keepdim=True) / norm
        radial = turn * (unit * slope).sum(1, keepdim=True) + unit * (turn * slope).sum(1, keepdim=True)
        return (tangent(state.hessian_vector(turn)) - radial - growth * tangent(slope)) / norm

    def _checked(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(features, Tensor) or not isinstance(labels, Tensor):
            raise TypeError(f"{self.name} takes tensors, got {describe(features)} and {describe(labels)}")
        if unusual_tensor(features) is not None:
            raise ValueError(f"features must be a dense tensor of real numbers, got {describe(features)}")
        if features.ndim != 2 or not features.is_floating_point():
            raise ValueError(f"features must be floating point of shape (N, d), got {describe(features)}")
        check_target_labels(labels, features.shape[0], None)
        if features.dtype in (torch.float16, torch.bfloat16):
            features = features.float()
        return features, labels.long()


class ContrastiveLinearization:
    """The contrastive loss around rows ``unit``, with pair matrices in row blocks only.

    f = sum_i a_i [ log sum_{l != i} exp(s_il) - mean_{positives} s_ij ],  s_ij = tau^2 <h_i, h_j>,
    with a_i = 1/(number of anchors that have a positive pair), 0 for the others.
    """

    def __init__(self, unit: Float[Tensor, "N d"], labels: Int[Tensor, " N"], temperature: float):
        self.unit = unit
        self.scale = temperature**2
        self._classes, self._index = torch.unique(labels, return_inverse=True)
        sizes = torch.bincount(self._index, minlength=len(self._classes))[self._index].to(unit.dtype)
        anchors = (sizes > 1).to(unit.dtype)
        self.weights = anchors / anchors.sum().clamp(min=1)
        self._pair_weights = (self.weights / (sizes - 1).clamp(min=1))[:, None]
        self._rows = max(1, BLOCK_ENTRIES // len(unit))
        self._whole: Tensor | None = None
        self._log_totals = torch.empty(len(unit), dtype=unit.dtype)
        mixed, value = torch.zeros_like(unit), 0.0
        for block, share in self._blocks(first=True):
            weighted = share * self.weights[block, None]
            mixed[block] += weighted @ unit
            mixed += weighted.T @ unit[block]
            value += float(self.weights[block] @ self._log_totals[block])
        pull = self._positives(unit)
        self.value = value - self.scale * float((unit * pull).sum())
        self.gradient: Float[Tensor, "N d"] = self.scale * (mixed - 2 * pull)

    def hessian_vector(self, direction: Float[Tensor, "N d"]) -> Float[Tensor, "N d"]:
        """Euclidean Hessian of f in the rows, times ``direction``."""
        unit, result = self.unit, torch.zeros_like(direction)
        for block, share in self._blocks():
            share_weighted = share * self.weights[block, None]
            change = self.scale * (direction[block] @ unit.T + unit[block] @ direction.T)
            change -= torch.linalg.vecdot(share, change, dim=1)[:, None]
            change *= share_weighted
            result[block] += change @ unit + share_weighted @ direction
            result += change.T @ unit[block] + share_weighted.T @ direction[block]
        return self.scale * (result - 2 * self._positives(direction))

    def pair_gradient(self) -> Float[Tensor, "N N"]:
        """The symmetric gradient of f in the matrix of similarities tau^2 <h_i, h_j>: N x N, for certificates."""
        gradient = torch.cat([share * self.weights[block, None] for block, share in self._blocks()])
        positive = (self._index[:, None] == self._index[None, :]).fill_diagonal_(False)
        gradient -= positive * self._pair_weights
        return (gradient + gradient.T) / 2

    def _positives(self, rows: Tensor) -> Tensor:
        """T rows, where T_ij = a_i/(n_i - 1) for the other samples j of i's class (T is symmetric)."""
        totals = torch.zeros(len(self._classes), rows.shape[1], dtype=rows.dtype)
        totals.index_add_(0, self._index, rows)
        return self._pair_weights * (totals[self._index] - rows)

    def _blocks(self, first: bool = False) -> Iterator[tuple[slice, Tensor]]:
        """Row blocks of softmax_{l != i}(s_il); kept when one block holds them all."""
        count = len(self.unit)
        if self._whole is not None:
            yield slice(0, count), self._whole
            return
        for start in range(0, count, self._rows):
            block = slice(start, min(start + self._rows, count))
            similarity = self.scale * (self.unit[block] @ self.unit.T)
            similarity.diagonal(start).fill_(-math.inf)
            if first:
                self._log_totals[block] = torch.logsumexp(similarity, dim=1)
            similarity -= self._log_totals[block, None]
            share = similarity.exp_()
            if self._rows >= count:
                self._whole = share
            yield block, share
