"""The losses studies: what their checks decide on made-up runs, and the paper's settings."""

import json
from pathlib import Path

import pytest

from neuralcollapse import studies
from neuralcollapse.studies import Result, Results
from neuralcollapse.studies.losses._nets import LOSSES, best_accuracy
from neuralcollapse.training import Run


def made_up(folder: Path, **values: list[float]) -> Run:
    """A run with these values, one an epoch; ``validation`` and ``test`` are accuracies, the others of training."""
    folder.mkdir(parents=True)
    rows = []
    for epoch in range(len(next(iter(values.values())))):
        at = {name: column[epoch] for name, column in values.items()}
        splits = {"validation": {"accuracy": at.pop("validation", 0.9)}, "test": {"accuracy": at.pop("test", 0.9)}}
        rows += [{"epoch": epoch + 1, "split": name, **row} for name, row in {"train": at, **splits}.items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Run(folder)


def test_the_best_epoch_is_the_last_of_equals(tmp_path: Path) -> None:
    run = made_up(tmp_path / "run", validation=[0.8, 0.9, 0.9, 0.7], test=[0.1, 0.2, 0.3, 0.4])
    assert best_accuracy(run) == 0.3


@pytest.mark.parametrize(
    ("nc1", "nc2", "outcome"),
    [
        ([1.0, 0.01], [0.8, 0.2], "holds"),
        ([0.05, 0.04], [0.8, 0.2], "does not hold"),  # has not fallen tenfold
        ([1.0, 0.06], [0.8, 0.2], "does not hold"),  # ends too high
        ([1.0, 0.01], [0.1, 0.2], "does not hold"),  # NC2 has risen
    ],
)
def test_collapse_needs_every_loss(tmp_path: Path, nc1: list[float], nc2: list[float], outcome: str) -> None:
    good = {"nc1": [1.0, 0.01], "nc2": [0.8, 0.2], "nc3": [0.8, 0.2]}
    entries = [
        Result(
            {"data": "mnist", "loss": loss, "seed": 0},
            made_up(tmp_path / str(place), **({**good, "nc1": nc1, "nc2": nc2} if place == 2 else good)),
        )
        for place, loss in enumerate(LOSSES)
    ]
    assert studies.get("losses/collapse").check(Results("desk", tuple(entries))).outcome == outcome


@pytest.mark.parametrize(
    ("fitted", "test", "outcome"),
    [(1.0, 0.975, "holds"), (1.0, 0.96, "does not hold"), (0.99, 0.98, "does not hold")],
)
def test_accuracy_wants_fit_and_agreement(tmp_path: Path, fitted: float, test: float, outcome: str) -> None:
    entries = [
        Result(
            {"data": "mnist", "loss": loss, "seed": 0},
            made_up(tmp_path / str(place), accuracy=[fitted], test=[test if place == 3 else 0.98]),
        )
        for place, loss in enumerate(LOSSES)
    ]
    verdict = studies.get("losses/accuracy").check(Results("desk", tuple(entries)))
    assert verdict.outcome == outcome
    assert verdict.figure == pytest.approx(100 * (0.98 - test))


@pytest.mark.parametrize(
    ("small", "large", "nc1", "outcome"),
    [
        (0.90, 0.975, 0.01, "holds"),
        (0.95, 0.93, 0.01, "does not hold"),  # the spread grows
        (0.90, 0.975, 0.2, "does not hold"),  # NC1 falls five-fold
    ],
)
def test_the_spread_shrinks(tmp_path: Path, small: float, large: float, nc1: float, outcome: str) -> None:
    sizes = {"small": (small, 1.0, 4, 8), "large": (large, nc1, 16, 60)}
    grids: dict[str, list[Result]] = {"losses/width-epochs": [], "losses/mini-imagenet": []}
    for size, (test, end, width, epochs) in sizes.items():
        for place, loss in enumerate(LOSSES):
            run = made_up(tmp_path / size / str(place), nc1=[end], test=[test if place == 1 else 0.98])
            labels = {"data": "mnist", "width": width, "epochs": epochs, "loss": loss, "seed": 0}
            grids["losses/width-epochs"].append(Result(labels, run))
            grids["losses/mini-imagenet"].append(Result({"size": size, "loss": loss, "seed": 0}, run))
    for name, entries in grids.items():
        assert studies.get(name).check(Results("desk", tuple(entries))).outcome == outcome


@pytest.mark.parametrize(
    ("name", "count"),
    [("losses/collapse", 24), ("losses/accuracy", 24), ("losses/width-epochs", 384), ("losses/mini-imagenet", 24)],
)
def test_paper_plans(name: str, count: int) -> None:
    planned = studies.get(name).planned("paper")
    assert len(planned) == count
    for entry in planned:
        plan = entry.cell.plan
        twice = 2 if plan.loss.startswith("squared-error") else 1  # our squared error is half the paper's
        assert (plan.learning_rate / twice, plan.weight_decay * twice, plan.clip_gradient * twice) == (0.1, 5e-4, 2)
        assert (plan.batch_size, plan.augment, plan.schedule) == (100, True, "milestones")
        net = "wide-resnet18" if name.endswith("imagenet") else "wide-resnet50"
        assert plan.model.startswith(f"{net}:width=")


@pytest.mark.parametrize("profile", ["smoke", "desk", "paper"])
def test_the_largest_nets_are_shared(profile: str) -> None:
    keys = {
        name: {entry.cell.key for entry in studies.get(f"losses/{name}").planned(profile)}
        for name in ("collapse", "accuracy", "width-epochs")
    }
    assert keys["collapse"] == keys["accuracy"]
    assert keys["collapse"] < keys["width-epochs"]
