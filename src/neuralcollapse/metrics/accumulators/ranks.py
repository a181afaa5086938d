"""Numerical ranks of classes from Gram matrices of the smaller side.

The features X (n, d) of a class are split as X = 1 m' + C with m their mean. The Gram matrix of the smaller
side is then S + u u' with S of the size of the spread and one rank-one term of the size of the mean: kept
apart, the small singular values keep their digits at deep collapse, where the Gram matrix of X itself would
only hold rounding errors.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from torch import Tensor

from ..._support.machine import in_float64
from ..processes import Group, gather_rows, rank_of, sum_over, world_of
from .look import Chunk, Look
from .scatter import add_gram

__all__ = ["Ranks", "gram_bytes", "rank_of_class"]


def gram_bytes(counts: Int[Tensor, " K"], dim: int) -> int:
    """Bytes that :class:`Ranks` holds for classes of these sizes: 8 d min(n_k, d) each."""
    return int(8 * dim * counts.clamp(max=dim).sum())


def rank_of_class(centred: Float[Tensor, "n d"], mean: Float[Tensor, " d"]) -> float | None:
    """|X|_*^2 / |X|_F^2 of X = 1 mean' + centred; 0 if X is zero.

    ``mean`` is float64. Products of ``centred`` are taken in its own precision: float32 gives ``None`` where that
    is not enough, because directions with a small part of the others' variance count, or the spread is lost in sums
    of the size of the mean.

    Cost: n d min(n, d) / 2 multiplications and an eigenvalue problem of size min(n, d).
    """
    count, dim = centred.shape
    exact = centred.dtype == torch.float64
    if not exact and not 1e-10 < float(centred.abs().max()) < 1e10:
        return None
    if count >= dim:
        rest = centred.mean(0, dtype=torch.float64)
        centred, mean = centred - rest.to(centred.dtype), mean + rest
        scatter = torch.zeros(dim, dim, dtype=torch.float64, device=centred.device)
        for start in range(0, count, 1024):
            add_gram(scatter, centred[start : start + 1024])
        return _rank_of_split_gram(scatter.to("cpu"), count**0.5 * mean.to("cpu"), exact)
    length = mean.square().sum().sqrt()
    direction = mean / length if float(length) > 0 else torch.zeros_like(mean)
    along = (centred @ direction.to(centred.dtype)).to(torch.float64)
    # Rows become columns of the transpose: its Gram matrix is the n x n one.
    across = torch.zeros(count, count, dtype=torch.float64, device=centred.device)
    for start in range(0, dim, 1024):
        add_gram(across, centred[:, start : start + 1024].T)
    across.addr_(along, along, alpha=-1)
    return _rank_of_split_gram(across.to("cpu"), (length + along).to("cpu"), exact)


def _rank_of_split_gram(small: Float[Tensor, "s s"], vector: Float[Tensor, " s"], exact: bool = True) -> float | None:
    """(sum of square roots of eigenvalues)^2 / (sum of eigenvalues) of small + vector vector'.

    Of the symmetric ``small`` only the diagonal and what is above it are read, and may be overwritten.
    The vector is reflected on the first axis and ``small`` made tridiagonal by turns that leave that axis alone, so
    the large term stays one entry and takes no digits from the others. ``None`` where ``small`` is not ``exact`` and
    its small eigenvalues count.
    """
    energy, spread = float(vector.square().sum()), float(small.diagonal().sum())
    total = energy + spread
    if total <= 0.0:
        return 0.0
    if vector.shape[0] == 1:
        return 1.0
    if not exact and spread <= 1e-6 * energy:
        return None
    diagonal, beside = _tridiagonal(_turned(small, vector, energy), single=not exact)
    if spread > 1e-6 * energy:
        diagonal[0] += energy
        values = _eigenvalues(diagonal, beside)
        # The largest is that of the mean; the others are the spread's, and each is off by some 1e-7 of their largest.
        if not exact and not _exact_enough(values[:-1]):
            return None
        return float(np.sqrt(values).sum() ** 2 / values.sum())
    # Eliminating the first axis leaves the small eigenvalues, with an error of the square of spread / energy, and the
    # large one is the rest of the trace.
    diagonal[1] -= beside[0] ** 2 / (energy + diagonal[0])
    values = _eigenvalues(diagonal[1:], beside[1:])
    largest = max(total - float(values.sum()), 0.0)
    return (largest**0.5 + float(np.sqrt(values).sum())) ** 2 / total


def _turned(small: Float[Tensor, "s s"], vector: Float[Tensor, " s"], energy: float) -> Float[Tensor, "s s"]:
    """P small P on and above the diagonal, with P the reflection that takes the vector to the first axis."""
    if energy == 0.0:
        return small
    axis = vector / energy**0.5
    axis[0] += 1.0 if float(axis[0]) >= 0 else -1.0
    axis /= axis.square().sum().sqrt()
    # The transpose is in the order of LAPACK, where what is above the diagonal is below it.
    array = small.numpy().T
    (multiply,) = get_blas_funcs(("symv",), (array,))
    product = torch.from_numpy(multiply(1.0, array, axis.numpy(), lower=1))
    product = 2 * (product - (axis @ product) * axis)
    return small.addmm_(torch.stack([axis, product], 1), torch.stack([product, axis]), alpha=-1)


def _tridiagonal(matrix: Float[Tensor, "s s"], single: bool) -> tuple[np.ndarray, np.ndarray]:
    """Diagonal and off-diagonal of a tridiagonal matrix with the same eigenvalues and the same first axis.

    Only the diagonal and what is above it are read.
    """
    array = matrix.to(torch.float32).numpy() if single else matrix.numpy()
    (reduce,) = get_lapack_funcs(("sytrd",), (array,))
    # The transpose is in the order that LAPACK overwrites.
    _, diagonal, beside, _, _ = reduce(array.T, lower=1, lwork=32 * array.shape[0])
    return diagonal.astype(np.float64), beside.astype(np.float64)


def _eigenvalues(diagonal: np.ndarray, beside: np.ndarray) -> np.ndarray:
    if diagonal.shape[0] == 1:
        return np.maximum(diagonal, 0.0)
    (solve,) = get_lapack_funcs(("sterf",), (diagonal,))
    values, _ = solve(diagonal, beside)
    return np.maximum(values, 0.0)


def _exact_enough(values: np.ndarray) -> bool:
    """Whether errors of 2e-7 of the largest of these eigenvalues leave 1e-5 of the sum of their roots."""
    if values[0] <= 0.0:
        return False
    roots = np.sqrt(values)
    return bool(values[-1] * (1 / roots).sum() <= 100 * roots.sum())


class Ranks:
    """Collects classes from a stream: the rows of a class smaller than d, else its d x d Gram matrix."""

    def __init__(self, counts: Int[Tensor, " K"], dim: int):
        self._dim = dim
        self._tall = (counts >= dim).tolist()
        self._rows: list[list[Tensor]] = [[] for _ in range(counts.shape[0])]
        self._grams: dict[int, Tensor] = {}
        self._found: Tensor | None = None

    def add(self, chunk: Chunk) -> None:
        """Add samples minus their class means."""
        order = torch.argsort(chunk.labels, stable=True)
        classes, sizes = torch.unique_consecutive(chunk.labels[order], return_counts=True)
        for label, index in zip(classes.to("cpu").tolist(), order.split(sizes.to("cpu").tolist()), strict=True):
            self._add(label, in_float64(chunk.difference[index]))

    def _add(self, label: int, rows: Float[Tensor, "n d"]) -> None:
        if not self._tall[label]:
            self._rows[label].append(rows)
            return
        if label not in self._grams:
            self._grams[label] = torch.zeros(self._dim, self._dim, dtype=torch.float64, device=rows.device)
        add_gram(self._grams[label], rows)

    def merge(self, other: "Ranks") -> None:
        """Add the samples that another collection of the same classes holds."""
        for label, rows in enumerate(other._rows):
            self._rows[label] += rows
        for label, gram in other._grams.items():
            self._grams[label] = self._grams[label] + gram if label in self._grams else gram.clone()

    def result(self, look: Look, counts: Int[Tensor, " K"]) -> Float[Tensor, " K"]:
        """The numerical rank of each class, 0 for one without samples."""
        if self._found is not None:
            return self._found
        return self._ranks(look, counts.to("cpu").tolist(), range(len(self._tall)))

    def _ranks(self, look: Look, counts: list[int], labels: range) -> Float[Tensor, " K"]:
        result = torch.zeros(len(self._tall), dtype=torch.float64)
        for label in labels:
            if not counts[label]:
                continue
            origin = look.centre[label].to("cpu").to(torch.float64)
            if self._tall[label]:
                rest = look.error_of(label)
                gram = self._grams[label].to("cpu") - counts[label] * torch.outer(rest, rest)
                found = _rank_of_split_gram(gram, counts[label] ** 0.5 * (origin + rest))
            else:
                found = rank_of_class(torch.cat(self._rows[label]).to("cpu"), origin)
            assert found is not None
            result[label] = found
        return result

    def all_reduce(self, look: Look, counts: Int[Tensor, " K"], group: Group = None) -> None:
        """Bring classes together: process r of w takes every w-th class, and all learn all ranks.

        ``counts`` are those of all processes. Gram matrices are summed, rows of small classes are gathered.
        """
        world, mine = world_of(group), rank_of(group)
        sizes = counts.to("cpu").tolist()
        for owner in range(world):
            labels = range(owner, len(self._tall), world)
            tall = [label for label in labels if self._tall[label] and sizes[label]]
            empty = torch.zeros(self._dim, self._dim, dtype=torch.float64)
            for label in tall:
                (gram,) = sum_over([self._grams.pop(label, empty)], group)
                if owner == mine:
                    self._grams[label] = gram
            small = [label for label in labels if not self._tall[label] and sizes[label]]
            self._gather(small, owner == mine, group)
        (self._found,) = sum_over([self._ranks(look, sizes, range(mine, len(self._tall), world))], group)

    def _gather(self, labels: list[int], keep: bool, group: Group) -> None:
        world, mine = world_of(group), rank_of(group)
        numbers = [[part.shape[0] for part in self._rows[label]] for label in labels]
        lengths = torch.tensor([sum(parts) for parts in numbers], dtype=torch.int64)
        everyones = torch.zeros(world, len(labels), dtype=torch.int64)
        everyones[mine] = lengths
        (everyones,) = sum_over([everyones], group)
        rows = [part.to("cpu") for label in labels for part in self._rows[label]]
        block = torch.cat(rows) if rows else torch.zeros(0, self._dim, dtype=torch.float64)
        together = gather_rows(block, group, everyones.sum(1).tolist())
        for label in labels:
            self._rows[label] = []
        if keep:
            owners = torch.cat([torch.repeat_interleave(torch.tensor(labels, dtype=torch.int64), n) for n in everyones])
            for label in labels:
                self._rows[label] = [together[owners == label]]

    def state(self) -> dict[str, Tensor]:
        """The Gram matrices with the numbers of their classes, and the rows with their labels."""
        labels = sorted(self._grams)
        rows = [torch.cat(parts) if parts else None for parts in self._rows]
        kept = [part for part in rows if part is not None]
        lengths = torch.tensor([0 if part is None else part.shape[0] for part in rows])
        empty = torch.zeros(0, self._dim, self._dim, dtype=torch.float64)
        return {
            "gram_classes": torch.tensor(labels, dtype=torch.int64),
            "grams": torch.stack([self._grams[label] for label in labels]) if labels else empty,
            "row_labels": torch.repeat_interleave(torch.arange(len(rows)), lengths),
            "rows": torch.cat(kept) if kept else torch.zeros(0, self._dim, dtype=torch.float64),
        }

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Take over what :meth:`state` gave."""
        self._grams = dict(zip(state["gram_classes"].tolist(), state["grams"], strict=True))
        lengths = torch.bincount(state["row_labels"], minlength=len(self._tall)).tolist()
        self._rows = [[part] if part.shape[0] else [] for part in state["rows"].split(lengths)]
