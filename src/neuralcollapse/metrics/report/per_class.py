"""The classes one by one, and the large against the small ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..._support.checks import describe
from ..definitions._geometry import Geometry
from ..definitions._pairs import PairSum, Rows, Tile

__all__ = ["PerClass", "class_groups", "pairs_of_classes", "per_class_of"]

MOST_PAIRED = 2000
"""Classes up to which the nearest other mean is looked for: K^2 d multiplications."""


ClassRow = dict[str, str | float]
"""A class: its ``name`` and that of the ``nearest``, and a number in each other column."""


@dataclass(frozen=True, eq=False)
class PerClass:
    """One row a class: ``per_class["cat"]``, ``per_class[3]``, or a column such as ``per_class.variances``.

    Rows are the classes that are measured, in order: where others were left out, class 3 is ``per_class["3"]``.

    Attributes:
        names: the classes' names, or their numbers as text.
        counts: samples.
        variances: mean squared distance of the samples from their mean; ``None`` where no metric asked for it.
        mean_norms: |m_k - h_G|.
        weight_norms: |w_k|.
        cosines: cos(w_k, m_k - h_G); 0 where the mean is the global mean up to rounding.
        nearest: the row of the class with the nearest mean, ``None`` for more than 2000 classes.
        nearest_distances: how far that mean is.
        accuracy: share of the samples that the classifier gets right.
        nearest_mean_accuracy: share of the samples whose own class mean is the nearest.

    """

    names: tuple[str, ...]
    counts: Int[Tensor, " K"]
    mean_norms: Float[Tensor, " K"]
    variances: Float[Tensor, " K"] | None = None
    weight_norms: Float[Tensor, " K"] | None = None
    cosines: Float[Tensor, " K"] | None = None
    nearest: Int[Tensor, " K"] | None = None
    nearest_distances: Float[Tensor, " K"] | None = None
    accuracy: Float[Tensor, " K"] | None = None
    nearest_mean_accuracy: Float[Tensor, " K"] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        columns = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        return f"PerClass({len(self)} classes: {', '.join(columns[1:])})"

    def __getitem__(self, which: int | str) -> ClassRow:
        """The row of that number, or of the class with that name."""
        if isinstance(which, str):
            if which not in self.names:
                raise KeyError(f"no class is named {which!r}")
            which = self.names.index(which)
        if not isinstance(which, int):
            raise TypeError(f"a class is named by its number or name, got {describe(which)}")
        row: ClassRow = {"name": self.names[which]}
        for column, values in self.columns().items():
            row[column] = values[which].item()
        if self.nearest is not None:
            row["nearest"] = self.names[int(self.nearest[which])]
        return row

    def __iter__(self) -> Iterator[ClassRow]:
        return (self[number] for number in range(len(self)))

    def columns(self) -> dict[str, Tensor]:
        """The columns that have values, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "names"}
        return {name: values for name, values in found.items() if values is not None}

    def to_dict(self) -> dict[str, list[str] | list[float]]:
        """Columns as plain lists: ``pandas.DataFrame(per_class.to_dict())``."""
        return {"names": list(self.names)} | {name: values.tolist() for name, values in self.columns().items()}

    @classmethod
    def from_dict(cls, columns: Mapping[str, Sequence[str | float]]) -> "PerClass":
        """What :meth:`to_dict` gave."""
        whole = ("counts", "nearest")
        tensors = {
            name: torch.tensor(values, dtype=torch.int64 if name in whole else torch.float64)
            for name, values in columns.items()
            if name != "names"
        }
        return cls(tuple(str(name) for name in columns["names"]), **tensors)


