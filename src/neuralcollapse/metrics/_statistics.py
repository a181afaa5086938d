"""Mergeable float64 class statistics: counts, compensated class means and centred within-class scatter.

K classes, d dimensions, n_k samples of class k with mean m_k. The state is exact under any split of the data,
because every step adds centred quantities only (Chan, Golub and LeVeque, 1983); the means carry a second
float64 word, so that the scatter keeps its digits when the spread within a class is ten orders below the
distance from the origin.
"""

import os
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._support.checks import describe, integer
from .._support.files import atomic_write
from ._inputs import IGNORED, all_finite, as_labels, as_source, check_labels, nonfinite_error
from ._precision import DIGITS, as_precision, coarsest, digits_of
from ._selection import Selection

if TYPE_CHECKING:
    from ._report import CollapseReport
    from ._second_pass import SecondPass

__all__ = ["ClassStatistics", "add_gram", "chunk_rows"]

LARGEST_STATE = 1 << 37
FORMAT = "neuralcollapse.ClassStatistics/2"
OLD_FORMAT = "neuralcollapse.ClassStatistics/1"
"""Without the features' dtypes; they are then taken to have been float64."""


def chunk_rows(dim: int) -> int:
    """Rows per chunk: about a quarter of a million entries, which stay in the cache of one core."""
    return min(4096, max(64, (1 << 18) // dim))


def add_gram(total: Float[Tensor, "d d"], rows: Float[Tensor, "n d"]) -> None:
    """Add ``rows' rows`` to ``total``'s blocks on and above the diagonal.

    Only those blocks are multiplied, which is close to half the work; :func:`symmetric` fills in the rest.
    """
    dim = rows.shape[1]
    width = dim if dim <= 128 else max(128, -(-dim // 8))
    for start in range(0, dim, width):
        stop = min(start + width, dim)
        total[start:stop, start:].addmm_(rows[:, start:stop].T, rows[:, start:])


def symmetric(total: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The full symmetric matrix whose upper triangle :func:`add_gram` accumulated."""
    upper = total.triu()
    return upper + upper.triu(1).T


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """``a + b`` as the rounded sum and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


class ClassStatistics:
    """Sufficient statistics of labelled features for every neural-collapse measure that needs no second look.

    ``passes=1`` keeps the pooled ``d x d`` within-class scatter, so that one stream over the data is enough
    for nc1. ``passes=2`` keeps only means and variances (K d numbers); :meth:`second_pass` then streams the
    data once more and takes what is needed from it on the span of the centred means.

    >>> features = torch.tensor([[0.0, 1.0], [0.0, 3.0], [4.0, 0.0], [4.0, 0.0]])
    >>> statistics = ClassStatistics(num_classes=2, dim=2)
    >>> statistics.update(features[:3], torch.tensor([0, 0, 1]))
    >>> statistics.update(features[3:], torch.tensor([1]))
    >>> statistics.means.tolist()
    [[0.0, 2.0], [4.0, 0.0]]
    """

    def __init__(
        self,
        num_classes: Any,
        dim: Any,
        *,
        passes: Any = 1,
        ignore_label: Any = IGNORED,
        device: str | torch.device = "cpu",
    ):
        self.num_classes = integer("num_classes", num_classes, minimum=2)
        self.dim = integer("dim", dim, minimum=1)
        self.passes = integer("passes", passes, minimum=1, maximum=2)
        self.ignore_label = None if ignore_label is None else integer("ignore_label", ignore_label)
        self.device = torch.device(device)
        size = 8 * self.dim * (2 * self.num_classes + (self.dim if self.passes == 1 else 0))
        if size > LARGEST_STATE:
            raise ValueError(
                f"num_classes = {self.num_classes}, dim = {self.dim}, passes = {self.passes} would take "
                f"{size / 1e9:.0f} GB of statistics"
            )
        self.reset()

    def reset(self) -> None:
        """Forget all samples."""
        options = {"dtype": torch.float64, "device": self.device}
        self._counts = torch.zeros(self.num_classes, dtype=torch.int64, device=self.device)
        self._mean = torch.zeros(self.num_classes, self.dim, **options)
        self._mean_tail = torch.zeros(self.num_classes, self.dim, **options)
        self._squares = torch.zeros(self.num_classes, **options)
        self._scatter = torch.zeros(self.dim, self.dim, **options) if self.passes == 1 else None
        self._digits = torch.zeros(DIGITS, dtype=torch.int64, device=self.device)

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
        result = cls(means.shape[0], means.shape[1], passes=2, device=means.device)
        state = result.state() | {"counts": counts, "mean": means}
        if squares is not None:
            state["squares"] = squares
        state["digits"][digits_of(precision)] = counts.sum()
        result.set_state(state)
        return result

    # what it holds ------------------------------------------------------------------------------------------

    @property
    def counts(self) -> Int[Tensor, " K"]:
        """Samples per class."""
        return self._counts.clone()

    @property
    def total(self) -> int:
        """Samples in all."""
        return int(self._counts.sum())

    @property
    def means(self) -> Float[Tensor, "K d"]:
        """Class means in float64; a row of zeros for a class without samples (see :attr:`counts`)."""
        return self._mean.clone()

    @property
    def precision(self) -> torch.dtype:
        """The coarsest dtype that the features had: what lies below its rounding is no property of the data."""
        return coarsest(self._digits)

    @property
    def global_mean(self) -> Float[Tensor, " d"]:
        """The mean of all samples, h_G."""
        if self.total == 0:
            raise ValueError("the statistics hold no samples")
        share = self._counts.to(torch.float64) / self.total
        return share @ self._mean + share @ self._mean_tail

    @property
    def class_variances(self) -> Float[Tensor, " K"]:
        """Mean squared distance of a class's samples from their mean; zero for a class without samples."""
        return self._squares / self._counts.clamp(min=1)

    @property
    def within_covariance(self) -> Float[Tensor, "d d"] | None:
        """S_W = (1/N) sum over samples of (h - m_y)(h - m_y)'; ``None`` with ``passes=2``."""
        if self._scatter is None:
            return None
        return symmetric(self._scatter) / max(self.total, 1)

    def __repr__(self) -> str:
        sizes = f"num_classes={self.num_classes}, dim={self.dim}, passes={self.passes}"
        return f"ClassStatistics({sizes}): {self.total} samples"

    # filling it ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def update(self, features: Any, labels: Any, *, precision: torch.dtype | None = None) -> None:
        """Add a batch: ``features`` (B, d) of any floating dtype and device, integer ``labels`` (B,).

        Samples labelled ``ignore_label`` are skipped. A bad batch raises and changes nothing. ``precision``
        is the dtype whose rounding the features carry where that is coarser than their own: that of autocast,
        or of features that were stored in half precision.
        """
        source = as_source("features", features)
        rounded = as_precision(precision, source.dtype)
        if source.dim != self.dim:
            raise ValueError(f"features must have {self.dim} columns, got {source.dim}")
        targets = as_labels(labels, source.rows)
        kept = check_labels(targets, self.num_classes, self.ignore_label)
        if kept is not None:
            source, targets = source.where(kept), targets[kept]
        step = chunk_rows(self.dim)
        chunks = [(start, min(start + step, source.rows)) for start in range(0, source.rows, step)]
        for start, stop in chunks:
            part = source.slice(start, stop)
            if not all_finite(part):
                raise nonfinite_error(source)
        for start, stop in chunks:
            self.add(source.slice(start, stop), targets[start:stop], rounded)

    def add(self, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], precision: torch.dtype) -> None:
        """Add a chunk without checks: finite rows, labels in 0..K-1."""
        self._add(features.to(self.device, torch.float64), labels.to(self.device))
        self._digits[digits_of(precision)] += labels.shape[0]

    def _add(self, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> None:
        """Add a chunk of finite float64 rows.

        With D = h - m_old and S_k the sum of D over the chunk's samples of class k, the scatter about the new
        mean grows by sum DD' - S_k S_k'/n_k. Shifting each row to D - c_k S_k with c_k = (1 - sqrt(1 -
        b_k/n_k))/b_k (b_k samples in the chunk) makes that one Gram matrix: nothing is subtracted, so no
        digits are lost.
        """
        classes, inverse, added = torch.unique(labels, return_inverse=True, return_counts=True)
        before = self._counts[classes]
        new = before == 0
        if bool(new.any()):
            # A new class starts at its first sample: sums of differences are then of the size of the spread.
            rows = torch.arange(labels.shape[0] - 1, -1, -1, device=self.device)
            first = torch.empty_like(classes).scatter_(0, inverse.flip(0), rows)
            self._mean[classes[new]] = features[first[new]]
        difference = (features - self._mean[labels]) - self._mean_tail[labels]
        sums = torch.zeros(classes.shape[0], self.dim, dtype=torch.float64, device=self.device)
        sums.index_add_(0, inverse, difference)
        after = before + added
        share = added.to(torch.float64) / after
        shift = (share / (1 + torch.sqrt(1 - share)) / added)[:, None] * sums
        difference -= shift[inverse]
        self._counts[classes] = after
        self._move_means(classes, sums / after[:, None])
        self._squares.index_add_(0, labels, difference.square().sum(1))
        if self._scatter is not None:
            add_gram(self._scatter, difference)

    def _move_means(self, classes: Int[Tensor, " u"], step: Float[Tensor, "u d"]) -> None:
        head, error = _two_sum(self._mean[classes], step)
        head, tail = _two_sum(head, error + self._mean_tail[classes])
        self._mean[classes] = head
        self._mean_tail[classes] = tail

    def merge(self, other: Any) -> None:
        """Add the samples that ``other`` has seen (of the same classes, dimension and number of passes)."""
        self._check_alike(other)
        there = other._counts.to(self.device)
        classes = (there > 0).nonzero().squeeze(1)
        before, added = self._counts[classes], there[classes]
        empty = classes[before == 0]
        self._mean[empty] = other._mean.to(self.device)[empty]
        self._mean_tail[empty] = other._mean_tail.to(self.device)[empty]
        gap = (other._mean.to(self.device)[classes] - self._mean[classes]) + (
            other._mean_tail.to(self.device)[classes] - self._mean_tail[classes]
        )
        after = before + added
        share = added.to(torch.float64) / after
        root = torch.sqrt(before * share)[:, None] * gap
        self._counts[classes] = after
        self._move_means(classes, share[:, None] * gap)
        self._digits += other._digits.to(self.device)
        self._squares += other._squares.to(self.device)
        self._squares[classes] += root.square().sum(1)
        if self._scatter is not None and other._scatter is not None:
            self._scatter += other._scatter.to(self.device)
            for start in range(0, root.shape[0], 4096):
                add_gram(self._scatter, root[start : start + 4096])

    def _check_alike(self, other: object) -> None:
        if not isinstance(other, ClassStatistics):
            raise TypeError(f"other must be ClassStatistics, got {describe(other)}")
        mine, theirs = (self.num_classes, self.dim, self.passes), (other.num_classes, other.dim, other.passes)
        if mine != theirs:
            raise ValueError(f"statistics of (num_classes, dim, passes) = {mine} cannot take in those of {theirs}")
        if other is self:
            raise ValueError("statistics cannot be merged into themselves: every sample would count twice")

    def all_reduce(self, group: object = None) -> None:
        """Merge the statistics of all ranks of torch.distributed, on each of them, by two sums.

        The first sum gives counts and means, the second the scatter about those means; no rank's state is
        gathered. Ranks may have seen different numbers of samples and miss classes.
        """
        from torch import distributed

        counts = self._counts.to(torch.float64)
        means = torch.cat([counts[:, None], counts[:, None] * self._mean], dim=1)
        packed = torch.cat([means.view(-1), self._digits.to(torch.float64)])
        distributed.all_reduce(packed, group=group)  # pyright: ignore[reportArgumentType]
        first = packed[:-DIGITS].view_as(means)
        self._digits = packed[-DIGITS:].round().to(torch.int64)
        together = first[:, 0]
        common = first[:, 1:] / together.clamp(min=1)[:, None]

        gap = torch.where(counts[:, None] > 0, (self._mean - common) + self._mean_tail, 0.0)
        root = torch.sqrt(counts)[:, None] * gap
        parts = [counts[:, None] * gap, (self._squares + root.square().sum(1))[:, None]]
        if self._scatter is not None:
            scatter = self._scatter.clone()
            add_gram(scatter, root)
            parts.append(scatter)
        second = torch.cat([part.reshape(-1) for part in parts])
        distributed.all_reduce(second, group=group)  # pyright: ignore[reportArgumentType]

        size = self.num_classes * self.dim
        rest = second[:size].view(self.num_classes, self.dim) / together.clamp(min=1)[:, None]
        correction = torch.sqrt(together)[:, None] * rest
        self._counts = together.round().to(torch.int64)
        self._mean, self._mean_tail = _two_sum(common, rest)
        self._squares = (second[size : size + self.num_classes] - correction.square().sum(1)).clamp(min=0)
        if self._scatter is not None:
            self._scatter = second[size + self.num_classes :].view(self.dim, self.dim)
            negative = torch.zeros_like(self._scatter)
            add_gram(negative, correction)
            self._scatter -= negative

    # using it -----------------------------------------------------------------------------------------------

    def report(
        self,
        weight: Any = None,
        bias: Any = None,
        *,
        metrics: Any = None,
        global_mean: Any = "samples",
        present_only: Any = False,
        min_samples: Any = 1,
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
        from ._report import build_report

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
        lost = int(self._counts[classes].sum()) < self.total
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
        weight: Any = None,
        bias: Any = None,
        *,
        metrics: Any = None,
        global_mean: Any = "samples",
        memory_limit: Any = 1 << 30,
        present_only: Any = False,
        min_samples: Any = 1,
    ) -> "SecondPass":
        """A stream over the same samples for what needs the means first; its ``report()`` has all measures.

        With ``passes=2`` this gives nc1; with either, the cosine margins, the agreement with the nearest
        class mean and the numerical rank. ``memory_limit`` bounds the bytes that the class Gram matrices of
        the numerical rank may take; ``present_only`` and ``min_samples`` are those of :meth:`report`. Samples of
        classes that are left out may be streamed, too.
        """
        from ._second_pass import second_pass

        return second_pass(
            self,
            weight,
            bias,
            metrics=metrics,
            global_mean=global_mean,
            memory_limit=memory_limit,
            selection=Selection(present_only, min_samples),
        )

    # on disk ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """The state as named tensors (copies)."""
        state = {
            "counts": self._counts,
            "mean": self._mean,
            "mean_tail": self._mean_tail,
            "squares": self._squares,
            "digits": self._digits,
        }
        if self._scatter is not None:
            state["scatter"] = self._scatter
        return {name: tensor.clone() for name, tensor in state.items()}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Take over a state made by :meth:`state`; a state that cannot be one raises and changes nothing."""
        mine = self.state()
        if "digits" not in state and "counts" in state:
            # Statistics of before the dtypes were kept: float64, as they were then taken to be.
            digits = torch.zeros_like(mine["digits"])
            digits[digits_of(torch.float64)] = state["counts"].sum()
            state = {**state, "digits": digits}
        if set(state) != set(mine):
            raise ValueError(f"state must hold {sorted(mine)}, got {sorted(state)}")
        for name, tensor in state.items():
            if tensor.shape != mine[name].shape or tensor.dtype != mine[name].dtype:
                raise ValueError(f"state {name!r} must be {describe(mine[name])}, got {describe(tensor)}")
            if not bool(torch.isfinite(tensor).all()):
                raise ValueError(f"state {name!r} must be finite")
        if any(bool((state[name] < 0).any()) for name in ("counts", "squares", "digits")):
            raise ValueError("state 'counts', 'squares' and 'digits' must not be negative")
        for name, tensor in state.items():
            setattr(self, f"_{name}", tensor.to(self.device).clone())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to a safetensors file, atomically."""
        from safetensors.torch import save_file

        ignored = "none" if self.ignore_label is None else str(self.ignore_label)
        metadata = {"format": FORMAT, "passes": str(self.passes), "ignore_label": ignored}
        state = {name: tensor.to("cpu").contiguous() for name, tensor in self.state().items()}
        atomic_write(path, lambda temporary: save_file(state, temporary, metadata=metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | torch.device = "cpu") -> "ClassStatistics":
        """Read statistics written by :meth:`save`."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(os.fspath(path), framework="pt") as file:
                metadata = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(f"{os.fspath(path)} is not a readable safetensors file: {error}") from error
        if metadata.get("format") not in (FORMAT, OLD_FORMAT) or "mean" not in state or state["mean"].ndim != 2:
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
