"""The losses paper's net studies: each claim on runs in which it is true, and in which it is false; its settings."""

from pathlib import Path

import numpy as np
import pytest

from made_up import run, verdicts
from neuralcollapse import studies
from neuralcollapse.studies import Result, Results
from neuralcollapse.studies.losses._nets import CE, FL, LOSSES, LS, MSE, best_accuracy, last_tenth, spread_ratio
from neuralcollapse.studies.losses.features import gram_distance, procrustes_residual

SEEDS = (10, 11, 12)


def made(folder: Path, entries) -> Results:
    """Results from (labels, columns of the training set, of the validation set, of the test set, kept arrays)."""
    found = []
    for place, (labels, train, validation, test, *kept) in enumerate(entries):
        splits = {"train": train, "validation": validation, "test": test}
        found.append(Result(labels, run(folder / str(place), splits, None, *kept)))
    return Results("desk", tuple(found))


def test_the_best_epoch_is_the_last_of_equals(tmp_path: Path) -> None:
    accuracies = {"validation": {"accuracy": [0.8, 0.9, 0.9, 0.7]}, "test": {"accuracy": [0.1, 0.2, 0.3, 0.4]}}
    assert best_accuracy(run(tmp_path / "run", accuracies)) == 0.3


# collapse -----------------------------------------------------------------------------------------------------------

GOOD = {"accuracy": [0.5, 1.0, 1.0], "nc1": [1.0, 0.02, 0.01], "nc2": [0.8, 0.3, 0.2], "nc3": [0.8, 0.3, 0.2]}
FLAT = {"accuracy": [0.5, 0.9, 0.9]}


def collapse(folder: Path, changes=None, data=None):
    """Verdicts on nets that collapse as in the paper, but for ``changes`` by loss (on one data set)."""
    entries = []
    for name in ("mnist", "cifar100"):
        for loss in LOSSES:
            for seed in SEEDS:
                train = dict(GOOD)
                if name == "cifar100" and loss == FL:
                    train["nc1"] = [1.0, 0.4, 0.3 + seed / 1000]
                if data in (None, name):
                    train |= (changes or {}).get(loss, {})
                entries.append(({"data": name, "loss": loss, "seed": seed}, train, FLAT, FLAT))
    return verdicts(studies.get("losses/collapse"), made(folder, entries))


def test_collapse_as_in_the_paper(tmp_path: Path) -> None:
    assert set(collapse(tmp_path).values()) == {"holds"}


@pytest.mark.parametrize(
    ("changes", "data", "part"),
    [
        ({LS: {"nc1": [1.0, 0.1, 0.06]}}, "mnist", "nc1-small"),
        ({LS: {"nc2": [0.8, 0.6, 0.5]}}, "mnist", "nc2-small"),
        ({LS: {"nc3": [0.8, 0.6, 0.5]}}, "mnist", "nc3-small"),
        ({CE: {"nc2": [0.1, 0.15, 0.2]}}, "mnist", "falls"),
        ({loss: {"nc1": [1.0, 0.405, 0.4]} for loss in (LS, MSE)}, "cifar100", "hundred-classes"),
        ({CE: {"nc1": [1.0, 0.01, 0.011]}}, "cifar100", "still-falling"),
        ({CE: {"nc1": [1.0, 0.6, 0.5]}}, "cifar100", "focal-slowest"),
    ],
)
def test_collapse_otherwise(tmp_path: Path, changes, data: str, part: str) -> None:
    assert collapse(tmp_path / "fitted", changes, data)[part] == "contradicted"
    unfit = {loss: {**changes.get(loss, {}), "accuracy": [0.5, 0.6, 0.7]} for loss in LOSSES}
    assert collapse(tmp_path / "unfit", unfit, data)[part] == "underpowered"


def test_nets_that_still_collapse_decide_nothing_about_where_they_end(tmp_path: Path) -> None:
    falling = collapse(tmp_path, {LS: {"nc1": [1.0, 0.2, 0.18]}}, "cifar100")
    assert falling["hundred-classes"] == "underpowered"


