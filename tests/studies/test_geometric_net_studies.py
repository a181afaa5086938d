"""Checks of the geometric paper's studies of nets on made-up results, and their plans at the paper's size."""

import pytest

from neuralcollapse.studies import _twins, get
from stand_ins import results_of

pytestmark = pytest.mark.unchecked

COLLAPSED = {"accuracy": 1.0, "nc1": 0.01, "nc2": 0.05, "nc3": 0.05, "nc4_bias": 0.1}


def optimizers(folder, adam=None, accuracy=(0.70, 0.74, 0.60)):
    runs = []
    for data in ("MNIST", "CIFAR10"):
        for name, test in zip(("SGD", "Adam", "L-BFGS"), accuracy, strict=True):
            train = {**COLLAPSED, **(adam or {})} if name == "Adam" else COLLAPSED
            runs.append(({"data": data, "optimizer": name}, train, {"accuracy": test}))
    return results_of(folder, runs)


def test_optimizers_must_all_collapse_and_differ_in_test_accuracy(tmp_path):
    check = get("geometric/optimizers").check
    assert check(optimizers(tmp_path / "a")).outcome == "holds"
    assert check(optimizers(tmp_path / "b", adam={"nc1": 0.5})).outcome == "does not hold"
    assert check(optimizers(tmp_path / "c", adam={"nc4_bias": 2.0})).outcome == "does not hold"
    assert check(optimizers(tmp_path / "d", accuracy=(0.7, 0.7, 0.7))).outcome == "does not hold"


def random_labels(folder, errors, collapse):
    widths = (1, 2, 4, 8)
    return results_of(
        folder,
        [
            ({"net": net, "width": width}, {"accuracy": 1 - error, "nc1": nc1}, None)
            for net in ("MLP", "ResNet8")
            for width, error, nc1 in zip(widths, errors, collapse, strict=True)
        ],
    )


def test_random_labels_need_a_fit_collapse_and_their_common_fall(tmp_path):
    check = get("geometric/random-labels").check
    verdict = check(random_labels(tmp_path / "a", (0.8, 0.5, 0.1, 0.0), (9, 3, 1, 0.01)))
    assert (verdict.outcome, verdict.figure) == ("holds", pytest.approx(1))
    assert check(random_labels(tmp_path / "b", (0.8, 0.5, 0.1, 0.0), (9, 3, 1, 0.5))).outcome == "does not hold"
    assert check(random_labels(tmp_path / "c", (0.8, 0.5, 0.1, 0.05), (9, 3, 1, 0.01))).outcome == "does not hold"
    assert check(random_labels(tmp_path / "d", (0.1, 0.5, 0.8, 0.0), (9, 3, 1, 0.01))).outcome == "does not hold"


def test_feature_decay_may_cost_two_points(tmp_path):
    check = get("geometric/feature-decay").check

    def results(folder, peeled, nc1=0.01):
        accuracy = {"all parameters": 0.90, "(W, H, b)": peeled, "(W, H, b), all N features": 0.1}
        train = {**COLLAPSED, "nc1": nc1}
        return results_of(
            folder, [({"data": "MNIST", "decay": name}, train, {"accuracy": a}) for name, a in accuracy.items()]
        )

    assert check(results(tmp_path / "a", 0.89)).outcome == "holds"
    assert check(results(tmp_path / "b", 0.85)).outcome == "does not hold"
    assert check(results(tmp_path / "c", 0.89, nc1=1.0)).outcome == "does not hold"


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, "holds"),
        ({"test": 0.65}, "does not hold"),
        ({"accuracy": 0.9}, "does not hold"),
        ({"nc3": 0.2}, "does not hold"),
    ],
)
def test_fixed_heads_must_lose_nothing(tmp_path, monkeypatch, change, outcome):
    monkeypatch.setattr(_twins, "_parameters", lambda results: {"here": (10, 9), "resnet18": (10, 8)})
    runs = []
    for fixed in (False, True):
        for small in (False, True):
            values = {**COLLAPSED, "test": 0.7, **(change if fixed and small else {})}
            labels = {"data": "MNIST", "fixed": fixed, "small": small}
            runs.append((labels, values, {"accuracy": values.pop("test")}))
    verdict = get("geometric/fixed-etf").check(results_of(tmp_path, runs))
    assert verdict.outcome == outcome
    assert "20.0% fewer" in verdict.measured


def test_a_fixed_head_with_d_equal_to_k_saves_a_fifth_of_resnet18():
    full, economical = (_twins._resnet18_parameters(economy, economy) for economy in (False, True))
    assert full == 11_173_962
    assert 0.2 < 1 - economical / full < 0.21


def test_paper_plans():
    plans = {entry.labels["optimizer"]: entry.cell.plan for entry in get("geometric/optimizers").planned("paper")}
    assert all(plan.model == "resnet18:width=64,stem=imagenet" and not plan.augment for plan in plans.values())
    assert (plans["SGD"].learning_rate, plans["SGD"].schedule) == (0.05, "step:every=40")
    assert (plans["Adam"].learning_rate, plans["Adam"].batch_size) == (1e-3, 64)
    assert (plans["L-BFGS"].learning_rate, plans["L-BFGS"].batch_size) == (0.1, 2048)
    labels = [entry.cell.plan for entry in get("geometric/random-labels").planned("paper")]
    assert all(
        (p.random_labels, p.learning_rate, p.weight_decay, p.batch_size) == (True, 0.01, 1e-4, 64) for p in labels
    )
    assert [p.model for p in labels if "resnet" in p.model] == [f"resnet18:width={2**i}" for i in range(7)]
    decays = [p.cell.plan for p in get("geometric/feature-decay").planned("paper")]
    assert [(p.weight_decay, p.bias_decay) for p in decays[:2]] == [(5e-4, 0), (0.01, 0.01)]
    assert decays[1].feature_decay == pytest.approx(1e-5 * 128 / 60_000)
    assert decays[2].feature_decay == 1e-5
    heads = [
        (e.cell.plan.head, "feature_dim=10" in e.cell.plan.model) for e in get("geometric/fixed-etf").planned("paper")
    ]
    assert heads == [("linear", False), ("linear", True), ("etf", False), ("etf", True)] * 3
