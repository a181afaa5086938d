"""The objective of models on logits, with products counted.

Z = tau H W' + 1 b' are the logits, G (N, K) is the gradient of the mean loss in them. A value costs one product of
order N K d, a gradient two more, a Hessian product six; along a ray all values together cost two
(:class:`~neuralcollapse.ufm.objectives.logit_line.LogitLine`).

Large problems are worked on in parts of some rows, so that of all arrays of the logits' size only the logits
themselves, and along a ray their two derivatives, are ever held. A small problem is one part, and what was computed of
the loss there is kept.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from ..point import Point
from .base import Objective, State
from .logit_line import LogitLine
from .logit_state import LogitHessian, LogitState, PartLoss
from .workspace import Workspace

if TYPE_CHECKING:
    from ..logit_problem import LogitProblem

__all__ = ["Along", "LogitObjective", "Segment"]

WHOLE = 1 << 19
"""Up to this many entries in features or logits (4 MB) a problem is one part."""
PART_ENTRIES, PART_ROWS = 1 << 16, 512
"""The entries of a part of a larger problem (half a MB), and the rows that it has at least."""
NO_MULTIPLIERS = torch.empty(0, 1, dtype=torch.float64)


@dataclass(frozen=True)
class Segment:
    """Some rows of the features and of the logits, and their share of all rows."""

    start: int
    rows: int
    labels: Tensor
    share: float

    def of(self, array: Tensor) -> Tensor:
        """These rows of ``array``, as a view (narrowing is the cheapest way to one)."""
        return array if self.share == 1 else array.narrow(0, self.start, self.rows)


def in_parts(labels: Tensor, width: int) -> list[Segment]:
    """All rows, in parts of nearly equal size; ``width`` is what a row has entries."""
    count = len(labels)
    if count * width <= WHOLE:
        return [Segment(0, count, labels, 1.0)]
    number = math.ceil(count / max(PART_ENTRIES // width, PART_ROWS))
    edges = [index * count // number for index in range(number + 1)]
    return [Segment(start, end - start, labels[start:end], (end - start) / count) for start, end in pairwise(edges)]


@runtime_checkable
class Along(Protocol):
    """What a model adds to a polynomial line: t counts in the line's own units."""

    def curvature(self) -> float:
        """The part of the second derivative at t = 0 that the logits' polynomial does not have."""
        ...

    def penalty(self, step: float) -> float:
        """What the objective has besides the mean loss at ``step``."""
        ...

    def factors(self, step: float) -> Float[Tensor, " R"] | None:
        """What the rows of W and H, and so the polynomial's logits, are multiplied by at ``step``."""
        ...


