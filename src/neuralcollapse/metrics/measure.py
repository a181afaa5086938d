"""``measure``: every metric of features in memory, or in a file that is larger than memory."""

from typing import Any

import torch
from torch import Tensor

from .._support.checks import integer
from .accumulators.passes import class_means, class_ranks, look_again, one_pass
from .accumulators.ranks import gram_bytes
from .accumulators.second_pass import Task
from .definitions._geometry import SampleResults, geometry_of
from .definitions._registry import select
from .inputs import (
    IGNORED,
    Source,
    as_classifier,
    as_labels,
    as_source,
    check_labels,
    class_count,
    nonfinite_error,
    select_rows,
)
from .intervals import check_level, with_intervals
from .needs import needs_again, needs_of
from .precision import as_precision
from .report.report import CollapseReport
from .selection import Selection

__all__ = ["MEMORY_LIMIT", "choose_passes", "mean_of", "measure"]

MEMORY_LIMIT = 1 << 30


@torch.no_grad()
def measure(
    features: Any,
    labels: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    num_classes: Any = None,
    metrics: Any = "core",
    passes: Any = None,
    global_mean: Any = "samples",
    present_only: Any = False,
    min_samples: Any = 1,
    ignore_label: Any = IGNORED,
    out_of_distribution: Any = None,
    memory_limit: Any = MEMORY_LIMIT,
    precision: torch.dtype | None = None,
    intervals: float | None = None,
    groups: int = 20,
    decision_rows: Any = None,
) -> CollapseReport:
    """Measure neural collapse of ``features`` (N, d) with ``labels`` (N,), and of a classifier on them.

    Args:
        features: a floating tensor or numpy array (a memory map streams from disk).
        labels: integers in 0..K-1; samples labelled ``ignore_label`` are left out.
        weight: the classifier W, (K, d): logits = H W' + b.
        bias: its bias, (K,); ``None`` counts as zero.
        num_classes: K; by default the rows of ``weight``, else the highest label and one.
        metrics: ``"core"`` (all that costs at most products with the class means), ``"all"``, or names.
        passes: 1 for the pooled d x d scatter, 2 for the projections on the span of the class means; by
            default the cheaper of the two that gives what ``metrics`` ask for.
        global_mean: ``"samples"`` for the mean of all samples, ``"classes"`` for the mean of the class means.
        present_only: measure the classes that have samples, as if there were no others.
        min_samples: measure the classes that have at least so many samples, as if there were no others.
        ignore_label: the label of samples to leave out; ``None`` for none.
        out_of_distribution: features (M, d) of other data, for ``nc5_ood``.
        memory_limit: bytes that intermediate matrices may take; a metric that needs more is left out with the
            reason.
        precision: the dtype whose rounding the features carry, where that is coarser than their own (that of
            autocast, or of a store in half precision): directions below it do not count.
        intervals: the level of confidence intervals, such as 0.95, for ``report.intervals``: the delete-a-group
            jackknife, which reads the features once more and keeps the d x d scatter of each group for nc1.
        groups: how many groups it takes.
        decision_rows: about how many samples, spread evenly, are decided for ``nc4_mismatch`` and the cosine
            margins, which cost the most with many classes; by default all.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.2], [-1.0, 0.0], [-1.0, 0.2]])
    >>> report = measure(features, torch.tensor([0, 0, 1, 1]))
    >>> round(report.nc1_quotient, 6), report.nc2
    (0.01, None)

    """
    source = as_source("features", features)
    rounded = as_precision(precision, source.dtype)
    targets = as_labels(labels, source.rows)
    if ignore_label is not None:
        integer("ignore_label", ignore_label)
    limit = integer("memory_limit", memory_limit, minimum=0)
    check_level(intervals, groups)
    matrix, vector = as_classifier(weight, bias, None, source.dim)
    selection, numbers, notes = Selection(present_only, min_samples), None, ()
    if selection == Selection():
        classes = class_count(num_classes, targets, matrix, ignore_label)
    else:
        numbers, targets, kept, notes = _selected(targets, matrix, num_classes, ignore_label, selection)
        classes = numbers.shape[0]
        if matrix is not None:
            matrix, vector = matrix[numbers], None if vector is None else vector[numbers]
        source, ignore_label = source.where(kept), None
    if matrix is not None and matrix.shape[0] != classes:
        raise ValueError(f"weight must have {classes} rows, one per class, got {matrix.shape[0]}")
    source, targets = select_rows(source, targets, classes, ignore_label)
    chosen = select(metrics)
    needs = needs_of(chosen)
    targets = targets.to(source.device)
    other = None if out_of_distribution is None else mean_of(out_of_distribution, source.dim)

    double = source.dtype == torch.float64
    number, missing = choose_passes(passes, needs, classes, source.dim, limit, double)
    if (number == 1 and double) or passes == 1:
        statistics = one_pass(source, targets, classes, 1, rounded)
    elif double:
        statistics = one_pass(source, targets, classes, 2, rounded)
    else:
        statistics = class_means(source, targets, classes, rounded)
    exact = double or passes == 1
    again = needs_again(needs, classifier=matrix is not None, scatter=statistics.passes == 1) - {"ranks"}
    if not exact:
        again |= needs & {"within", "projection", *({"scatter"} if number == 1 else ())}
    geometry = geometry_of(
        statistics, matrix, vector, SampleResults(), global_mean=global_mean, classes=numbers, notes=notes
    )
    del statistics, matrix, vector
    rows = None if decision_rows is None else integer("decision_rows", decision_rows, minimum=1)
    task = Task(geometry, tuple(metric.name for metric in chosen), again, classes, None, missing, rows)
    second = look_again(source, targets, task)
    ranks = None
    if "ranks" in needs:
        # One class at a time: its rows, their centred copy, and two matrices of the smaller side.
        most = geometry.counts.max()
        largest = torch.get_num_threads() * 3 * gram_bytes(most[None], source.dim)
        if int(most) >= source.dim:
            largest += torch.get_num_threads() * 16 * int(most) * source.dim
        if largest <= limit:
            ranks = class_ranks(source, targets, geometry)
        else:
            missing["ranks"] = (
                f"the largest class needs {largest / 1e9:.2g} GB for its Gram matrix, more than "
                f"memory_limit = {limit / 1e9:.2g} GB"
            )
    report = second.report(missing=missing, ranks=ranks, out_of_distribution_mean=other)
    if intervals is None:
        return report
    geometry = geometry.with_samples(SampleResults(), geometry.class_variances, other, missing)
    return with_intervals(report, source, targets, geometry, intervals, groups, limit, global_mean)


