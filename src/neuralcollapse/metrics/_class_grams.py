"""Numerical ranks of classes from Gram matrices of the smaller side.

The features X (n, d) of a class are split as X = 1 m' + C with m their mean. The Gram matrix of the smaller
side is then S + u u' with S of the size of the spread and one rank-one term of the size of the mean: kept
apart, the small singular values keep their digits at deep collapse, where the Gram matrix of X itself would
only hold rounding errors.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._statistics import add_gram, symmetric

__all__ = ["ClassGrams", "gram_bytes", "rank_of_class"]


def gram_bytes(counts: Int[Tensor, " K"], dim: int) -> int:
    """Bytes that :class:`ClassGrams` holds for classes of these sizes: 8 d min(n_k, d) each."""
    return int(8 * dim * counts.clamp(max=dim).sum())


def rank_of_class(centred: Float[Tensor, "n d"], mean: Float[Tensor, " d"]) -> float:
    """|X|_*^2 / |X|_F^2 of X = 1 mean' + centred (both float64); 0 if X is zero.

    Cost: n d min(n, d) / 2 multiplications and an eigenvalue problem of size min(n, d).
    """
    count, dim = centred.shape
    if count >= dim:
        rest = centred.mean(0)
        centred, mean = centred - rest, mean + rest
        scatter = torch.zeros(dim, dim, dtype=torch.float64)
        add_gram(scatter, centred)
        return _rank_of_split_gram(symmetric(scatter), count**0.5 * mean)
    length = mean.square().sum().sqrt()
    along = centred @ (mean / length) if float(length) > 0 else torch.zeros(count, dtype=torch.float64)
    # Rows become columns of the transpose: its Gram matrix is the n x n one.
    across = torch.zeros(count, count, dtype=torch.float64)
    add_gram(across, centred.T)
    return _rank_of_split_gram(symmetric(across) - torch.outer(along, along), length + along)


def _rank_of_split_gram(small: Float[Tensor, "s s"], vector: Float[Tensor, " s"]) -> float:
    """(sum of square roots of eigenvalues)^2 / (sum of eigenvalues) of small + vector vector'."""
    energy, spread = float(vector.square().sum()), float(small.diagonal().sum())
    total = energy + spread
    if total <= 0.0:
        return 0.0
    if vector.shape[0] == 1:
        return 1.0
    if spread > 1e-6 * energy:
        values = torch.linalg.eigvalsh(small + torch.outer(vector, vector)).clamp(min=0)
        return float(values.sqrt().sum() ** 2 / values.sum())
    # Reflect the vector on the first axis; eliminating that axis leaves the small eigenvalues, with an error
    # of the square of spread / energy, and the large one is the rest of the trace.
    axis = vector / energy**0.5
    axis[0] += 1.0 if float(axis[0]) >= 0 else -1.0
    axis /= axis.square().sum().sqrt()
    product = small @ axis
    turned = small - 2 * torch.outer(axis, product) - 2 * torch.outer(product, axis)
    turned += 4 * (axis @ product) * torch.outer(axis, axis)
    cross = turned[0, 1:]
    rest = turned[1:, 1:] - torch.outer(cross, cross) / (energy + turned[0, 0])
    values = torch.linalg.eigvalsh(rest).clamp(min=0)
    largest = max(total - float(values.sum()), 0.0)
    return (largest**0.5 + float(values.sqrt().sum())) ** 2 / total


class ClassGrams:
    """Collects classes from a stream: the rows of a class smaller than d, else its d x d Gram matrix."""

    def __init__(self, counts: Int[Tensor, " K"], dim: int):
        self._dim = dim
        self._tall = (counts >= dim).tolist()
        self._rows: list[list[Tensor]] = [[] for _ in range(counts.shape[0])]
        self._grams: dict[int, Tensor] = {}
        self._counts = torch.zeros_like(counts)

    def add(self, centred: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> None:
        """Add samples minus their class means."""
        order = torch.argsort(labels, stable=True)
        classes, sizes = torch.unique_consecutive(labels[order], return_counts=True)
        self._counts.index_add_(0, classes, sizes)
        for label, index in zip(classes.tolist(), order.split(sizes.tolist()), strict=True):
            rows = centred[index].to(torch.float64)
            if self._tall[label]:
                if label not in self._grams:
                    self._grams[label] = torch.zeros(self._dim, self._dim, dtype=torch.float64)
                add_gram(self._grams[label], rows)
            else:
                self._rows[label].append(rows)

    def merge(self, other: "ClassGrams") -> None:
        """Add the samples that another collection of the same classes holds."""
        self._counts += other._counts
        for label, rows in enumerate(other._rows):
            self._rows[label] += rows
        for label, gram in other._grams.items():
            self._grams[label] = self._grams[label] + gram if label in self._grams else gram.clone()

    def ranks(self, centre: Float[Tensor, "K d"], rounding: Float[Tensor, "K d"]) -> Float[Tensor, " K"]:
        """The numerical rank of each class, 0 for one without samples.

        ``centre`` is what the samples were centred by, ``rounding`` the exact means minus that.
        """
        result = torch.zeros(centre.shape[0], dtype=torch.float64)
        for label, (origin, rest) in enumerate(zip(centre, rounding, strict=True)):
            count = int(self._counts[label])
            if count and self._tall[label]:
                gram = symmetric(self._grams[label]) - count * torch.outer(rest, rest)
                result[label] = _rank_of_split_gram(gram, count**0.5 * (origin + rest))
            elif count:
                result[label] = rank_of_class(torch.cat(self._rows[label]), origin)
        return result