class LogitObjective(Objective):
    """What the regularised and the normalised model share."""

    unit_rows: ClassVar[bool] = False
    """Whether the rows of W and H lie on unit spheres."""

    def __init__(self, problem: "LogitProblem", temperature: float, scales: tuple[float, ...]):
        self.classes = problem.num_classes
        self.dim, self.shape = problem.dim, (problem.num_classes + problem.num_samples, problem.dim)
        self.has_bias = problem.has_bias
        sizes = [problem.num_classes * problem.dim, problem.num_samples * problem.dim, problem.num_classes]
        super().__init__(problem, sizes if problem.has_bias else sizes[:2], scales)
        self.loss = problem.loss
        self.temperature = temperature
        self.decays = (0.0, 0.0, 0.0)
        """lW, lH and lb: gradients and Hessian products add them up with their products."""
        self.parts = in_parts(problem.labels, max(problem.num_classes, problem.dim))
        self.whole = len(self.parts) == 1
        largest = 8 * max(self.entries, problem.num_samples * problem.num_classes)
        self._workspace = None if self.whole else Workspace(largest)
        self._columns: dict[torch.dtype, Tensor] = {}

    # Memory and layout --------------------------------------------------------------------------------------------

    def empty(self, dtype: torch.dtype = torch.float64) -> Float[Tensor, " D"]:
        """A vector with arbitrary entries."""
        if self._workspace is None:
            return torch.empty(self.entries, dtype=dtype)
        return self._workspace.empty([self.entries], dtype)

    def two_empty(self, dtype: torch.dtype) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
        """Two vectors in one piece of memory."""
        if self._workspace is None:
            return self.empty(dtype), self.empty(dtype)
        first, second = self._workspace.empty([2, self.entries], dtype)
        return first, second

    def empty_logits(self) -> Float[Tensor, "N K"]:
        """An array of the logits' shape with arbitrary entries."""
        shape = [self.shape[0] - self.classes, self.classes]
        return torch.empty(shape, dtype=torch.float64) if self._workspace is None else self._workspace.empty(shape)

    def rows(self, x: Float[Tensor, " D"]) -> Float[Tensor, "R d"]:
        """W above H, as a view, where there is no bias."""
        return x.view(self.shape)

    def blocks(self, x: Float[Tensor, " D"]) -> tuple[Float[Tensor, "K d"], Float[Tensor, "N d"], Tensor | None]:
        """W, H and, if there is one, b, as views."""
        pieces = x.split_with_sizes(self.sizes)
        return pieces[0].view(-1, self.dim), pieces[1].view(-1, self.dim), pieces[2] if self.has_bias else None

    def point(self, x: Float[Tensor, " D"]) -> Point:
        """Views into ``x``."""
        return Point(*self.blocks(x))

    def flatten(self, point: Point) -> Float[Tensor, " D"]:
        """``point`` as a new vector."""
        if self.whole:
            return point.flatten()
        return torch.cat([block.reshape(-1) for block in point.blocks], out=self.empty())

    def precondition(self, vector: Float[Tensor, " D"], out: Float[Tensor, " D"] | None = None) -> Float[Tensor, " D"]:
        """Each block times its scale, in one operation where there is no bias."""
        if self.has_bias:
            return super().precondition(vector, out)
        column = self._columns.get(vector.dtype)
        if column is None:
            column = torch.full((self.shape[0], 1), self.scales[1], dtype=vector.dtype)
            column[: self.classes] = self.scales[0]
            self._columns[vector.dtype] = column
        if out is None and self.whole:
            return torch.mul(vector.view(self.shape), column).view(-1)
        result = self.empty(vector.dtype) if out is None else out
        torch.mul(vector.view(self.shape), column, out=result.view(self.shape))
        return result

    # The objective ------------------------------------------------------------------------------------------------

    def logits_at(self, x: Float[Tensor, " D"]) -> Float[Tensor, "N K"]:
        """tau H W' + 1 b'."""
        W, H, bias = self.blocks(x)
        products = torch.mm(H, W.T) if self.whole else torch.mm(H, W.T, out=self.empty_logits())
        return self.finish_logits_(products, bias)

    def finish_logits_(self, products: Tensor, bias: Float[Tensor, " K"] | None) -> Tensor:
        """Turn some rows of H W' into logits."""
        if self.temperature != 1:
            products *= self.temperature
        if bias is not None:
            products += bias
        return products

    def losses(self, logits: Float[Tensor, "N K"], dtype: torch.dtype = torch.float64) -> Iterator[PartLoss]:
        """The loss of each part in turn; of several, each lets its arrays go before the next one makes its own."""
        for part in self.parts:
            loss = PartLoss(self, part, part.of(logits).to(dtype))
            yield loss
            if not self.whole:
                loss.release()

    def state(self, x: Float[Tensor, " D"]) -> LogitState:
        """The objective at ``x``."""
        return LogitState(self, x, self.logits_at(x))

    def step(self, state: State, direction: Float[Tensor, " D"], length: float = 1.0) -> LogitState:
        """The state at R_x(length * direction)."""
        cast("LogitState", state).leave()
        return self.state(self.retract(state.x, direction, length))

    def line(self, state: State, direction: Float[Tensor, " D"]) -> LogitLine:
        """The objective along ``direction``, with O(NK) work a trial."""
        return LogitLine(self, cast("LogitState", state), direction)

    def retract(self, x: Float[Tensor, " D"], direction: Float[Tensor, " D"], length: float) -> Float[Tensor, " D"]:
        """x + length * direction, in a vector of its own."""
        if self.whole:
            return torch.add(x, direction, alpha=length)
        return torch.add(x, direction, alpha=length, out=self.empty())

    def project_(self, x: Float[Tensor, " D"], vector: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """Every vector is tangent in a flat space."""
        return vector

    # What a model adds --------------------------------------------------------------------------------------------

    def penalty(self, x: Float[Tensor, " D"]) -> float:
        """What the objective has besides the mean loss."""
        return 0.0

    def finish_gradient_(self, x: Float[Tensor, " D"], gradient: Float[Tensor, " D"]) -> Float[Tensor, "R 1"]:
        """Turn the Euclidean gradient into the Riemannian one.

        Returns:
            The multipliers of the constraints, which the Hessian needs: one a row, or none in a flat space.

        """
        return NO_MULTIPLIERS

    def finish_hessian_(self, hessian: LogitHessian, direction: Float[Tensor, " D"]) -> None:
        """Turn the Euclidean Hessian product, in ``hessian.result``, into the Riemannian one."""

    @abstractmethod
    def along(self, state: LogitState, direction: Float[Tensor, " D"], unit: float) -> Along:
        """How value and logits change along the ray x + t unit d besides Z0 + t Z1 + t^2 Z2."""