class NearestMeans(PairSum):
    """For every class the class with the nearest mean (the first of several)."""

    def __init__(self, geometry: Geometry, vectors: Rows):
        self._squares = torch.full((vectors.count,), torch.inf, dtype=torch.float64)
        self.numbers = torch.zeros(vectors.count, dtype=torch.int64)

    def add(self, tile: Tile) -> None:
        """Look for nearer means in both directions of a tile."""
        self._take(tile.left, tile.other, *tile.distances.min(1))
        if tile.orders == 2:
            self._take(tile.right, tile.start, *tile.distances.min(0))

    def _take(self, classes: slice, first: int, squares: Tensor, places: Tensor) -> None:
        nearer = squares < self._squares[classes]
        self.numbers[classes] = torch.where(nearer, places + first, self.numbers[classes])
        self._squares[classes] = torch.where(nearer, squares, self._squares[classes])


def pairs_of_classes(geometry: Geometry) -> tuple[type[PairSum], ...]:
    """What :func:`per_class_of` reads of pairs of classes."""
    few = 2 <= geometry.num_classes <= MOST_PAIRED
    return (NearestMeans,) if few and bool((geometry.counts > 0).all()) else ()


def per_class_of(geometry: Geometry, names: Sequence[str], variances: bool) -> PerClass:
    """The rows of a geometry; ``variances`` says whether it holds those."""
    counts, centred, weight = geometry.counts, geometry.centred, geometry.weight
    norms = torch.linalg.vector_norm(centred, dim=1)
    weight_norms = cosines = nearest = distances = None
    if weight is not None:
        weight_norms = torch.linalg.vector_norm(weight, dim=1)
        lengths = (weight_norms * norms).clamp(min=torch.finfo(torch.float64).tiny)
        cosines = ((weight * centred).sum(1) / lengths).masked_fill(geometry.at_global_mean, 0.0)
    if pairs_of_classes(geometry):
        nearest = geometry.pair_sum(NearestMeans).numbers
        distances = torch.linalg.vector_norm(centred - centred[nearest], dim=1)
    right, near = geometry.samples.right, geometry.samples.nearest_right
    safe = (counts if geometry.samples.decided is None else geometry.samples.decided).clamp(min=1)
    return PerClass(
        tuple(names),
        counts.clone(),
        norms,
        geometry.class_variances.clone() if variances else None,
        weight_norms,
        cosines,
        nearest,
        distances,
        None if right is None else right / safe,
        None if near is None else near / safe,
    )


def class_groups(geometry: Geometry, rows: PerClass) -> dict[str, dict[str, float]]:
    """Large against small classes: ``majority`` has more samples than the root of (most x fewest).

    For each: ``classes``, ``samples`` and means over its classes of variance, norms and accuracy;
    ``mean_cosine`` and ``weight_cosine`` are those between different classes of the group (1 where a minority
    has collapsed to a single direction). Empty for balanced classes.
    """
    counts = geometry.counts
    if int(counts.min()) in (0, int(counts.max())):
        return {}
    large = counts > (float(counts.max()) * float(counts.min())) ** 0.5
    result = {}
    for name, members in (("majority", large), ("minority", ~large)):
        index = members.nonzero().squeeze(1)
        group = {"classes": float(index.shape[0]), "samples": float(counts[index].sum())}
        for column in ("variances", "mean_norms", "weight_norms", "accuracy", "nearest_mean_accuracy"):
            values = getattr(rows, column)
            if values is not None:
                group[column] = float(values[index].mean())
        for column, matrix in (("mean_cosine", geometry.centred), ("weight_cosine", geometry.weight)):
            if matrix is not None and index.shape[0] > 1:
                group[column] = _mean_cosine(matrix[index])
        result[name] = group
    return result


def _mean_cosine(rows: Float[Tensor, "k d"]) -> float:
    """Mean cosine between different rows, from the length of the sum of unit rows."""
    # Of the size of one first: normalize() takes lengths below 1e-12 for zero.
    unit = torch.nn.functional.normalize(rows / rows.abs().max().clamp(min=torch.finfo(rows.dtype).tiny), dim=1)
    count = rows.shape[0]
    return float((unit.sum(0).square().sum() - unit.square().sum()) / (count * (count - 1)))
