"""What the losses studies share: four losses, nets of some width trained for some epochs, and the best epoch."""

from typing import Any

import numpy as np

from ...training import Plan, Run
from .._cells import Train
from .._plans import desk_plan, smoke_plan
from .._results import Results
from .._study import Profile

__all__ = [
    "DATA",
    "EPOCHS",
    "LOSSES",
    "SEEDS",
    "SHORT",
    "WIDTHS",
    "best_accuracy",
    "best_epoch",
    "loss_means",
    "net",
    "spread",
]

LOSSES = ("cross-entropy", "focal:gamma=3", "label-smoothing:alpha=0.1", "squared-error:target=15")
SHORT: dict[Any, str] = dict(zip(LOSSES, ("CE", "FL", "LS", "MSE"), strict=True))

DATA: dict[Profile, tuple[str, ...]] = {
    "smoke": ("digits",),
    "desk": ("mnist:size=14",),
    "paper": ("cifar10", "cifar100"),
}
WIDTHS: dict[Profile, tuple[float, ...]] = {"smoke": (8, 32), "desk": (16, 64, 256), "paper": (0.25, 0.5, 1, 2)}
EPOCHS: dict[Profile, tuple[int, ...]] = {"smoke": (2, 4), "desk": (12, 50, 200), "paper": (100, 200, 400, 800)}
SEEDS: dict[Profile, tuple[int, ...]] = {"smoke": (0,), "desk": (0, 1), "paper": (0, 1, 2)}

RATE, DECAY, CLIP = 0.1, 5e-4, 2.0
DESK_DECAY = 5e-3


def net(profile: Profile, data: str, width: float, epochs: int, loss: str, seed: int) -> Train:
    """One net: SGD at rate .1, tenths of it at 3/7 and 5/7 of the epochs, gradients clipped at norm 2, 10 % held out.

    Equal arguments are one cell, whichever study asks.
    """
    changes: dict[str, Any] = {"data": data, "epochs": epochs, "loss": loss, "seed": seed, "validation": 0.1}
    if profile == "smoke":
        size = {"model": f"mlp:width={width:g},depth=2", "per_class": 20}
        return Train(smoke_plan(**changes, **size, **optimisation(loss, DECAY)))
    if profile == "desk":
        size = {"model": f"mlp:width={width:g},depth=4", "batch_size": 100, "test_per_class": 500}
        return Train(desk_plan(**changes, **size, **optimisation(loss, DESK_DECAY), measure=measured(epochs)))
    net = "wide-resnet18" if data == "mini-imagenet" else "wide-resnet50"
    size = {"model": f"{net}:width={width:g}", "batch_size": 100, "augment": True, "measure": "every"}
    return Train(Plan(**changes, **size, **optimisation(loss, DECAY), metrics=("nc1", "nc2", "nc3")))


def optimisation(loss: str, decay: float) -> dict[str, float]:
    """Rate, decay and clipping for a loss.

    The paper's squared error, eq. (6), is twice ours. Twice the rate with half the decay and half the clipping norm
    takes exactly the steps that it would.
    """
    factor = 2.0 if loss.startswith("squared-error") else 1.0
    return {"learning_rate": RATE * factor, "weight_decay": decay / factor, "clip_gradient": CLIP / factor}


def measured(epochs: int) -> tuple[int, ...]:
    """About ten epochs, evenly spaced, among which the best is chosen, and the first few."""
    return tuple(
        sorted({1, 2, *range(max(1, epochs // 10), epochs + 1, max(1, epochs // 10))} & set(range(epochs + 1)))
    )


def best_epoch(run: Run) -> int:
    """The measured epoch with the best validation accuracy, the last of equals: small validation sets have many."""
    rows = [row for row in run.history if row["split"] == "validation"]
    return max(rows, key=lambda row: (row["accuracy"], row["epoch"]))["epoch"]


def best_accuracy(run: Run) -> float:
    """Test accuracy at the best validation epoch."""
    epoch = best_epoch(run)
    return next(row["accuracy"] for row in run.history if row["split"] == "test" and row["epoch"] == epoch)


def loss_means(results: Results) -> dict[str, float]:
    """Best test accuracy of each loss, mean over the seeds."""
    return {loss: float(np.mean([best_accuracy(e.value) for e in results.where(loss=loss)])) for loss in LOSSES}


def spread(results: Results) -> float:
    """Largest minus smallest of the losses' test accuracies, in percentage points."""
    means = loss_means(results).values()
    return 100 * (max(means) - min(means))
