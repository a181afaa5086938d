"""The second look at the samples, once the class means are known.

Each chunk is centred by its own class means first and multiplied afterwards: D = h - m_y has the size of the
spread, so the products keep the digits that products of the features themselves lose near collapse. One
product with the span of the means gives nc1 and the nearest class mean; one with the classifier gives its
decisions and the cosine margins.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._support.checks import describe, integer
from ._class_grams import ClassGrams, gram_bytes
from ._geometry import Geometry, SampleResults, geometry_of
from ._inputs import all_finite, as_classifier, as_labels, as_source, check_labels, nonfinite_error
from ._registry import select
from ._report import CollapseReport, evaluate, select_classes
from ._selection import Selection
from ._statistics import ClassStatistics, chunk_rows

__all__ = ["SecondPass", "SecondPassPlan", "plan_second_pass", "second_pass"]


@dataclass(frozen=True, eq=False)
class SecondPassPlan:
    """Constants of a second pass in its working precision; a part is ``None`` when nothing asked for it."""

    dtype: torch.dtype
    centre: Float[Tensor, "K d"]
    rounding: Float[Tensor, "K d"]
    """Exact class means minus ``centre``, in float64: corrects the sums of squares about ``centre``."""
    within: bool
    spans: Float[Tensor, "d r"] | None
    """Directions v_i of the full spectrum over its largest singular value."""
    scale: float
    """That singular value."""
    span_rounding: Float[Tensor, "K r"] | None
    coordinates: Float[Tensor, "K r"] | None
    """Of the class means minus the global mean, in those directions."""
    nearest: Float[Tensor, "r K"] | None
    """From coordinates to products with the centred class means."""
    half_squares: Float[Tensor, " K"] | None
    rows: Float[Tensor, "d K"] | None
    """Unit rows of the centred classifier."""
    row_norms: Float[Tensor, " K"] | None
    logit_offsets: Float[Tensor, " K"] | None
    """Logits of the global mean, up to a number that is common to all classes."""
    to_global: Float[Tensor, "K d"] | None
    """``centre`` minus the global mean."""
    margins: bool
    negligible: float


def plan_second_pass(geometry: Geometry, needs: frozenset[str], dtype: torch.dtype) -> SecondPassPlan:
    """What to multiply by, for the needs of the metrics; nothing where a class has no samples."""
    means = geometry.centred + geometry.global_mean
    centre = means.to(dtype)
    # The centred means carry more digits than their sum with the global mean.
    rounding = geometry.centred - (centre.to(torch.float64) - geometry.global_mean)
    shifted = geometry.centred - rounding
    spans = span_rounding = coordinates = nearest = half_squares = None
    rows = norms = logit_offsets = to_global = None
    complete = bool((geometry.counts > 0).all()) and geometry.full_spectrum.values.shape[0] > 0
    scale = float(geometry.full_spectrum.values[0]) if complete else 1.0
    decisions = complete and geometry.weight is not None and "decisions" in needs
    margins = complete and geometry.weight is not None and "margins" in needs
    if complete and ("projection" in needs or decisions):
        spectrum = geometry.full_spectrum
        exact = spectrum.directions / scale
        spans = exact.to(dtype)
        span_rounding = (rounding @ exact).square()
        if decisions:
            coordinates = (shifted @ exact).to(dtype)
            products = geometry.centred @ spectrum.directions
            nearest = (scale * products.T).to(dtype)
            half_squares = (geometry.centred.square().sum(1) / 2).to(dtype)
    if geometry.weight is not None and (decisions or margins):
        classifier = geometry.weight - geometry.weight.mean(0)
        lengths = classifier.square().sum(1).sqrt()
        unit = classifier / lengths.clamp(min=torch.finfo(torch.float64).tiny)[:, None]
        rows, norms, to_global = unit.T.to(dtype), lengths.to(dtype), shifted.to(dtype)
        if decisions:
            logits = classifier @ geometry.global_mean
            logit_offsets = (logits if geometry.bias is None else logits + geometry.bias).to(dtype)
    size = float(geometry.centred.square().sum(1).max().sqrt())
    return SecondPassPlan(
        dtype,
        centre.contiguous(),
        rounding,
        "within" in needs,
        None if spans is None else spans.contiguous(),
        scale,
        span_rounding,
        coordinates,
        nearest,
        half_squares,
        None if rows is None else rows.contiguous(),
        norms,
        logit_offsets,
        to_global,
        margins,
        4 * torch.finfo(dtype).eps * size,
    )


class SecondPass:
    """Sums over a second stream of the samples; made by :meth:`ClassStatistics.second_pass`."""

    def __init__(self, plan: SecondPassPlan, grams: ClassGrams | None = None):
        self._plan = plan
        self._grams = grams
        classes = plan.centre.shape[0]
        self._seen = torch.zeros(classes, dtype=torch.int64)
        self._squares = torch.zeros(classes, dtype=torch.float64)
        width = 0 if plan.spans is None else plan.spans.shape[1]
        self._projected = torch.zeros(width, dtype=torch.float64)
        self._mismatches = 0
        self._right = torch.zeros(2, classes, dtype=torch.int64)
        self._margins: list[Tensor] = []
        self._at_global_mean = 0
        self._owner: _Owner | None = None
        self._reduced = False

    @torch.no_grad()
    def update(self, features: Any, labels: Any) -> None:
        """Add a batch of the same samples as in the first pass, in any order and split."""
        source = as_source("features", features)
        classes, dim = self._plan.centre.shape
        if source.dim != dim:
            raise ValueError(f"features must have {dim} columns, got {source.dim}")
        targets = as_labels(labels, source.rows)
        owner = self._owner
        kept = check_labels(targets, owner.num_classes if owner else classes, owner.ignore_label if owner else None)
        if kept is not None:
            source, targets = source.where(kept), targets[kept]
        if owner is not None and owner.numbers is not None:
            targets = owner.numbers[targets]
            kept = (targets >= 0).nonzero().squeeze(1)
            source, targets = source.where(kept), targets[kept]
        step = chunk_rows(dim)
        for start in range(0, source.rows, step):
            stop = min(start + step, source.rows)
            part = source.slice(start, stop)
            if not all_finite(part):
                raise nonfinite_error(source)
            self.add(part, targets[start:stop])

    def add(self, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> None:
        """Add a chunk of finite rows with valid labels."""
        plan = self._plan
        difference = plan.centre.index_select(0, labels)
        torch.sub(features.to(plan.dtype), difference, out=difference)
        self._seen += torch.bincount(labels, minlength=self._seen.shape[0])
        if self._grams is not None:
            self._grams.add(difference, labels)
        if plan.within:
            norms = torch.linalg.vector_norm(difference, dim=1).to(torch.float64)
            self._squares.index_add_(0, labels, norms.square_())
        projections = None if plan.spans is None else difference @ plan.spans
        if projections is not None:
            self._projected += projections.square().sum(0, dtype=torch.float64)
        if plan.to_global is not None:
            difference += plan.to_global[labels]
            self._add_decisions(difference, labels, projections)

    def _add_decisions(
        self,
        centred: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        projections: Float[Tensor, "n r"] | None,
    ) -> None:
        """Decisions and margins of samples minus the global mean."""
        plan = self._plan
        assert plan.rows is not None
        assert plan.row_norms is not None
        products = centred @ plan.rows
        if plan.logit_offsets is not None:
            assert projections is not None
            assert plan.coordinates is not None
            assert plan.nearest is not None
            assert plan.half_squares is not None
            decided = torch.addcmul(plan.logit_offsets, products, plan.row_norms).argmax(1)
            projections += plan.coordinates[labels]
            closest = torch.addmm(plan.half_squares, projections, plan.nearest, beta=-1).argmax(1)
            self._mismatches += int((decided != closest).sum())
            for hits, decisions in zip(self._right, (decided, closest), strict=True):
                hits += torch.bincount(labels[decisions == labels], minlength=hits.shape[0])
        if plan.margins:
            own = products.gather(1, labels[:, None]).squeeze(1)
            products.scatter_(1, labels[:, None], -torch.inf)
            lengths = torch.linalg.vector_norm(centred, dim=1)
            usable = lengths > plan.negligible
            margins = (own - products.amax(1)) / lengths
            if not bool(usable.all()):
                self._at_global_mean += int((~usable).sum())
                margins = margins[usable]
            self._margins.append(margins)

    def merge(self, other: Any) -> None:
        """Add what another second pass over other samples, from the same statistics, has seen."""
        if not isinstance(other, SecondPass):
            raise TypeError(f"other must be a SecondPass, got {describe(other)}")
        if other is self:
            raise ValueError("a second pass cannot be merged into itself: every sample would count twice")
        mine, theirs = self._plan, other._plan
        if mine is not theirs and not (
            mine.dtype == theirs.dtype
            and mine.centre.shape == theirs.centre.shape
            and torch.allclose(mine.centre, theirs.centre, rtol=1e-12, atol=0)
        ):
            raise ValueError("second passes that start from different class means cannot be merged")
        self._seen += other._seen
        self._squares += other._squares
        self._projected += other._projected
        self._mismatches += other._mismatches
        self._right += other._right
        self._margins += other._margins
        self._at_global_mean += other._at_global_mean
        if self._grams is not None and other._grams is not None:
            self._grams.merge(other._grams)

    def all_reduce(self, group: object = None) -> None:
        """Merge over all ranks of torch.distributed; all must have started from the same statistics.

        The sums take one reduction; the margins (one number a sample) are gathered for their sorted curve.
        The numerical rank needs whole classes in one place and is not reduced: the report says so.
        """
        from torch import distributed

        numbers = torch.tensor([self._mismatches, self._at_global_mean], dtype=torch.float64)
        hits = self._right.to(torch.float64).flatten()
        parts = [numbers, self._projected, self._squares, self._seen.to(torch.float64), hits]
        packed = torch.cat(parts)
        distributed.all_reduce(packed, group=group)  # pyright: ignore[reportArgumentType]
        numbers, self._projected, self._squares, seen, hits = packed.split([len(part) for part in parts])
        self._right = hits.round().to(torch.int64).view(2, -1)
        self._mismatches, self._at_global_mean = (int(number) for number in numbers)
        self._seen = seen.round().to(torch.int64)
        if self._plan.margins:
            mine = torch.cat(self._margins) if self._margins else torch.zeros(0, dtype=self._plan.dtype)
            world = distributed.get_world_size(group)  # pyright: ignore[reportArgumentType]
            everyones: list[Tensor | None] = [None] * world
            distributed.all_gather_object(everyones, mine, group=group)  # pyright: ignore[reportArgumentType]
            self._margins = [part for part in everyones if part is not None]
        self._grams = None
        self._reduced = True

    def squares(self) -> Float[Tensor, " K"]:
        """Sums of squared distances to the class means, corrected for the rounding of the centre."""
        correction = self._seen * self._plan.rounding.square().sum(1)
        return (self._squares - correction).clamp(min=0)

    def results(self) -> SampleResults:
        """What was asked for, from the sums."""
        plan, total = self._plan, int(self._seen.sum())
        along = None
        if plan.span_rounding is not None:
            correction = self._seen.to(torch.float64) @ plan.span_rounding
            along = (self._projected - correction).clamp(min=0) / max(total, 1) * plan.scale**2
        margins = None
        if plan.margins:
            margins = torch.cat(self._margins) if self._margins else torch.zeros(0, dtype=plan.dtype)
        ranks = None if self._grams is None else self._grams.ranks(plan.centre.to(torch.float64), plan.rounding)
        mismatches = self._mismatches if plan.logit_offsets is not None else None
        right, nearest_right = (None, None) if mismatches is None else self._right.clone()
        return SampleResults(along, mismatches, margins, self._at_global_mean, ranks, right, nearest_right)

    def finite(self) -> bool:
        """Whether no sum overflowed the working precision."""
        sums = [float(self._projected.sum()), float(self._squares.sum())]
        return all(math.isfinite(value) for value in sums) and all(bool(m.isfinite().all()) for m in self._margins)

    def report(self, *, missing: dict[str, str] | None = None) -> CollapseReport:
        """All measures; the second pass must have seen exactly the samples of the first.

        ``missing`` adds reasons for parts that the first pass left out.
        """
        owner = self._owner
        assert owner is not None
        if not torch.equal(self._seen, owner.statistics.counts.to("cpu")):
            raise ValueError(
                f"the second pass saw {int(self._seen.sum())} samples and the first "
                f"{owner.statistics.total}, or other labels: both must stream the same samples"
            )
        missing = owner.missing | (missing or {})
        if self._reduced:
            missing["ranks"] = "the numerical rank is not reduced over processes: it needs whole classes in one place"
        geometry = geometry_of(
            owner.statistics,
            owner.weight,
            owner.bias,
            self.results(),
            global_mean=owner.global_mean,
            missing=missing,
            classes=owner.classes,
            notes=owner.notes,
        )
        return evaluate(geometry, select(owner.metrics))


@dataclass(frozen=True, eq=False)
class _Owner:
    """What a second pass needs to end in a report: the classes that are measured, and how."""

    statistics: ClassStatistics
    weight: Tensor | None
    bias: Tensor | None
    metrics: object
    global_mean: Any
    missing: dict[str, str]
    num_classes: int
    ignore_label: int | None
    classes: Tensor | None
    notes: tuple[str, ...]

    @cached_property
    def numbers(self) -> Tensor | None:
        """For each label, the number of its class among those that are measured, or -1; ``None`` for all."""
        if self.classes is None:
            return None
        numbers = torch.full((self.num_classes,), -1)
        numbers[self.classes] = torch.arange(self.classes.shape[0])
        return numbers


def second_pass(
    statistics: ClassStatistics,
    weight: object,
    bias: object,
    *,
    metrics: object,
    global_mean: Any,
    memory_limit: Any,
    selection: Selection,
) -> SecondPass:
    """See :meth:`ClassStatistics.second_pass`."""
    integer("memory_limit", memory_limit, minimum=0)
    matrix, vector = as_classifier(weight, bias, statistics.num_classes, statistics.dim)
    chosen = select(metrics)
    part = select_classes(statistics, matrix, vector, selection)
    needs = frozenset(need for metric in chosen for need in metric.needs) - {"within"}
    if part.statistics.passes == 1:
        needs -= {"projection"}
    geometry = geometry_of(part.statistics, part.weight, part.bias, SampleResults(), global_mean=global_mean)
    grams, missing = None, dict(part.missing)
    if "ranks" in needs:
        bytes_needed = gram_bytes(geometry.counts, statistics.dim)
        if bytes_needed <= memory_limit:
            grams = ClassGrams(geometry.counts, statistics.dim)
        else:
            missing["ranks"] = (
                f"the class Gram matrices need {bytes_needed / 1e9:.2g} GB, more than memory_limit = "
                f"{memory_limit / 1e9:.2g} GB"
            )
    result = SecondPass(plan_second_pass(geometry, needs, torch.float64), grams)
    result._owner = _Owner(
        part.statistics,
        part.weight,
        part.bias,
        metrics,
        global_mean,
        missing,
        statistics.num_classes,
        statistics.ignore_label,
        part.classes,
        part.notes,
    )
    return result
