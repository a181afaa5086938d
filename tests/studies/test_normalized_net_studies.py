"""The normalized paper's net studies: their checks on made-up runs, the least losses, and the paper's settings."""

import json
from pathlib import Path

import pytest
import torch

from neuralcollapse import losses, studies
from neuralcollapse.studies import Result, Results
from neuralcollapse.studies.normalized._nets import least_loss, least_loss_of_relu
from neuralcollapse.training import Run


def made_up(folder: Path, accuracies: list[float], nc1: float, **values: float) -> Run:
    """A run with these accuracies, one an epoch, and the same metrics at all; training and test set alike."""
    folder.mkdir(parents=True)
    rows = [
        {"epoch": epoch, "split": split, "accuracy": accuracy, "loss": 1.0, "nc1": nc1, **values}
        for epoch, accuracy in enumerate(accuracies, 1)
        for split in ("train", "test")
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Run(folder)


@pytest.mark.parametrize("temperature", [0.5, 5.0])
@pytest.mark.parametrize("relu", [False, True])
def test_least_losses_by_descent(temperature: float, relu: bool) -> None:
    """Descent over unit rows, with or without negative features, ends at the closed forms and not below."""
    count, loss = 5, losses.CrossEntropy()
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(count, 8, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2)]
    labels = torch.arange(count)
    optimizer = torch.optim.Adam(rows, lr=0.03)
    for _ in range(1500):
        features = torch.nn.functional.normalize(rows[0].square() if relu else rows[0])
        value = loss(temperature * features @ torch.nn.functional.normalize(rows[1]).T, labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    least = (least_loss_of_relu if relu else least_loss)(count, temperature)
    assert value.item() >= least * (1 - 1e-9)
    assert value.item() == pytest.approx(least, rel=0.02)


@pytest.mark.parametrize(
    ("slow", "nc1", "outcome"),
    [
        ([0.5, 0.6, 1.0], 0.5, "holds"),
        ([0.5, 0.6, 0.7], 0.5, "holds"),  # the regularised net never fits
        ([0.5, 1.0, 1.0], 0.5, "does not hold"),  # as fast
        ([0.5, 0.6, 1.0], 0.05, "does not hold"),  # collapses more
    ],
)
def test_overparameterization(tmp_path: Path, slow: list[float], nc1: float, outcome: str) -> None:
    fast = made_up(tmp_path / "normalized", [0.5, 1.0, 1.0], 0.1)
    other = made_up(tmp_path / "regularized", slow, nc1)
    runs = {"normalized": fast, "regularized": other}
    entries = [Result({"labels": "true", "net": "resnet18", "model": model}, run) for model, run in runs.items()]
    check = studies.get("normalized/overparameterization").check
    assert check(Results("desk", tuple(entries))).outcome == outcome
    runs = {"normalized": made_up(tmp_path / "slower", [0.5, 0.6, 0.7], 0.1), "regularized": fast}
    entries = [Result({"labels": "true", "net": "resnet18", "model": model}, run) for model, run in runs.items()]
    verdict = check(Results("desk", tuple(entries)))  # only the normalised net never fits: infinitely later
    assert (verdict.outcome, verdict.figure) == ("does not hold", None)


@pytest.mark.parametrize(
    ("accuracy", "nc1", "outcome"), [(0.6, 3.0, "holds"), (0.5, 3.0, "does not hold"), (0.6, 4.0, "does not hold")]
)
def test_generalization(tmp_path: Path, accuracy: float, nc1: float, outcome: str) -> None:
    runs = {"normalized": (accuracy, nc1), "regularized": (0.55, 3.5)}
    entries = [
        Result({"net": "resnet18", "model": model}, made_up(tmp_path / model, [value], variability))
        for model, (value, variability) in runs.items()
    ]
    assert studies.get("normalized/generalization").check(Results("desk", tuple(entries))).outcome == outcome


@pytest.mark.parametrize(
    ("fitted", "best", "outcome"),
    [
        ({0.1, 1.0, 5.0, 10.0}, 5.0, "holds"),
        ({0.1, 1.0, 5.0, 10.0}, 0.1, "does not hold"),
        ({1.0, 5.0, 10.0}, 5.0, "does not hold"),
        ({0.1, 1.0, 5.0, 10.0, 100.0}, 5.0, "does not hold"),
    ],
)
def test_temperature(tmp_path: Path, fitted: set[float], best: float, outcome: str) -> None:
    entries = []
    for temperature in (0.01, 0.1, 1.0, 5.0, 10.0, 100.0):
        size = 0.01 if temperature == best else 0.1
        run = made_up(tmp_path / str(temperature), [1.0 if temperature in fitted else 0.8], size, nc2=size, nc3=size)
        entries.append(Result({"temperature": temperature}, run))
    assert studies.get("normalized/temperature-net").check(Results("desk", tuple(entries))).outcome == outcome


def test_paper_plans() -> None:
    plans = {
        name: [entry.cell.plan for entry in studies.get(f"normalized/{name}").planned("paper")]
        for name in ("overparameterization", "generalization", "temperature-net")
    }
    assert {name: len(found) for name, found in plans.items()} == {
        "overparameterization": 9,
        "generalization": 4,
        "temperature-net": 8,
    }
    for plan in (plan for found in plans.values() for plan in found):
        assert (plan.learning_rate, plan.batch_size, plan.schedule, plan.augment) == (0.05, 128, "step:every=40", False)
        if plan.head == "linear:bias=False":
            samples = 50_000 if plan.per_class is None else plan.per_class * (100 if plan.data == "cifar100" else 10)
            assert (plan.decay_on, plan.weight_decay) == ("features", 1e-4)
            assert plan.feature_decay * samples / plan.batch_size == pytest.approx(1e-4)
        else:
            assert plan.head.startswith("normalized:temperature=")
    assert {(plan.data, plan.per_class, plan.epochs) for plan in plans["temperature-net"]} == {("cifar10", 100, 200)}
    assert {(plan.data, plan.per_class, plan.epochs) for plan in plans["generalization"]} == {("cifar100", None, 100)}
