"""The normalized paper's net studies: each claim on runs in which it is true or false; its settings."""

from pathlib import Path

import pytest
import torch

from made_up import run, verdicts
from neuralcollapse import losses, studies
from neuralcollapse.studies import Result, Results
from neuralcollapse.studies.normalized._nets import least_loss, least_loss_of_relu

SEEDS = (10, 11, 12)


def made(folder: Path, entries) -> Results:
    """Results from (labels, columns of the training set, columns of the test set)."""
    found = [
        Result(labels, run(folder / str(place), {"train": train, "test": test}))
        for place, (labels, train, test) in enumerate(entries)
    ]
    return Results("desk", tuple(found))


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


# overparameterization ------------------------------------------------------------------------------------------------


def overparameterization(folder: Path, normalised, regularised, nc1=(0.1, 0.5)):
    """Verdicts when the two models have these training accuracies over the epochs, and NC1 at the end."""
    entries = []
    for net in ("resnet8", "resnet18"):
        for model, accuracies, value in (("normalized", normalised, nc1[0]), ("regularized", regularised, nc1[1])):
            for seed in SEEDS:
                columns = {"accuracy": accuracies, "nc1": [value * (1 + seed / 1000)] * len(accuracies)}
                entries.append(({"net": net, "model": model, "seed": seed}, columns, columns))
    return verdicts(studies.get("normalized/overparameterization"), made(folder, entries))


FAST, SLOW, NEVER = [0.5, 1.0, 1.0, 1.0], [0.4, 0.6, 0.8, 1.0], [0.4, 0.6, 0.7, 0.7]


def test_overparameterization(tmp_path: Path) -> None:
    assert set(overparameterization(tmp_path / "0", FAST, SLOW).values()) == {"holds"}
    found = overparameterization(tmp_path / "1", SLOW, FAST, (0.5, 0.1))
    assert set(found.values()) == {"contradicted"}
    found = overparameterization(tmp_path / "2", FAST, NEVER, (0.5, 0.1))
    assert (found["faster"], found["nc1"]) == ("holds", "underpowered")  # a net that does not fit decides no NC1
    assert overparameterization(tmp_path / "3", NEVER, FAST)["faster"] == "contradicted"  # infinitely later
    assert overparameterization(tmp_path / "4", NEVER, NEVER)["faster"] == "underpowered"  # neither fits


# random-labels ------------------------------------------------------------------------------------------------------


def random_labels(folder: Path, accuracies, nc1):
    """Verdicts for nets of width 2, 4, 8 with these training accuracies and NC1."""
    entries = []
    for width, accuracy, value in zip((2, 4, 8), accuracies, nc1, strict=True):
        for seed in SEEDS:
            columns = {"accuracy": [accuracy], "nc1": [value]}
            entries.append(({"width": width, "seed": seed}, columns, columns))
    return verdicts(studies.get("normalized/random-labels"), made(folder, entries))


def test_random_labels(tmp_path: Path) -> None:
    assert set(random_labels(tmp_path / "0", (0.5, 0.9, 1.0), (3.0, 1.0, 0.1)).values()) == {"holds"}
    found = random_labels(tmp_path / "1", (1.0, 0.999, 0.995), (0.1, 1.0, 3.0))
    assert found == {"fits": "holds", "error": "contradicted", "nc1": "contradicted", "together": "holds"}
    found = random_labels(tmp_path / "2", (0.9, 0.5, 0.3), (0.1, 1.0, 3.0))
    assert found.pop("together") == "holds"
    assert found == {"fits": "contradicted", "error": "underpowered", "nc1": "underpowered"}
    assert random_labels(tmp_path / "3", (0.5, 0.9, 1.0), (0.1, 1.0, 3.0))["together"] == "contradicted"


# generalization -----------------------------------------------------------------------------------------------------


def generalization(folder: Path, accuracies, nc1, fitted=1.0):
    """Verdicts for (smaller net normalised, regularised, larger net normalised, regularised)."""
    cells = [(net, model) for net in ("resnet8", "resnet18") for model in ("normalized", "regularized")]
    entries = []
    for (net, model), accuracy, value in zip(cells, accuracies, nc1, strict=True):
        for seed in SEEDS:
            test = {"accuracy": [accuracy + seed / 1e5], "nc1": [value]}
            train = {"accuracy": [fitted], "nc1": [0.1]}
            entries.append(({"net": net, "model": model, "seed": seed}, train, test))
    return verdicts(studies.get("normalized/generalization"), made(folder, entries))


PAPER = ((0.586, 0.553, 0.564, 0.489), (3.143, 3.838, 3.127, 4.486))


def test_generalization(tmp_path: Path) -> None:
    assert set(generalization(tmp_path / "0", *PAPER).values()) == {"holds"}
    assert generalization(tmp_path / "1", (0.586, 0.553, 0.44, 0.489), PAPER[1])["accuracy"] == "contradicted"
    assert generalization(tmp_path / "2", (0.586, 0.553, 0.44, 0.489), PAPER[1])["drop"] == "contradicted"
    assert generalization(tmp_path / "3", PAPER[0], (3.143, 3.838, 4.6, 4.486))["nc1"] == "contradicted"
    assert generalization(tmp_path / "4", PAPER[0], (4.5, 3.1, 3.8, 3.0))["coupled"] == "contradicted"
    wrong = ((0.553, 0.586, 0.489, 0.564), (3.838, 3.143, 4.486, 3.127))
    assert "contradicted" not in generalization(tmp_path / "5", *wrong, fitted=0.9).values()
    low = tuple(value / 5 for value in wrong[0])
    assert "contradicted" not in generalization(tmp_path / "6", low, wrong[1]).values()


