"""For a training loop written by hand: measure and log in one call."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from ..metrics import CollapseReport, measure_model
from .loggers import Logger, write_all

__all__ = ["record_collapse"]


def record_collapse(
    model: nn.Module,
    loader: Iterable[Any],
    step: int,
    loggers: Sequence[Logger] = (),
    *,
    split: str = "train",
    extra: Mapping[str, float] | None = None,
    **options: Any,
) -> CollapseReport:
    """Measure ``model`` on ``loader`` and write the report to the loggers; the model is left as it was.

    Args:
        model: any module.
        loader: as for :func:`neuralcollapse.measure_model`.
        step: the epoch, or whatever the caller counts.
        loggers: where to write.
        split: the name of the data, such as ``"train"``.
        extra: further values for the same row, such as loss and accuracy.
        options: further arguments of :func:`neuralcollapse.measure_model`.

    Example::

        log = JSONLinesLogger("metrics.jsonl")
        for epoch in range(epochs):
            train(model)
            record_collapse(model, loader, epoch, [log], metrics=["nc1", "nc2", "nc3"])

    """
    report = measure_model(model, loader, **options)
    write_all(tuple(loggers), step, report, split, extra or {})
    return report
