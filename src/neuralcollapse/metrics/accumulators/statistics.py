"""Mergeable float64 class statistics: counts, class means and the scatter within classes, exact in any split."""

import os
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..._support.checks import describe, integer
from ..._support.machine import available_memory, has_float64
from ..._support.tensor_checks import device as as_device
from ..._support.tensors import read_tensors, write_tensors
from ..inputs import (
    IGNORED,
    Array,
    FeatureRows,
    GlobalMean,
    Labels,
    Metrics,
    all_finite,
    as_labels,
    as_rows,
    check_labels,
    nonfinite_error,
)
from ..precision import DIGITS, as_precision, digits_of
from ..processes import Group
from ..selection import Selection
from .moments import Moments
from .paired import PairedMoments
from .scatter import Scatter

if TYPE_CHECKING:
    from ..report.report import CollapseReport
    from .second_pass import SecondPass

__all__ = ["ClassStatistics", "holds_statistics"]

LARGEST_STATE = 1 << 37
BATCH_ENTRIES = 1 << 24
"""Entries of features that are sorted by class at once."""
FORMAT = "neuralcollapse.ClassStatistics/2"
OLD_FORMAT = "neuralcollapse.ClassStatistics/1"
"""Means in two words and squares about them, without the features' dtypes: taken to have been float64."""


