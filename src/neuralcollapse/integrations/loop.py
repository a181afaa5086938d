"""For a training loop written by hand: measure and log in one call."""

import logging
from collections.abc import Sequence
from typing import Any

from torch import nn

from .._support.checks import describe
from ..metrics import CollapseReport, measure_model
from ..metrics.hooks.batches import Batches
from ..metrics.inputs import NonFiniteError
from ..metrics.settings import Settings
from .loggers import Extra, Logger, write_all

__all__ = ["record_collapse"]

log = logging.getLogger("neuralcollapse")


def record_collapse(
    model: nn.Module,
    loader: Batches,
    step: float,
    loggers: Sequence[Logger] = (),
    *,
    split: str = "train",
    extra: Extra | None = None,
    **options: Any,
) -> CollapseReport:
    """Measure ``model`` on ``loader`` and write the report to the loggers; the model is left as it was.

    A diverged model does not end the loop: nothing is written, and the report, on no samples, has no values but the
    reason.

    Args:
        model: any module.
        loader: as for :func:`neuralcollapse.measure_model`.
        step: the epoch, or whatever the caller counts.
        loggers: where to write.
        split: the name of the data, such as ``"train"``.
        extra: further values for the same row, such as loss and accuracy; one that is not finite is left empty.
        options: further arguments of :func:`neuralcollapse.measure_model`.

    Example::

        log = JSONLinesLogger("metrics.jsonl")
        for epoch in range(epochs):
            train(model)
            record_collapse(model, loader, epoch, [log], metrics=["nc1", "nc2", "nc3"])

    """
    for logger in loggers:
        if not callable(getattr(logger, "write", None)):
            raise TypeError(f"loggers must have a method write, got {describe(logger)}")
    try:
        report = measure_model(model, loader, **options)
    except NonFiniteError as error:
        if error.sizes is None:
            raise
        log.warning("neural collapse was not measured at %g: %s", step, error)
        names = [metric.name for metric in Settings(options.get("metrics")).chosen]
        return CollapseReport(dict.fromkeys(names), dict.fromkeys(names, str(error)), *error.sizes, 0, (str(error),))
    write_all(tuple(loggers), step, report, split, extra or {})
    return report
