"""Small public helpers on class means."""

from typing import Any

import torch
from torch import Tensor

from .accumulators.passes import one_pass
from .accumulators.statistics import ClassStatistics
from .definitions._geometry import Geometry, SampleResults
from .definitions.nc5_ood import nc5_ood as _nc5_ood
from .inputs import IGNORED, as_labels, as_source, class_count, select_rows
from .measure import mean_of

__all__ = ["class_means", "nc5_ood"]


def class_means(features: Any, labels: Any, num_classes: Any = None, *, ignore_label: int | None = IGNORED) -> Tensor:
    """The mean of each class, (K, d) in float64; every class needs at least one sample.

    >>> class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]))
    tensor([[2.],
            [5.]], dtype=torch.float64)
    """
    source = as_source("features", features)
    targets = as_labels(labels, source.rows)
    classes = class_count(num_classes, targets, None, ignore_label)
    source, targets = select_rows(source, targets, classes, ignore_label)
    statistics = one_pass(source, targets, classes, 2, source.dtype)
    absent = (statistics.counts == 0).nonzero()
    if absent.shape[0]:
        raise ValueError(f"class {int(absent[0])} of {classes} has no samples, so it has no mean")
    return statistics.means


def nc5_ood(means: Any, out_of_distribution: Any) -> float:
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
        source = as_source("means", means)
        matrix = source.slice(0, source.rows).to(torch.float64)
        if matrix.shape[0] == 0 or not bool(torch.isfinite(matrix).all()):
            raise ValueError("means must be finite, with a row for each class")
    other = mean_of(out_of_distribution, matrix.shape[1])
    classes = matrix.shape[0]
    return _nc5_ood(
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
