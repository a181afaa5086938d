"""Counts, class means and sums of squares of labelled rows, exact under any split.

Each class has a centre c_k, one of its own samples. What is summed in float64 are deviations h - c_k and their
squares: they have the size of the spread, so nothing is lost when the spread is ten orders below the distance from
the origin. The mean is c_k + s_k/n_k in two words, and the sum of squares about it q_k - |s_k|^2/n_k; because c_k
is a sample, the second term is at most n_k times the result.
"""

import threading

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..precision import DIGITS, coarsest, digits_of
from ..processes import Group, sum_over
from .scatter import Scatter

__all__ = ["Moments", "chunk_rows"]

NAMES = {"counts": "counts", "mean": "centre", "sums": "sums", "squares": "squares", "digits": "digits"}
"""Names in a state and of the attributes: the centre is the first word of the mean."""


def chunk_rows(dim: int) -> int:
    """Rows per chunk: about a quarter of a million entries, which stay in the cache of one core."""
    return min(4096, max(64, (1 << 18) // dim))


class Moments:
    """n_k, c_k, s_k = sum of h - c_k, q_k = sum of |h - c_k|^2, and how many samples came in which dtype.

    >>> moments = Moments(2, 1)
    >>> moments.add(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), torch.float32)
    >>> moments.means().tolist(), moments.class_squares().tolist()
    ([[2.0], [5.0]], [2.0, 0.0])
    """

    def __init__(self, num_classes: int, dim: int, device: torch.device | None = None):
        options = {"dtype": torch.float64, "device": device}
        self.counts = torch.zeros(num_classes, dtype=torch.int64, device=device)
        self.centre = torch.zeros(num_classes, dim, **options)
        self.sums = torch.zeros(num_classes, dim, **options)
        self.squares = torch.zeros(num_classes, **options)
        self.digits = torch.zeros(DIGITS, dtype=torch.int64, device=device)

    # results ------------------------------------------------------------------------------------------------

    @property
    def precision(self) -> torch.dtype:
        """The coarsest dtype that the rows had."""
        return coarsest(self.digits)

    def offsets(self) -> Float[Tensor, "K d"]:
        """Class means minus centres."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    def means(self) -> Float[Tensor, "K d"]:
        """Class means, rounded to float64; zeros for a class without samples."""
        return self.centre + self.offsets()

    def class_squares(self) -> Float[Tensor, " K"]:
        """Sums of squared distances to the class means."""
        return (self.squares - _row_squares(self.sums) / self.counts.clamp(min=1)).clamp(min=0)

    # filling ------------------------------------------------------------------------------------------------

    def add(
        self,
        features: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        precision: torch.dtype,
        scatter: Scatter | None = None,
    ) -> None:
        """Add finite rows with valid labels, on the device of the sums; ``scatter`` grows with them.

        Rows are taken in the order of their classes, so that a class is read and written once a chunk.
        """
        step = chunk_rows(features.shape[1])
        if scatter is not None:
            step = min(4096, max(1024, step))
        ordered, order = labels.sort(stable=True)
        for start in range(0, labels.shape[0], step):
            self._add_sorted(features, order[start : start + step], ordered[start : start + step], scatter)
        self.digits[digits_of(precision)] += labels.shape[0]

    def _add_sorted(self, features: Tensor, order: Tensor, labels: Tensor, scatter: Scatter | None) -> None:
        classes, added = torch.unique_consecutive(labels, return_counts=True)
        before = self.counts.index_select(0, classes)
        rows = torch.index_select(features, 0, order, out=room("rows", order, features))
        new = (before == 0).nonzero().squeeze(1)
        if new.shape[0]:
            first = (added.cumsum(0) - added)[new]
            self.centre.index_copy_(0, classes[new], rows[first].to(torch.float64))
        centres = torch.index_select(self.centre, 0, labels, out=room("centres", order, self.centre))
        deviation = room("deviation", order, self.centre)
        deviation = rows.to(torch.float64) if deviation is None else deviation.copy_(rows)
        deviation.sub_(centres)
        self.squares.index_add_(0, labels, _row_squares(deviation))
        if scatter is not None:
            inverse = torch.repeat_interleave(added)
            local = torch.zeros(classes.shape[0], rows.shape[1], dtype=torch.float64, device=rows.device)
            local.index_add_(0, inverse, deviation)
            scatter.add(_scatter_growth(deviation, inverse, local, self.sums.index_select(0, classes), before, added))
        self.sums.index_add_(0, labels, deviation)
        self.counts.index_add_(0, classes, added)

    def merge(self, other: "Moments", scatter: Scatter | None = None) -> None:
        """Add what ``other`` has seen; ``scatter`` grows by the distance of the class means."""
        device = self.counts.device
        there = other.counts.to(device)
        classes = (there > 0).nonzero().squeeze(1)
        before, added = self.counts[classes], there[classes]
        centre, sums = other.centre.to(device)[classes], other.sums.to(device)[classes]
        empty = before == 0
        self.centre[classes[empty]] = centre[empty]
        move = centre - self.centre[classes]
        moved = sums + added[:, None] * move
        if scatter is not None:
            gap = move + (sums / added[:, None] - self.sums[classes] / before.clamp(min=1)[:, None])
            scatter.add(torch.sqrt(before * (added / (before + added).to(torch.float64)))[:, None] * gap)
        self.squares[classes] += other.squares.to(device)[classes] + (move * (sums + moved)).sum(1)
        self.sums[classes] += moved
        self.counts[classes] += added
        self.digits += other.digits.to(device)

    def all_reduce(self, group: Group = None, scatter: Scatter | None = None) -> None:
        """Merge over all processes by two sums: of counts and means, then of deviations from the common means.

        ``scatter`` is summed, too, in the second.
        """
        weights = self.counts.to(torch.float64)[:, None]
        counts, weighted, digits = sum_over([self.counts, weights * self.means(), self.digits], group)
        common = weighted / counts.clamp(min=1)[:, None]
        gap = torch.where(weights > 0, (self.centre - common) + self.offsets(), 0.0)
        parts = [weights * gap, self.class_squares() + weights.squeeze(1) * _row_squares(gap)]
        if scatter is not None:
            scatter.add(torch.sqrt(weights) * gap)
            parts.append(scatter.total)
        sums, squares, *rest = sum_over(parts, group)
        self.counts, self.centre, self.sums, self.squares, self.digits = counts, common, sums, squares, digits
        if scatter is not None:
            # The common means are rounded: what they are off by is taken back.
            correction = Scatter(self.centre.shape[1], self.centre.device)
            correction.add(sums / torch.sqrt(counts.clamp(min=1).to(torch.float64))[:, None])
            scatter.set_state({"scatter": rest[0] - correction.total})

    # taking apart -------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """The sums by name (no copies)."""
        return {name: getattr(self, attribute) for name, attribute in NAMES.items()}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Take over sums by name (no copies)."""
        for name, attribute in NAMES.items():
            setattr(self, attribute, state[name])

    def to(self, device: torch.device) -> None:
        """Move the sums."""
        self.set_state({name: tensor.to(device) for name, tensor in self.state().items()})


def _row_squares(rows: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return torch.linalg.vector_norm(rows, dim=1).square()


def _scatter_growth(
    deviation: Tensor, inverse: Tensor, local: Tensor, sums: Tensor, before: Tensor, added: Tensor
) -> Float[Tensor, "n d"]:
    """Rows whose Gram matrix is the growth of the scatter.

    With D = h - m_old and S_k the sum of D over the chunk's samples of class k, the scatter about the new mean
    grows by sum DD' - S_k S_k'/n_k. Shifting each row to D - a_k S_k with a_k = (1 - sqrt(1 - b_k/n_k))/b_k (b_k
    samples in the chunk) makes that one Gram matrix.
    """
    old = sums / before.clamp(min=1)[:, None]
    total = local - added[:, None] * old
    share = added.to(torch.float64) / (before + added)
    shift = (share / (1 + torch.sqrt(1 - share)) / added)[:, None] * total
    return deviation - (old + shift).index_select(0, inverse)


LARGEST = 1 << 22
"""Bytes of a tensor that is kept; larger chunks take memory of their own."""
_thread_rooms = threading.local()
"""Memory for the rows of one chunk, from chunk to chunk: fresh pages would take as long as the sums themselves."""


def room(name: str, index: Tensor, like: Tensor) -> Tensor | None:
    """A tensor for ``index.shape[0]`` rows as ``like`` has them, to write to before the next call of that name.

    Each thread has its own. ``None`` where none is kept: on accelerators, which do so themselves, and for large chunks.
    """
    shape = (index.shape[0], *like.shape[1:])
    size = shape[0] * like[0].numel() * like.element_size() if like.shape[0] else LARGEST + 1
    if like.device.type != "cpu" or type(like) is not Tensor or size > LARGEST:
        return None
    rooms: dict[tuple[object, ...], Tensor] = _thread_rooms.__dict__.setdefault("rooms", {})
    key = (name, like.dtype)
    if key not in rooms or rooms[key].numel() * rooms[key].element_size() < size:
        # Not an inference tensor, which could not be written to outside of that mode.
        with torch.inference_mode(False):
            rooms[key] = torch.empty(size // like.element_size(), dtype=like.dtype)
    return rooms[key][: size // like.element_size()].view(shape)