def test_the_last_tenth_is_one_of_epochs_and_not_of_measurements(tmp_path: Path) -> None:
    """At paper size every epoch is measured: the last two say nothing about a tenth of 800."""
    values = [0.96**epoch for epoch in range(1, 41)]
    every = Results("desk", (Result({}, run(tmp_path / "every", {"train": {"nc1": values}})),))
    assert last_tenth(every, "nc1") == pytest.approx([0.96**4])
    few = run(tmp_path / "few", {"train": {"nc1": [1.0, 0.5, 0.4]}}, epochs=(1, 1170, 1300))
    none = run(tmp_path / "none", {"train": {"nc1": [0.5, 0.4]}}, epochs=(96, 100))
    found = last_tenth(Results("desk", (Result({}, few), Result({}, none))), "nc1")
    assert found[0] == pytest.approx(0.8)
    assert np.isnan(found[1])


# accuracy -----------------------------------------------------------------------------------------------------------


def accuracy(folder: Path, fitted=1.0, noise=0.001, **lower):
    """Verdicts when MSE is lower by so many points at the best epoch, in validation or at the end."""
    entries = []
    for loss in LOSSES:
        for place, seed in enumerate(SEEDS):
            less = {name: value / 100 if loss == MSE else 0.0 for name, value in lower.items()}
            jitter = noise * (place - 1) * (loss == MSE)
            validation = [0.95, 0.9 - less.get("validation", 0.0) + jitter]
            test = [0.97 - less.get("best", 0.0) + jitter, 0.96 - less.get("last", 0.0) + jitter]
            labels = {"data": "mnist", "loss": loss, "seed": seed}
            entries.append((labels, {"accuracy": [0.5, fitted]}, {"accuracy": validation}, {"accuracy": test}))
    return verdicts(studies.get("losses/accuracy"), made(folder, entries))


def test_accuracy(tmp_path: Path) -> None:
    assert set(accuracy(tmp_path / "0", best=0.4, last=0.4, validation=0.4).values()) == {"holds"}
    for name, part in (("best", "test"), ("last", "last-epoch"), ("validation", "validation")):
        found = accuracy(tmp_path / name, **{name: 2.0})
        assert {key for key, verdict in found.items() if verdict == "contradicted"} == {part}
    assert accuracy(tmp_path / "noisy", noise=0.03, best=2.0)["test"] == "underpowered"
    found = accuracy(tmp_path / "unfit", fitted=0.95, best=2.0)
    assert (found["training"], found["test"]) == ("contradicted", "underpowered")


# width-epochs and mini-imagenet -------------------------------------------------------------------------------------


def grid(folder: Path, *, other=None, **facts):
    """Verdicts on such grids of one data set, or also of a second with ``other`` facts."""
    sets = {"mnist": facts} if other is None else {"mnist": facts, "cifar100": facts | other}
    entries = [entry for data, given in sets.items() for entry in entries_of_grid(data, **given)]
    return verdicts(studies.get("losses/width-epochs"), made(folder, entries))


def entries_of_grid(data, *, spreads=(2.0, 0.4), wider=1.0, longer=1.0, nc1=(1.0, 5e-4), still=1.0, noise=0.01):
    """A grid with gains in points along both axes and given spreads and NC1 of its corners."""
    entries = []
    for width in (16, 64):
        for epochs in (10, 100):
            corner = 0 if (width, epochs) == (16, 10) else 1
            for place, loss in enumerate(LOSSES):
                for step, seed in enumerate(SEEDS):
                    gain = wider * (width == 64) + longer * (epochs == 100) - spreads[corner] * place / 3
                    test = 0.9 + (gain + noise * ((step * (place + 1)) % 3)) / 100
                    columns = {"nc1": [still * nc1[corner], nc1[corner] * (1 + step / 100)], "accuracy": [0.5, 1.0]}
                    labels = {"data": data, "width": width, "epochs": epochs, "loss": loss, "seed": seed}
                    entries.append((labels, columns, {"accuracy": [0.9, 0.9]}, {"accuracy": [test, test]}))
    return entries


