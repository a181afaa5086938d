"""Features and labels from whatever the caller has, checked: tensors, arrays, memory maps, lists.

A :class:`FeatureRows` hands out rows, so that the same code measures a tensor in memory and a file that is larger.
"""

import math
import warnings
from collections.abc import Sequence, Set, Sized
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._support.checks import describe, integer, unusual_tensor

__all__ = [
    "IGNORED",
    "Array",
    "FeatureRows",
    "GlobalMean",
    "Labels",
    "Metrics",
    "NonFiniteError",
    "all_finite",
    "as_classifier",
    "as_labels",
    "as_rows",
    "check_labels",
    "class_count",
    "classes_shown",
    "length_of",
    "nonfinite_error",
    "select_rows",
]

Array = Tensor | np.ndarray
Labels = Tensor | np.ndarray | Sequence[int]
GlobalMean = Literal["samples", "classes"]
Metrics = str | Sequence[str] | Set[str] | None
"""``"core"`` (or ``None``), ``"all"``, a name or names."""

IGNORED = -100
"""The label that marks a sample to leave out, as in ``torch.nn.CrossEntropyLoss``."""


class NonFiniteError(ValueError):
    """Features or a classifier hold NaN or infinity, or are too large to square: a model that has diverged.

    ``sizes`` are K and d, where a model was measured: K as its classifier has it, else as given, else by the labels
    that came so far.
    """

    sizes: tuple[int, int] | None = None


class FeatureRows:
    """Rows of a floating ``(N, d)`` tensor or array; nothing is copied before it is asked for."""

    def __init__(self, values: Tensor | np.ndarray, index: Tensor | None = None):
        self._values = values
        self._index = index
        self.rows = values.shape[0] if index is None else index.shape[0]
        self.dim = values.shape[1]
        self.device = torch.device("cpu")
        if isinstance(values, Tensor):
            self.dtype, self.device = values.dtype, values.device
        else:
            self.dtype = torch.from_numpy(np.empty(0, dtype=values.dtype.newbyteorder("="))).dtype

    def on_cpu(self) -> "FeatureRows":
        """The same rows in the memory of the CPU."""
        if self.device.type == "cpu" or not isinstance(self._values, Tensor):
            return self
        return FeatureRows(self._values.to("cpu"), self._index)

    def slice(self, start: int, stop: int) -> Float[Tensor, "rows d"]:
        """Rows ``start`` to ``stop`` as a tensor, where they are."""
        if self._index is not None:
            return self._pick(self._index[start:stop])
        part = self._values[start:stop]
        if isinstance(part, Tensor):
            return part
        return torch.from_numpy(np.array(part, dtype=part.dtype.newbyteorder("=")))

    def take(self, index: Int[Tensor, " rows"]) -> Float[Tensor, "rows d"]:
        """The rows with these numbers as a tensor, where they are."""
        return self._pick(index if self._index is None else self._index[index])

    def number(self, row: int) -> int:
        """Where a row stands among the rows as they were given."""
        return row if self._index is None else int(self._index[row])

    def where(self, index: Int[Tensor, " rows"]) -> "FeatureRows":
        """The source that holds only these rows."""
        return FeatureRows(self._values, index if self._index is None else self._index[index])

    def _pick(self, index: Tensor) -> Tensor:
        if isinstance(self._values, Tensor):
            return self._values.index_select(0, index.to(self._values.device))
        part = self._values[index.cpu().numpy()]
        return torch.from_numpy(np.array(part, dtype=part.dtype.newbyteorder("=")))


