"""``measure``: every metric of features in memory, or in a file that is larger than memory."""

import torch
from torch import Tensor

from .._support.checks import integer
from .._support.machine import has_float64, sum_in_float64
from .accumulators.passes import class_ranks, first_means, one_pass, second_pass
from .accumulators.ranks import gram_bytes
from .accumulators.second_pass import Task
from .accumulators.statistics import ClassStatistics
from .definitions._geometry import Geometry, SampleResults, geometry_of
from .definitions.decisions import nc5_ood as nc5_of_geometry
from .inputs import (
    IGNORED,
    Array,
    FeatureRows,
    Labels,
    as_classifier,
    as_labels,
    as_rows,
    check_labels,
    class_count,
    nonfinite_error,
    select_rows,
)
from .intervals import with_intervals
from .precision import as_precision
from .report.report import CollapseReport
from .selection import Selection
from .settings import MEMORY_LIMIT, GlobalMean, Metrics, Settings

__all__ = ["class_means", "measure", "nc5_ood", "out_of_distribution_mean", "report_on"]


@torch.no_grad()
def measure(
    features: Array,
    labels: Labels,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    num_classes: int | None = None,
    metrics: Metrics = "core",
    passes: int | None = None,
    global_mean: GlobalMean = "samples",
    present_only: bool = False,
    min_samples: int = 1,
    ignore_label: int | None = IGNORED,
    out_of_distribution: Array | None = None,
    memory_limit: int = MEMORY_LIMIT,
    precision: torch.dtype | None = None,
    intervals: float | None = None,
    groups: int = 20,
    decision_rows: int | None = None,
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
    source = as_rows("features", features)
    targets = as_labels(labels, source.rows)
    settings = Settings(
        metrics,
        passes,
        global_mean,
        ignore_label,
        memory_limit,
        Selection(present_only, min_samples),
        intervals,
        groups,
        precision,
        decision_rows,
    )
    other = None if out_of_distribution is None else out_of_distribution_mean(out_of_distribution, source.dim)
    return report_on(source, targets, weight, bias, settings, num_classes, other)


def report_on(
    source: FeatureRows,
    targets: Tensor,
    weight: object,
    bias: object,
    settings: Settings,
    num_classes: int | None = None,
    other: Tensor | None = None,
) -> CollapseReport:
    """:func:`measure` of rows that can be read again, with an integer label each; ``other`` is a mean of other data."""
    limit, ignore_label, selection = settings.memory_limit, settings.ignore_label, settings.selection
    matrix, vector = as_classifier(weight, bias, None, source.dim)
    numbers, notes = None, ()
    if selection == Selection():
        classes = class_count(num_classes, targets, matrix, ignore_label)
    else:
        numbers, targets, kept, notes = _selected_classes(targets, matrix, num_classes, ignore_label, selection)
        classes = numbers.shape[0]
        if matrix is not None:
            matrix, vector = matrix[numbers], None if vector is None else vector[numbers]
        source, ignore_label = source.where(kept), None
    if matrix is not None and matrix.shape[0] != classes:
        raise ValueError(f"weight must have {classes} rows, one per class, got {matrix.shape[0]}")
    source, targets = select_rows(source, targets, classes, ignore_label)
    targets = targets.to(source.device)
    rounded = as_precision(settings.precision, source.dtype)

    double = source.dtype == torch.float64
    number, missing = settings.first_look(classes, source.dim, "cheap" if double else "free", torch.get_num_threads())
    exact = double or settings.passes == 1
    if exact and not has_float64(source.device):
        source, targets = source.on_cpu(), targets.to("cpu")
    if exact:
        statistics = one_pass(source, targets, classes, number, rounded)
    else:
        statistics = first_means(source, targets, classes, rounded)
    again = settings.again(classifier=matrix is not None, scatter=statistics.passes == 1) - {"ranks"}
    if not exact:
        again |= settings.needs & {"within", "projection", *({"scatter"} if number == 1 else ())}
    geometry = geometry_of(
        statistics, matrix, vector, SampleResults(), global_mean=settings.global_mean, classes=numbers, notes=notes
    )
    del statistics, matrix, vector
    faster = None
    if settings.passes is None and not exact and "projection" in again and "scatter" not in {*again, *missing}:
        faster = again - {"projection"} | {"scatter"} if scatter_pays(geometry) else None
    names = tuple(metric.name for metric in settings.chosen)
    task = Task(geometry, names, again, classes, None, missing, settings.decision_rows, faster)
    second = second_pass(source, targets, task)
    ranks = None
    if "ranks" in settings.needs:
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
    if settings.intervals is None:
        return report
    geometry = geometry.with_samples(SampleResults(), geometry.class_variances, other, missing)
    return with_intervals(report, source, targets, geometry, settings)


def _selected_classes(
    labels: Tensor, weight: Tensor | None, num_classes: int | None, ignore_label: int | None, selection: Selection
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


def scatter_pays(geometry: Geometry) -> bool:
    """Whether nc1 of features below float64 comes faster from the d x d scatter than from projections.

    Half of the scatter's products are enough, N d^2 / 2 against N d min(K-1, d). All singular values of the means must
    be of one size, so that float32 products of samples are exact enough (checked again once the scatter is there).
    """
    count, dim = geometry.num_classes, geometry.dim
    if 4 * (count - 1) < 3 * dim or geometry.total < 4 * dim or not bool((geometry.counts > 0).all()):
        return False
    values = geometry.full_spectrum.values if geometry.has_means else geometry.counts[:0]
    return values.shape[0] == min(count - 1, dim) == geometry.rank and bool(values[-1] > 0.03 * values[0])


def out_of_distribution_mean(features: object, dim: int) -> Tensor:
    """The float64 mean of out-of-distribution features (M, d)."""
    source: FeatureRows = as_rows("out_of_distribution", features)
    if source.dim != dim or source.rows == 0:
        raise ValueError(
            f"out_of_distribution must have shape (M, {dim}) with M >= 1, got ({source.rows}, {source.dim})"
        )
    total = torch.zeros(dim, dtype=torch.float64)
    step = max(1, (1 << 20) // dim)
    for start in range(0, source.rows, step):
        total += sum_in_float64(source.slice(start, min(start + step, source.rows))).to("cpu")
    if not bool(torch.isfinite(total).all()):
        raise ValueError(str(nonfinite_error(source, "out_of_distribution")))
    return total / source.rows


def class_means(
    features: Array, labels: Labels, num_classes: int | None = None, *, ignore_label: int | None = IGNORED
) -> Tensor:
    """The mean of each class, (K, d) in float64; every class needs at least one sample.

    >>> class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]))
    tensor([[2.],
            [5.]], dtype=torch.float64)
    """
    source = as_rows("features", features)
    targets = as_labels(labels, source.rows)
    classes = class_count(num_classes, targets, None, ignore_label)
    source, targets = select_rows(source, targets, classes, ignore_label)
    statistics = one_pass(source, targets, classes, 2, source.dtype)
    absent = (statistics.counts == 0).nonzero()
    if absent.shape[0]:
        raise ValueError(f"class {int(absent[0])} of {classes} has no samples, so it has no mean")
    return statistics.means


def nc5_ood(means: Array | ClassStatistics, out_of_distribution: Array) -> float:
    """Mean over classes of |cos(m_k, m_OOD)|, the NC5 of Ben Ammar et al. (2024): 0 when orthogonal.

    Args:
        means: class means (K, d), or the statistics of the in-distribution features.
        out_of_distribution: features (M, d) of other data.

    """
    if isinstance(means, ClassStatistics):
        if bool((means.counts == 0).any()):
            raise ValueError("every class needs samples for nc5_ood")
        matrix = means.means.to("cpu")
    else:
        source = as_rows("means", means)
        matrix = source.slice(0, source.rows).to("cpu").to(torch.float64)
        if matrix.shape[0] == 0 or not bool(torch.isfinite(matrix).all()):
            raise ValueError("means must be finite, with a row for each class")
    other = out_of_distribution_mean(out_of_distribution, matrix.shape[1])
    classes = matrix.shape[0]
    return nc5_of_geometry(
        Geometry(
            torch.ones(classes, dtype=torch.int64),
            matrix,
            torch.zeros(matrix.shape[1], dtype=torch.float64),
            torch.zeros(classes, dtype=torch.float64),
            None,
            None,
            None,
            SampleResults(),
            other,
        )
    )