class ClassStatistics:
    """Sufficient statistics of labelled features for every neural-collapse measure that needs no second look.

    Args:
        num_classes: K >= 2.
        dim: feature dimension d.
        passes: 1 keeps the pooled ``d x d`` within-class scatter, so that one stream over the data is enough for nc1.
            2 keeps only means and variances (K d numbers); :meth:`second_pass` then streams the data once more and
            takes what is needed from it on the span of the centred means.
        ignore_label: the label of samples to leave out; ``None`` for none.
        device: where the sums live; by default where the first batch is, so that features on an accelerator stay there.
            On one without float64 (MPS) they are pairs of float32 with ``passes=2``, and on the CPU with ``passes=1``,
            whose products need the digits.

    >>> features = torch.tensor([[0.0, 1.0], [0.0, 3.0], [4.0, 0.0], [4.0, 0.0]])
    >>> statistics = ClassStatistics(num_classes=2, dim=2)
    >>> statistics.update(features[:3], torch.tensor([0, 0, 1]))
    >>> statistics.update(features[3:], torch.tensor([1]))
    >>> statistics.means.tolist()
    [[0.0, 2.0], [4.0, 0.0]]

    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        passes: int = 1,
        ignore_label: int | None = IGNORED,
        device: str | torch.device | None = None,
    ):
        self.num_classes = integer("num_classes", num_classes, minimum=2)
        self.dim = integer("dim", dim, minimum=1)
        self.passes = integer("passes", passes, minimum=1, maximum=2)
        self.ignore_label = None if ignore_label is None else integer("ignore_label", ignore_label)
        chosen = as_device("device", "cpu" if device is None else device)
        self._anywhere = device is None or not has_float64(chosen)
        self._device = torch.device("cpu") if self._anywhere else chosen
        size = 8 * self.dim * (2 * self.num_classes + (self.dim if self.passes == 1 else 0))
        if size > min(LARGEST_STATE, available_memory()):
            raise ValueError(
                f"num_classes = {self.num_classes}, dim = {self.dim}, passes = {self.passes} would take "
                f"{size / 1e9:.0f} GB of statistics"
            )
        self.reset()

    def reset(self) -> None:
        """Forget all samples."""
        self._held = Moments(self.num_classes, self.dim, self._device)
        self._scatter = Scatter(self.dim, self._device) if self.passes == 1 else None
        self._paired: PairedMoments | None = None

    @property
    def _moments(self) -> Moments:
        """All sums in float64: those of a device without it are taken in first."""
        if self._paired is not None:
            self._held.merge(self._paired.moments())
            self._paired = None
        return self._held

    @property
    def device(self) -> torch.device:
        """Where the sums live, in float64."""
        return self._held.counts.device

    def to(self, device: str | torch.device) -> "ClassStatistics":
        """The same statistics with their sums on ``device``; from now on they stay there."""
        chosen = as_device("device", device)
        self._anywhere = not has_float64(chosen)
        self._device = torch.device("cpu") if self._anywhere else chosen
        self._move(self._device)
        return self

    def _move(self, device: torch.device) -> None:
        self._moments.to(device)
        if self._scatter is not None:
            self._scatter.to(device)

    @classmethod
    def from_moments(
        cls,
        counts: Int[Tensor, " K"],
        means: Float[Tensor, "K d"],
        squares: Float[Tensor, " K"] | None = None,
        *,
        precision: torch.dtype = torch.float64,
    ) -> "ClassStatistics":
        """Statistics of ``passes=2`` from counts, class means and sums of squared distances to them.

        ``precision`` is the coarsest dtype that the features had.
        """
        digits = torch.zeros(DIGITS, dtype=torch.int64, device=means.device)
        digits[digits_of(precision)] = counts.sum()
        state = {
            "counts": counts,
            "mean": means,
            "sums": torch.zeros_like(means),
            "squares": torch.zeros_like(means[:, 0]) if squares is None else squares,
            "digits": digits,
        }
        return cls.on_state(state)

    @classmethod
    def on_state(cls, state: dict[str, Tensor], ignore_label: int | None = IGNORED) -> "ClassStatistics":
        """Statistics that work on these tensors themselves, without a copy or a check."""
        result = cls.__new__(cls)
        result.num_classes, result.dim = state["mean"].shape
        result.passes, result.ignore_label = 1 if "scatter" in state else 2, ignore_label
        result._anywhere, result._device = False, state["mean"].device
        result._held, result._scatter, result._paired = Moments.__new__(Moments), None, None
        result._held.set_state(state)
        if "scatter" in state:
            result._scatter = Scatter.__new__(Scatter)
            result._scatter.set_state(state)
        return result

    # what it holds ------------------------------------------------------------------------------------------

    @property
    def counts(self) -> Int[Tensor, " K"]:
        """Samples per class."""
        return self._moments.counts.clone()

    @property
    def total(self) -> int:
        """Samples in all."""
        return int(self._moments.counts.sum())

    @property
    def means(self) -> Float[Tensor, "K d"]:
        """Class means in float64; a row of zeros for a class without samples (see :attr:`counts`)."""
        return self._moments.means()

    @property
    def precision(self) -> torch.dtype:
        """The coarsest dtype that the features had: what lies below its rounding is no property of the data."""
        return self._moments.precision

    @property
    def global_mean(self) -> Float[Tensor, " d"]:
        """The mean of all samples, h_G."""
        if self.total == 0:
            raise ValueError("the statistics hold no samples")
        share = self._moments.counts.to(torch.float64) / self.total
        return share @ self._moments.centre + share @ self._moments.offsets()

    def split_means(self) -> tuple[Float[Tensor, "K d"], Float[Tensor, "K d"]]:
        """Class means as sums of two float64 words: a sample of the class, and the mean's distance from it."""
        return self._moments.centre.clone(), self._moments.offsets()

    @property
    def class_variances(self) -> Float[Tensor, " K"]:
        """Mean squared distance of a class's samples from their mean; zero for a class without samples."""
        return self._moments.class_squares() / self._moments.counts.clamp(min=1)

    @property
    def within_covariance(self) -> Float[Tensor, "d d"] | None:
        """S_W = (1/N) sum over samples of (h - m_y)(h - m_y)'; ``None`` with ``passes=2``."""
        if self._scatter is None:
            return None
        return self._scatter.result() / max(self.total, 1)

    def __repr__(self) -> str:
        sizes = f"num_classes={self.num_classes}, dim={self.dim}, passes={self.passes}"
        return f"ClassStatistics({sizes}): {self.total} samples"

    # filling it ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def update(self, features: Array | FeatureRows, labels: Labels, *, precision: torch.dtype | None = None) -> None:
        """Add a batch: ``features`` (B, d) of any floating dtype and device, integer ``labels`` (B,).

        Samples labelled ``ignore_label`` are skipped. A bad batch raises and changes nothing. ``precision``
        is the dtype whose rounding the features carry where that is coarser than their own: that of autocast,
        or of features that were stored in half precision.
        """
        source = as_rows("features", features)
        rounded = as_precision(precision, source.dtype)
        if source.dim != self.dim:
            raise ValueError(f"features must have {self.dim} columns, got {source.dim}")
        targets = as_labels(labels, source.rows, source.device)
        kept = check_labels(targets, self.num_classes, self.ignore_label)
        if kept is not None:
            source, targets = source.where(kept), targets[kept]
        if self._anywhere and source.rows and has_float64(source.device):
            self._anywhere = False
            self._move(source.device)
        step = max(1, BATCH_ENTRIES // self.dim)
        chunks = [(start, min(start + step, source.rows)) for start in range(0, source.rows, step)]
        for start, stop in chunks:
            if not all_finite(source.slice(start, stop)):
                raise nonfinite_error(source)
        for start, stop in chunks:
            self.add(source.slice(start, stop), targets[start:stop], rounded)

    def add(self, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], precision: torch.dtype) -> None:
        """Add rows without checks: finite, with labels in 0..K-1."""
        if self._anywhere and self.passes == 2 and not has_float64(features.device):
            if self._paired is None or self._paired.device != features.device:
                self._paired = self._moments_on(features.device)
            self._paired.add(features, labels, precision)
        else:
            self._held.add(features.to(self.device), labels.to(self.device), precision, self._scatter)

    def _moments_on(self, device: torch.device) -> PairedMoments:
        """Empty sums on a device without float64, after those of another have been taken in."""
        _ = self._moments
        return PairedMoments(self.num_classes, self.dim, device)

    def merge(self, other: "ClassStatistics") -> "ClassStatistics":
        """Add the samples that ``other`` has seen (of the same classes, dimension and number of passes)."""
        self._check_alike(other)
        self._moments.merge(other._moments, self._scatter)
        if self._scatter is not None and other._scatter is not None:
            self._scatter.merge(other._scatter)
        return self

    def _check_alike(self, other: object) -> None:
        if not isinstance(other, ClassStatistics):
            raise TypeError(f"other must be ClassStatistics, got {describe(other)}")
        mine, theirs = (self.num_classes, self.dim, self.passes), (other.num_classes, other.dim, other.passes)
        if mine != theirs:
            raise ValueError(f"statistics of (num_classes, dim, passes) = {mine} cannot take in those of {theirs}")
        if other is self:
            raise ValueError("statistics cannot be merged into themselves: every sample would count twice")

    def all_reduce(self, group: Group = None) -> None:
        """Merge the statistics of all ranks of torch.distributed, on each of them, by two sums.

        The first sum gives counts and means, the second the scatter about those means; no rank's state is
        gathered. Ranks may have seen different numbers of samples and miss classes.
        """
        self._moments.all_reduce(group, self._scatter)

    # using it -----------------------------------------------------------------------------------------------

    def report(
        self,
        weight: Array | None = None,
        bias: Array | None = None,
        *,
        metrics: Metrics = None,
        global_mean: GlobalMean = "samples",
        present_only: bool = False,
        min_samples: int = 1,
    ) -> "CollapseReport":
        """Every measure that these statistics give; the others are listed with the reason.

        Args:
            weight: the classifier, (K, d).
            bias: its bias, (K,); ``None`` counts as zero.
            metrics: ``"core"``, ``"all"``, or names of measures.
            global_mean: ``"samples"`` for the mean of all samples, ``"classes"`` for the mean of the class
                means.
            present_only: measure the classes that have samples, as if there were no others.
            min_samples: measure the classes with at least so many samples. What needs the samples one by one is
                then left to :meth:`second_pass`: a pooled scatter cannot forget a class.

        """
        from ..report.report import build_report

        return build_report(
            self,
            weight,
            bias,
            metrics=metrics,
            global_mean=global_mean,
            selection=Selection(present_only, min_samples),
        )

    def select(self, classes: Int[Tensor, " kept"]) -> "ClassStatistics":
        """The statistics of some of the classes, numbered anew; without scatter if that loses samples."""
        classes = classes.to(self.device)
        lost = int(self._moments.counts[classes].sum()) < self.total
        result = ClassStatistics(
            classes.shape[0], self.dim, passes=2 if lost else self.passes, ignore_label=None, device=self.device
        )
        state = {
            name: value if name in ("scatter", "digits") else value[classes] for name, value in self.state().items()
        }
        if lost:
            state.pop("scatter", None)
        result.set_state(state)
        return result

    def second_pass(
        self,
        weight: Array | None = None,
        bias: Array | None = None,
        *,
        metrics: Metrics = None,
        global_mean: GlobalMean = "samples",
        memory_limit: int = 1 << 30,
        present_only: bool = False,
        min_samples: int = 1,
        decision_rows: int | None = None,
    ) -> "SecondPass":
        """A stream over the same samples for what needs the means first; its ``report()`` has all measures.

        With ``passes=2`` this gives nc1; with either, the cosine margins, the agreement with the nearest
        class mean and the numerical rank. ``memory_limit`` bounds the bytes that the class Gram matrices of
        the numerical rank may take; ``present_only`` and ``min_samples`` are those of :meth:`report`. Samples of
        classes that are left out may be streamed, too. ``decision_rows`` is about how many samples, spread evenly,
        are decided for nc4_mismatch and the cosine margins (with many classes these cost the most).
        """
        from .second_pass import begin_second_pass

        return begin_second_pass(
            self,
            weight,
            bias,
            metrics=metrics,
            global_mean=global_mean,
            memory_limit=memory_limit,
            selection=Selection(present_only, min_samples),
            decision_rows=decision_rows,
        )

    # on disk ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """The state as named tensors (copies): see :class:`~neuralcollapse.metrics.accumulators.Moments`."""
        state = self._moments.state() | ({} if self._scatter is None else self._scatter.state())
        return {name: tensor.clone() for name, tensor in state.items()}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Take over a state made by :meth:`state`; a state that cannot be one raises and changes nothing."""
        mine = self.state()
        if set(state) != set(mine):
            raise ValueError(f"state must hold {sorted(mine)}, got {sorted(state)}")
        for name, tensor in state.items():
            if tensor.shape != mine[name].shape or tensor.dtype != mine[name].dtype:
                raise ValueError(f"state {name!r} must be {describe(mine[name])}, got {describe(tensor)}")
            if not all_finite(tensor):
                raise ValueError(f"state {name!r} must be finite")
        if any(bool((state[name] < 0).any()) for name in ("counts", "squares", "digits")):
            raise ValueError("state 'counts', 'squares' and 'digits' must not be negative")
        copies = {name: tensor.to(self.device).clone() for name, tensor in state.items()}
        self._moments.set_state(copies)
        if self._scatter is not None:
            self._scatter.set_state(copies)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to a safetensors file, atomically and with a checksum."""
        ignored = "none" if self.ignore_label is None else str(self.ignore_label)
        metadata = {"format": FORMAT, "passes": str(self.passes), "ignore_label": ignored}
        write_tensors(path, self.state(), metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | torch.device | None = None) -> "ClassStatistics":
        """Read statistics written by :meth:`save`."""
        state, metadata = read_tensors(path)
        if metadata.get("format") == OLD_FORMAT and "mean_tail" in state:
            state = _of_old_format(state)
        elif metadata.get("format") not in (FORMAT, OLD_FORMAT):
            state = {}
        if "mean" not in state or state["mean"].ndim != 2:
            raise ValueError(f"{os.fspath(path)} does not hold class statistics (expected format {FORMAT!r})")
        ignored = metadata.get("ignore_label", "none")
        try:
            statistics = cls(
                state["mean"].shape[0],
                state["mean"].shape[1],
                passes=int(metadata.get("passes", "0")),
                ignore_label=None if ignored == "none" else int(ignored),
                device=device,
            )
            statistics.set_state(state)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error
        return statistics


def _of_old_format(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The sums about centres, from means in two words and squares about them; nothing where that cannot be."""
    if not {"counts", "mean", "mean_tail", "squares"} <= set(state):
        return {}
    counts, mean, tail, squares = (state[name] for name in ("counts", "mean", "mean_tail", "squares"))
    if mean.ndim != 2 or tail.shape != mean.shape or counts.shape != mean.shape[:1]:
        return {}
    digits = torch.zeros(DIGITS, dtype=torch.int64)
    digits[digits_of(torch.float64)] = counts.sum()
    sums = counts[:, None] * tail
    rest = {"scatter": state["scatter"]} if "scatter" in state else {}
    squares = squares + (sums * tail).sum(1)
    return {"counts": counts, "mean": mean, "sums": sums, "squares": squares, "digits": digits, **rest}


def holds_statistics(path: str | os.PathLike[str]) -> bool:
    """Whether a readable safetensors file was written by :meth:`ClassStatistics.save`."""
    from safetensors import safe_open

    with safe_open(os.fspath(path), framework="pt") as file:
        return (file.metadata() or {}).get("format", "").startswith(FORMAT.partition("/")[0])