def as_rows(name: str, value: object) -> FeatureRows:
    """``value`` as a source of rows: a floating (N, d) tensor or numpy array, d >= 1."""
    if isinstance(value, FeatureRows):
        return value
    if isinstance(value, Tensor):
        if unusual_tensor(value) is not None:
            raise TypeError(f"{name} must be a dense tensor of real numbers, got {describe(value)}")
        values: Tensor | np.ndarray = value.detach()
        floating = value.is_floating_point()
    elif isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise TypeError(f"{name} must have all of its entries, got a masked array; leave out the rows with masked ones")
    elif isinstance(value, np.ndarray):
        values, floating = value, value.dtype.kind == "f" and value.dtype.itemsize <= 8
        if floating and value.flags.writeable and value.dtype.isnative and min(value.strides, default=0) >= 0:
            values = _without_warning(value)
    else:
        raise TypeError(f"{name} must be a tensor or a numpy array, got {describe(value)}")
    if not floating:
        raise TypeError(f"{name} must be floating point, got {_describe_array(value)}")
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"{name} must have shape (N, d) with d >= 1, got {_describe_array(value)}")
    return FeatureRows(values)


def _without_warning(value: np.ndarray) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(value)


def _describe_array(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"a {value.dtype} array of shape {value.shape}"
    return describe(value)


def as_labels(value: object, rows: int | None = None, device: torch.device | str = "cpu") -> Int[Tensor, " N"]:
    """``value`` as int64 labels on ``device``: a one-dimensional integer tensor, array or sequence of ints."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        value = np.asarray(value)
        if value.size == 0:
            value = value.astype(np.int64)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise TypeError("labels must have all of their entries, got a masked array; ignore_label= leaves out samples")
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "iu":
            raise TypeError(f"labels must be integers, got {_describe_array(value)}")
        value = torch.from_numpy(value.astype(np.int64))
    if not isinstance(value, Tensor):
        raise TypeError(f"labels must be a tensor, an array or a sequence of integers, got {describe(value)}")
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool or value.is_quantized:
        raise TypeError(f"labels must be integers, got {describe(value)}")
    if value.ndim != 1:
        raise ValueError(f"labels must have shape (N,), got {describe(value)}")
    if rows is not None and value.shape[0] != rows:
        raise ValueError(f"labels must have one entry per row of features: {rows} rows, {value.shape[0]} labels")
    return value.detach().to(device, torch.int64)


def check_labels(labels: Int[Tensor, " N"], num_classes: int, ignore_label: int | None) -> Int[Tensor, " kept"] | None:
    """Check that labels lie in 0..K-1 or are ignored; the numbers of the kept rows, or ``None`` for all."""
    if labels.shape[0] == 0:
        return None
    lowest, highest = (int(bound) for bound in torch.aminmax(labels))
    if lowest >= 0 and highest < num_classes and not (ignore_label is not None and lowest <= ignore_label <= highest):
        return None
    kept = torch.ones_like(labels, dtype=torch.bool) if ignore_label is None else labels != ignore_label
    wrong = kept & ((labels < 0) | (labels >= num_classes))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        skipped = "" if ignore_label is None else f" ({ignore_label} is ignored)"
        raise ValueError(
            f"labels must lie in 0..{num_classes - 1}{skipped}, but label {int(labels[row])} stands at row {row}"
        )
    return None if bool(kept.all()) else kept.nonzero().squeeze(1)


def class_count(num_classes: object, labels: Int[Tensor, " N"], weight: Tensor | None, ignore_label: int | None) -> int:
    """The number of classes: as given, else the rows of the classifier, else the highest label and one."""
    if num_classes is not None:
        return integer("num_classes", num_classes, minimum=2)
    if weight is not None:
        return weight.shape[0]
    kept = labels if ignore_label is None else labels[labels != ignore_label]
    return classes_shown(int(kept.max()) if kept.shape[0] else -1, kept.shape[0])


def classes_shown(highest: int, samples: int) -> int:
    """The highest label and one, of so many samples; an error where so few cannot be meant to show so many classes."""
    if samples == 0:
        raise ValueError("features hold no samples to measure")
    if highest + 1 > 1000 + 10 * samples:
        raise ValueError(
            f"labels go up to {highest} in {samples} samples: give num_classes, "
            "or present_only=True to measure the classes that occur"
        )
    if highest + 1 < 2:
        raise ValueError("labels hold a single class; neural collapse needs at least two (or give num_classes)")
    return highest + 1


def as_classifier(
    weight: object, bias: object, num_classes: int | None, dim: int
) -> tuple[Float[Tensor, "K d"] | None, Float[Tensor, " K"] | None]:
    """Weight ``(K, d)`` and bias ``(K,)`` in float64 on the CPU, or ``None`` where there is none."""
    if weight is None:
        if bias is not None:
            raise ValueError("bias is given without weight")
        return None, None
    matrix = _finite_array("weight", weight, 2)
    if matrix.shape[0] < 2:
        raise ValueError(f"weight must have a row for each of at least two classes, got {describe(matrix)}")
    if matrix.shape[1] != dim or (num_classes is not None and matrix.shape[0] != num_classes):
        wanted = f"({'K' if num_classes is None else num_classes}, {dim})"
        raise ValueError(f"weight must have shape {wanted} to go with the features, got {tuple(matrix.shape)}")
    if bias is None:
        return matrix, None
    vector = _finite_array("bias", bias, 1)
    if vector.shape[0] != matrix.shape[0]:
        raise ValueError(f"bias must have shape ({matrix.shape[0]},), got {tuple(vector.shape)}")
    return matrix, vector


def _finite_array(name: str, value: object, dimensions: int) -> Tensor:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.dtype.itemsize <= 8:
        value = torch.from_numpy(value.astype(np.float64))
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a floating tensor or numpy array, got {_describe_array(value)}")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {describe(value)}")
    if value.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimension(s), got {describe(value)}")
    result = value.detach().to("cpu").to(torch.float64)
    if not all_finite(result):
        count = int((~torch.isfinite(result)).sum())
        raise NonFiniteError(f"{name} must be finite, but {count} of its {result.numel()} entries are NaN or infinite")
    return result


def length_of(data: object) -> int | None:
    """How many entries a loader or data set has; ``None`` where it has no length, or one that cannot be asked for.

    >>> length_of([1, 2]), length_of(iter([1, 2]))
    (2, None)
    """
    try:
        return len(data) if isinstance(data, Sized) else None
    except TypeError:
        return None


def select_rows(
    source: FeatureRows, labels: Int[Tensor, " N"], num_classes: int, ignore_label: int | None
) -> tuple[FeatureRows, Int[Tensor, " kept"]]:
    """The source and labels without ignored samples; an error if none is left."""
    kept = check_labels(labels, num_classes, ignore_label)
    if kept is not None:
        source, labels = source.where(kept), labels[kept]
    if labels.shape[0] == 0:
        raise ValueError("features hold no samples to measure")
    return source, labels


def all_finite(part: Tensor) -> bool:
    """Whether no entry is NaN or infinite; a finite sum shows it at the price of one read."""
    return math.isfinite(float(part.sum())) or bool(torch.isfinite(part).all())


def nonfinite_error(source: FeatureRows, name: str = "features") -> NonFiniteError:
    """The error for features with NaN or infinite entries: how many rows, and the first."""
    bad, first = 0, -1
    step = max(1, (1 << 22) // source.dim)
    largest = 0.0
    for start in range(0, source.rows, step):
        part = source.slice(start, min(start + step, source.rows))
        rows = (~torch.isfinite(part)).any(1)
        count = int(rows.sum())
        if count and first < 0:
            first = start + int(rows.nonzero()[0])
        bad += count
        if count == 0:
            largest = max(largest, float(part.abs().max()))
    if bad:
        return NonFiniteError(
            f"{name} must be finite, but {bad} of {source.rows} rows hold NaN or infinity (the first is row "
            f"{source.number(first)})"
        )
    size = math.floor(math.log10(max(largest, 1e-300)))
    return NonFiniteError(f"{name} are too large to square in float64 (magnitude 1e{size}); rescale them")