# temperature-net ----------------------------------------------------------------------------------------------------


def temperature(folder: Path, never=(0.001, 0.01, 100.0), best=5.0, fast=5.0, metric=None, narrow=0.6):
    """Verdicts when some temperatures never fit, one fits first, and one has the smallest (or one metric so).

    ``narrow`` is what nets of half the width reach at tau = 1.
    """
    entries = []
    for tau in (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 100.0):
        for seed in SEEDS:
            accuracies = [0.3, 0.5, 0.6] if tau in never else [0.5, 1.0 if tau == fast else 0.9, 1.0]
            columns = {"accuracy": accuracies}
            for name in ("nc1", "nc2", "nc3"):
                here = best if metric in (None, name) else 5.0
                columns[name] = [1.0, 0.5, 0.01 if tau == here else 0.1]
            entries.append(({"temperature": tau, "seed": seed}, columns, columns))
            if tau == 1.0:
                columns = {**columns, "accuracy": [0.3, 0.5, narrow]}
                entries.append(({"temperature": tau, "seed": seed, "width": 16}, columns, columns))
    return verdicts(studies.get("normalized/temperature-net"), made(folder, entries))


def test_temperature(tmp_path: Path) -> None:
    assert set(temperature(tmp_path / "0").values()) == {"holds"}
    assert set(temperature(tmp_path / "1", never=(0.001, 0.01, 0.1, 100.0)).values()) == {"holds"}
    assert temperature(tmp_path / "2", never=(0.001, 0.01, 1.0, 100.0))["inside"] == "contradicted"
    assert temperature(tmp_path / "6", never=(0.001, 0.01, 1.0, 100.0), narrow=0.4)["inside"] == "underpowered"
    assert temperature(tmp_path / "3", never=(0.001, 0.01))["outside"] == "contradicted"
    assert temperature(tmp_path / "4", fast=0.1)["fastest"] == "contradicted"
    for name in ("nc1", "nc2", "nc3"):
        found = temperature(tmp_path / name, best=0.5, metric=name)
        assert {part for part, verdict in found.items() if verdict == "contradicted"} == {name}
    found = temperature(tmp_path / "5", never=(0.001, 0.01, 5.0), best=0.1)
    assert (found["outside"], found["nc1"]) == ("underpowered", "underpowered")  # tau = 5 does not train


# the paper's settings -----------------------------------------------------------------------------------------------


def test_paper_plans() -> None:
    plans = {
        name: [(entry.labels, entry.cell.plan) for entry in studies.get(f"normalized/{name}").planned("paper")]
        for name in ("overparameterization", "generalization", "temperature-net", "random-labels")
    }
    assert {name: len(found) for name, found in plans.items()} == {
        "overparameterization": 2 * 2 * 2 * 3,
        "generalization": 2 * 2 * 2 * 3,
        "temperature-net": 8 * 2 * 3,
        "random-labels": 5 * 3,
    }
    for name, found in plans.items():
        for labels, plan in found:
            assert (plan.learning_rate, plan.batch_size, plan.schedule) == (0.05, 128, "step:every=40")
            assert (plan.augment, plan.init) == (False, "torch")
            code = labels.get("variant") == "released code"
            if labels.get("model") == "regularized":
                assert plan.head == ("linear:unit_rows=True" if code else "linear:bias=False")
                decay = (plan.decay_on, plan.weight_decay, plan.feature_decay, plan.feature_decay_over)
                assert decay == ("features", 1e-4, 1e-4, "batch")
            else:
                assert plan.head.startswith("normalized:temperature=")
                assert plan.head.endswith("bias=True") == code
            # The released loader shuffles subsets only.
            assert plan.shuffle == (not code or name == "overparameterization")
    text = [plan for labels, plan in plans["temperature-net"] if labels["variant"] == "text"]
    assert {(plan.data, plan.per_class, plan.epochs) for plan in text} == {("cifar10", 100, 200)}
    whole = [plan for labels, plan in plans["temperature-net"] if labels["variant"] != "text"]
    assert {(plan.data, plan.per_class, plan.epochs) for plan in whole} == {("cifar10", None, 200)}
    assert {(plan.data, plan.per_class, plan.epochs) for _, plan in plans["generalization"]} == {
        ("cifar100", None, 100)
    }
    assert {(plan.data, plan.per_class) for _, plan in plans["overparameterization"]} == {("cifar100", 30)}
    random = plans["random-labels"]
    assert {(plan.data, plan.per_class, plan.random_labels) for _, plan in random} == {("cifar10", 200, True)}
    assert [labels["width"] for labels, _ in random[::3]] == [4, 8, 16, 32, 64]


def test_desk_seeds_are_not_those_of_pilots() -> None:
    for name in ("overparameterization", "generalization", "temperature-net", "random-labels", "speed", "value"):
        assert min(e.labels["seed"] for e in studies.get(f"normalized/{name}").planned("desk")) >= 10
