"""Labels from whatever a loader hands out: integers, one-hot and soft rows, truth values, names of classes."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from ..._support.checks import describe, integer
from ..inputs import IGNORED
from .relations import widened

__all__ = ["Ignored", "Targets", "ignored_labels"]

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Types of labels that torch does next to nothing with; collated from numpy arrays of theirs."""

Ignored = int | Sequence[int] | None
"""Labels of samples to leave out: one, several or none."""


def ignored_labels(ignore_label: object) -> tuple[int, ...]:
    """The labels to leave out: ``None`` for none, one integer or several."""
    if ignore_label is None:
        return ()
    if isinstance(ignore_label, list | tuple | set | frozenset):
        if not ignore_label:
            raise ValueError("ignore_label must be None, an integer or several, got an empty collection")
        return tuple(sorted({integer("ignore_label", label) for label in ignore_label}))
    return (integer("ignore_label", ignore_label),)


class Targets:
    """Reads labels into integers of the features' leading shape; ``notes`` says what was done to them."""

    def __init__(self, ignored: tuple[int, ...] = (IGNORED,), class_names: Sequence[str] | None = None):
        if class_names is not None and (
            isinstance(class_names, str) or not all(isinstance(name, str) for name in class_names)
        ):
            raise TypeError(f"class_names must be a list of strings, got {describe(class_names)}")
        if class_names is not None and len(set(class_names)) != len(class_names):
            raise ValueError("class_names must differ from one another")
        self.ignored = ignored
        self.names = None if class_names is None else list(class_names)
        self.notes: dict[str, None] = {}

    def tensor(self, labels: object) -> Tensor:
        """Labels as a tensor: names become numbers, truth values 0 and 1."""
        if isinstance(labels, str) or (isinstance(labels, Mapping) and not isinstance(labels, Tensor)):
            raise TypeError(f"labels must be integers, one a sample, got {describe(labels)}; say which with labels=")
        if isinstance(labels, list | tuple) and labels and isinstance(labels[0], Tensor):
            labels = torch.stack([torch.as_tensor(label) for label in labels])
        if not isinstance(labels, Tensor):
            array = np.asarray(labels)
            if array.dtype.kind in "UO" and array.size and all(isinstance(name, str) for name in array.flat):
                return self._numbered(array)
            if array.dtype.kind not in "iufb":
                raise TypeError(
                    f"labels must be integers, got {describe(labels)}; say which part of a batch they are with labels="
                )
            labels = torch.as_tensor(array.astype(np.int64) if array.dtype.kind in "iu" else array)
        if labels.dtype == torch.bool:
            self.notes["labels are truth values: False is class 0, True class 1"] = None
            return labels.long()
        if labels.dtype in UNSIGNED:
            return labels.long()
        return labels.detach()

    def _numbered(self, names: np.ndarray) -> Tensor:
        if self.names is None:
            raise TypeError(
                f"labels are strings such as {str(next(iter(names.flat)))!r}: give class_names=, "
                "the names in the order of the classifier's outputs"
            )
        numbers = {name: number for number, name in enumerate(self.names)}
        unknown = next((name for name in names.flat if name not in numbers), None)
        if unknown is not None:
            raise ValueError(f"label {str(unknown)!r} is not among class_names: {', '.join(self.names)}")
        return torch.tensor([numbers[name] for name in names.flat]).reshape(names.shape)

    def seen(self, labels: object) -> int | None:
        """The number of classes that the labels show, as a hint: the highest and one, or the width of soft labels."""
        tensor = self.tensor(labels)
        if tensor.is_floating_point():
            return tensor.shape[1] if tensor.ndim == 2 and tensor.shape[1] > 1 else None
        kept = tensor[~torch.isin(tensor, torch.tensor(self.ignored, device=tensor.device))] if self.ignored else tensor
        return int(kept.max()) + 1 if kept.numel() else None

    def integers(self, labels: Tensor, leading: Sequence[int], width: int | None) -> Tensor:
        """Integer labels, for features with that leading shape and a classifier with ``width`` outputs."""
        fits = list(labels.shape) in (list(leading), [*leading, 1])
        if width is not None and width > 1 and not fits:
            labels = self._hard(labels, leading, width)
        if labels.is_floating_point():
            whole = bool((labels == labels.round()).all())
            if width != 1 or not whole:
                hint = " (a head with one output takes 0 and 1)" if width == 1 else ""
                raise TypeError(f"labels must be integers, got {describe(labels)}{hint}; labels= may convert them")
            labels = labels.long()
        if labels.is_complex() or labels.is_quantized:
            raise TypeError(f"labels must be integers, got {describe(labels)}")
        return labels

    def _hard(self, labels: Tensor, leading: Sequence[int], width: int) -> Tensor:
        """The likeliest class of one-hot or soft labels; other labels as they are."""
        wanted = [*leading]
        if list(labels.shape) == [*wanted, width]:
            rows = labels
        elif labels.ndim >= 3 and list(labels.movedim(1, -1).shape) == [*wanted, width]:
            rows = labels.movedim(1, -1)
        elif labels.ndim == 2 and labels.shape[1] == width and labels.shape[0] == leading[0]:
            rows = labels  # of samples, for features with positions
        else:
            return labels
        sums = widened(rows).sum(-1)
        if bool((rows < 0).any()) or bool(((sums - 1).abs() > 0.01).any()):
            raise ValueError(
                f"labels have shape {tuple(labels.shape)} and rows that sum to "
                f"{float(sums.min()):g}..{float(sums.max()):g}: neural collapse needs one class a sample; "
                "labels= may choose one"
            )
        exact = bool(((rows == 0) | (rows == 1)).all())
        self.notes["labels are one-hot rows" if exact else "labels are soft: the likeliest class is taken"] = None
        return rows.argmax(-1)

    def checked(self, labels: Tensor, num_classes: int | None) -> Tensor:
        """Integer labels (samples,) with one label for all that are to be left out; others must be classes."""
        if self.names is not None:
            if num_classes is not None and len(self.names) > num_classes:
                raise ValueError(f"class_names has {len(self.names)} names for {num_classes} classes")
            num_classes = len(self.names)  # outputs beyond them, as a padded head has, are nobody's label
        labels = labels.long()
        kept = torch.ones_like(labels, dtype=torch.bool)
        for label in self.ignored:
            kept &= labels != label
        wrong = kept & (labels < 0)
        if num_classes is not None:
            wrong |= kept & (labels >= num_classes)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            limit = "0.." if num_classes is None else f"0..{num_classes - 1}"
            skipped = f" ({', '.join(map(str, self.ignored))} ignored)" if self.ignored else ""
            limit += "" if self.names is None else ", one of class_names"
            raise ValueError(
                f"labels must lie in {limit}{skipped}, but label {int(labels[row])} stands at row {row}; "
                "ignore_label= leaves out samples with a label"
            )
        return labels if bool(kept.all()) else labels.masked_fill(~kept, self.mark)

    @property
    def mark(self) -> int:
        """The one label that stands for all that are left out."""
        return self.ignored[0] if len(self.ignored) == 1 else IGNORED