def test_width_epochs(tmp_path: Path) -> None:
    usual = {"wider": 4.0, "longer": 4.0}
    assert set(grid(tmp_path / "0", **usual).values()) == {"holds"}
    assert grid(tmp_path / "1", **usual, spreads=(1.0, 0.9))["spread"] == "contradicted"
    assert grid(tmp_path / "2", **usual, spreads=(1.0, 0.45), noise=0.4)["spread"] == "underpowered"
    assert grid(tmp_path / "3", wider=-3.0, longer=4.0)["wider"] == "contradicted"
    assert grid(tmp_path / "4", wider=4.0, longer=-3.0)["longer"] == "contradicted"
    assert grid(tmp_path / "5", **usual, nc1=(1.0, 0.05))["nc1"] == "contradicted"
    assert grid(tmp_path / "6", **usual, nc1=(1.0, 0.05), still=3.0)["nc1"] == "underpowered"


@pytest.mark.parametrize(
    ("other", "part"),
    [
        ({"wider": -3.0}, "wider"),
        ({"longer": -3.0}, "longer"),
        ({"spreads": (1.0, 0.9)}, "spread"),
        ({"nc1": (1.0, 0.9)}, "nc1"),
    ],
)
def test_width_epochs_of_each_data_set(tmp_path: Path, other: dict[str, object], part: str) -> None:
    """At paper size there are two, and neither hides the other."""
    usual = {"wider": 4.0, "longer": 4.0}
    assert set(grid(tmp_path / "0", **usual, other={}).values()) == {"holds"}
    found = grid(tmp_path / "1", **usual, other=other)
    assert {name for name, ruling in found.items() if ruling != "holds"} == {part}


def mini(folder: Path, *, spreads=(2.0, 0.4), nc1=(1.0, 0.05), first=2.0, level=0.6):
    entries = []
    for corner, size in enumerate(("small", "large")):
        for place, loss in enumerate(LOSSES):
            for step, seed in enumerate(SEEDS):
                test = level - (spreads[corner] * place / 3 + 0.01 * step) / 100
                train = {"nc1": [first, nc1[corner] * (1 + step / 100)], "accuracy": [0.5, 1.0]}
                labels = {"size": size, "loss": loss, "seed": seed}
                entries.append((labels, train, {"accuracy": [0.5, 0.5]}, {"accuracy": [0.1, test]}))
    return verdicts(studies.get("losses/mini-imagenet"), made(folder, entries))


def test_mini_imagenet(tmp_path: Path) -> None:
    assert set(mini(tmp_path / "0").values()) == {"holds"}
    assert mini(tmp_path / "1", spreads=(1.0, 0.9))["spread"] == "contradicted"
    assert mini(tmp_path / "2", nc1=(1.0, 1.5))["nc1"] == "contradicted"
    assert mini(tmp_path / "3", first=0.01)["falls"] == "contradicted"
    assert set(mini(tmp_path / "4", spreads=(1.0, 0.9), nc1=(1.0, 1.5), first=0.01, level=0.2).values()) == {
        "underpowered"
    }


def test_the_bootstrap_covers_what_seeds_can_give() -> None:
    small = {"a": np.array([90.0, 90.2, 89.8]), "b": np.array([92.0, 92.2, 91.8])}
    large = {"a": np.array([96.0, 96.1, 95.9]), "b": np.array([96.5, 96.4, 96.6])}
    measured, low, high = spread_ratio(small, large)
    assert measured == pytest.approx(0.25)
    assert 0.1 < low < 0.25 < high < 0.45


# features -----------------------------------------------------------------------------------------------------------


def test_distances_are_blind_to_rotation_and_scale() -> None:
    draw = np.random.default_rng(0)
    means = draw.normal(size=(6, 9))
    means -= means.mean(0)
    turn = np.linalg.qr(draw.normal(size=(9, 9)))[0]
    unit = means / np.linalg.norm(means)
    same = 3.0 * means @ turn
    assert gram_distance(unit, same) == pytest.approx(0, abs=1e-12)
    assert procrustes_residual(unit, same / np.linalg.norm(same)) == pytest.approx(0, abs=1e-6)
    # Two orthogonal directions: nothing of one is left in the other.
    one, other = np.array([[1.0], [-1.0], [0.0]]), np.array([[1.0], [1.0], [-2.0]])
    assert gram_distance(one, other) == pytest.approx(np.sqrt(2))
    assert procrustes_residual(one / np.linalg.norm(one), other / np.linalg.norm(other)) == pytest.approx(1)


