"""Figures 2 and 6 of the losses paper: training, validation and test accuracy under four losses."""

from collections.abc import Iterator
from typing import Any

from .._pictures import figure, legend_below, series
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._nets import LOSSES, SHORT, best_accuracy, best_epoch, loss_means, spread
from .collapse import Collapse, largest_nets

FITTED, APART = 0.999, 1.0


@studies.add("losses/accuracy")
class Accuracy(Study):
    """Accuracies over the epochs, on the cells of losses/collapse."""

    figures = ("2", "6")
    question = "Do CE, FL, LS and MSE reach the same accuracy once all have collapsed?"
    claim = (
        "With every loss the training accuracy ends at 99.9 % or more, and the losses' test accuracies at the best "
        "validation epoch (means over the seeds) lie within 1 percentage point."
    )
    costs = Collapse.costs
    setting = Collapse.setting

    def cells(self, profile: Profile) -> Iterator[Planned]:
        return largest_nets(profile)

    def check(self, results: Results) -> Verdict:
        sets = [(data, results.where(data=data)) for data in results.labels("data")]
        apart = max(spread(found) for _, found in sets)
        fitted = min(found.where(loss=loss).final("accuracy").mean() for _, found in sets for loss in LOSSES)
        words = "; ".join(
            f"{data.partition(':')[0]}: "
            + ", ".join(f"{SHORT[loss]} {100 * value:.2f} %" for loss, value in loss_means(found).items())
            for data, found in sets
        )
        return Verdict.of(
            fitted >= FITTED and apart <= APART,
            apart,
            "spread of the four test accuracies, in percentage points",
            f"Test accuracy: {words}; training accuracy at least {100 * fitted:.2f} %.",
        )

    def draw(self, results: Results) -> Any:
        sets = results.labels("data")
        picture, axes = figure(len(sets), 3, size=(2.2, 1.9), sharex="row")
        for row, data in zip(axes, sets, strict=True):
            for axis, split in zip(row, ("train", "validation", "test"), strict=True):
                series(axis, results.where(data=data), "accuracy", "loss", split=split, log=False, labels=SHORT)
                axis.set_title(f"{split} accuracy")
            row[0].set_ylabel(data.partition(":")[0])
        for axis in axes[-1]:
            axis.set_xlabel("epoch")
        legend_below(picture, axes[0, 0])
        return picture

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [{**entry.labels, **accuracies(entry.value)} for entry in results]


def accuracies(run: Any) -> dict[str, float]:
    """Where a run ended, and its test accuracy at the best validation epoch."""
    return {
        "train_accuracy": run.final("train")["accuracy"],
        "validation_accuracy": run.final("validation")["accuracy"],
        "test_accuracy": run.final("test")["accuracy"],
        "best_epoch": best_epoch(run),
        "test_accuracy_at_best": best_accuracy(run),
    }