def _selected(
    labels: Tensor, weight: Tensor | None, num_classes: Any, ignore_label: int | None, selection: Selection
) -> tuple[Tensor, Tensor, Tensor, tuple[str, ...]]:
    """The classes to measure, the labels numbered anew over those, the rows they stand at, and notes."""
    bound = weight.shape[0] if weight is not None and num_classes is None else num_classes
    if bound is not None:
        check_labels(labels, integer("num_classes", bound, minimum=2), ignore_label)
    rows = torch.arange(labels.shape[0]) if ignore_label is None else (labels != ignore_label).nonzero().squeeze(1)
    present, numbers, counts = torch.unique(labels[rows], return_inverse=True, return_counts=True)
    if present.shape[0] < 2:
        raise ValueError(f"neural collapse needs at least two classes with samples, got {present.shape[0]}")
    if int(present[0]) < 0:
        raise ValueError(f"labels must not be negative, got {int(present[0])}")
    kept = selection.kept(counts)
    note = selection.note(counts)
    if kept is None:
        return present, numbers, rows, ()
    place = torch.full_like(present, -1)
    place[kept] = torch.arange(kept.shape[0])
    inside = (place[numbers] >= 0).nonzero().squeeze(1)
    return present[kept], place[numbers][inside], rows[inside], () if note is None else (note,)


def choose_passes(
    passes: object, needs: frozenset[str], num_classes: int, dim: int, memory_limit: int, double: bool
) -> tuple[int, dict[str, str]]:
    """The way to nc1 (1 or 2 passes) and the reasons for what it leaves out.

    Two passes multiply N d min(K-1, d) times in the features' precision, one pass N d^2 / 2 times in float64:
    one pass pays only for features that are ``double`` themselves, with many classes.
    """
    missing: dict[str, str] = {}
    size = 8 * dim * dim * (torch.get_num_threads() + 1)
    if passes is not None:
        number = integer("passes", passes, minimum=1, maximum=2)
    elif size > memory_limit:
        number = 2
        missing["scatter"] = (
            f"the {dim} x {dim} scatter matrix takes {size / 1e9:.2g} GB, more than memory_limit = "
            f"{memory_limit / 1e9:.2g} GB"
        )
    elif "scatter" in needs:
        number = 1
    else:
        number = 1 if double and "projection" in needs and 2 * min(num_classes - 1, dim) >= dim else 2
    return number, missing


def mean_of(features: object, dim: int) -> Tensor:
    """The float64 mean of out-of-distribution features (M, d)."""
    source: Source = as_source("out_of_distribution", features)
    if source.dim != dim or source.rows == 0:
        raise ValueError(
            f"out_of_distribution must have shape (M, {dim}) with M >= 1, got ({source.rows}, {source.dim})"
        )
    total = torch.zeros(dim, dtype=torch.float64)
    step = max(1, (1 << 20) // dim)
    for start in range(0, source.rows, step):
        total += source.slice(start, min(start + step, source.rows)).sum(0, dtype=torch.float64).to("cpu")
    if not bool(torch.isfinite(total).all()):
        raise ValueError(str(nonfinite_error(source)).replace("features", "out_of_distribution", 1))
    return total / source.rows