def features(folder: Path, change: float, collapsed: bool = True, seeds: float = 0.02, scale: float = 9.0):
    """Verdicts when the class means of MSE are changed by a relative amount, and all by some noise of the seed."""
    frame = np.eye(5) - 1 / 5
    other = np.diag([1.0, 1.0, 1.0, 1.0, 0.0]) @ frame
    entries = []
    for loss in LOSSES:
        for seed in SEEDS:
            draw = np.random.default_rng(seed)
            turn = np.linalg.qr(draw.normal(size=(5, 5)))[0]
            means = ((1 - change) * frame + change * other if loss == MSE else frame) @ turn
            means = means + seeds * draw.normal(size=(5, 5)) / 5
            kept = {"features": np.repeat(means, 4, 0), "labels": np.repeat(np.arange(5), 4), "weight": scale * means}
            metrics = {"nc1": [0.01], "nc2": [0.1], "nc3": [0.1 if collapsed else 0.9], "accuracy": [1.0]}
            labels = {"data": "mnist", "loss": loss, "seed": seed}
            entries.append((labels, metrics, {"accuracy": [0.9]}, {"accuracy": [0.9]}, kept))
    return verdicts(studies.get("losses/features"), made(folder, entries))


def test_features(tmp_path: Path) -> None:
    assert set(features(tmp_path / "0", 0.0, seeds=0.1).values()) == {"holds"}
    found = features(tmp_path / "1", 0.9)
    assert found.pop("region") == "holds"
    assert set(found.values()) == {"contradicted"}
    found = features(tmp_path / "2", 0.9, collapsed=False)
    assert found.pop("region") == "holds"
    assert set(found.values()) == {"underpowered"}
    # Logits of zero: every class has probability 1/5.
    assert features(tmp_path / "3", 0.0, scale=0.0)["region"] == "contradicted"


# the paper's settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(("losses/collapse", 36), ("losses/accuracy", 36), ("losses/features", 36)),
        *(("losses/width-epochs", 384), ("losses/mini-imagenet", 24)),
    ],
)
def test_paper_plans(name: str, count: int) -> None:
    planned = studies.get(name).planned("paper")
    assert len(planned) == count
    for entry in planned:
        plan = entry.cell.plan
        assert (plan.batch_size, plan.augment, plan.schedule, plan.init) == (100, True, "milestones", "torch")
        assert plan.validation == (0.0 if name.endswith("imagenet") else 0.1)
        net = "wide-resnet18" if name.endswith("imagenet") else "wide-resnet50"
        assert plan.model.startswith(f"{net}:width=")
        # Our squared error is half of the paper's, eq. (6).
        twice = 2 if plan.loss.startswith("squared-error") else 1
        if entry.labels.get("variant") == "released code":
            classes = {"cifar10": 10, "cifar100": 100}[plan.data]
            assert plan.loss_scale == (2 / classes if twice == 2 else 1)
            assert plan.loss.startswith("squared-error") or plan.loss == "label-smoothing:alpha=0.05"
            twice = 1
        assert (plan.learning_rate / twice, plan.weight_decay * twice, plan.clip_gradient * twice) == (0.1, 5e-4, 2)


@pytest.mark.parametrize("profile", ["smoke", "desk", "paper"])
def test_the_largest_nets_are_shared(profile: str) -> None:
    keys = {
        name: {entry.cell.key for entry in studies.get(f"losses/{name}").planned(profile)}
        for name in ("collapse", "accuracy", "features", "width-epochs")
    }
    assert keys["accuracy"] == keys["features"] <= keys["collapse"]
    text = {
        entry.cell.key
        for entry in studies.get("losses/accuracy").planned(profile)
        if entry.labels.get("variant") != "released code"
    }
    assert text < keys["width-epochs"]


def test_desk_seeds_are_not_those_of_pilots() -> None:
    for name in ("collapse", "accuracy", "features", "width-epochs", "mini-imagenet"):
        assert min(e.labels["seed"] for e in studies.get(f"losses/{name}").planned("desk")) >= 10


def test_seeds_of_ones_own_are_those_of_every_data_set() -> None:
    study = studies.get("losses/collapse")
    assert {entry.labels["seed"] for entry in study.vary(seeds=(1, 2)).planned("desk")} == {1, 2}
    plain = {(entry.labels["data"].partition(":")[0], entry.labels["seed"]) for entry in study.planned("desk")}
    assert {seed for data, seed in plain if data == "cifar100"} == {80, 81, 82, 83}
