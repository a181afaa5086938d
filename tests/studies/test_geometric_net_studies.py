"""The geometric paper's studies of nets: each part on results in which it is true and in which it is false."""

import math

import numpy as np
import pytest

from made_up import results_of, stand_in, verdicts, with_seeds
from neuralcollapse.models import create, parameter_count
from neuralcollapse.studies import get
from neuralcollapse.studies._common import fixed_heads as shared
from neuralcollapse.studies._common.seeds import agreement, rank_correlation
from neuralcollapse.studies.claims import Agrees, Claim, judge
from neuralcollapse.studies.geometric.optimizers import bias_collapse

pytestmark = pytest.mark.unchecked

COLLAPSED = {"accuracy": 1.0, "nc1": 0.01, "nc2": 0.05, "nc3": 0.05, "nc4_bias": 0.1}


def only(found, part, verdict="contradicted"):
    """Whether all parts but one hold."""
    return {name: ruling for name, ruling in found.items() if ruling != "holds"} == {part: verdict}


# the rules that all of them share -----------------------------------------------------------------------------------


def test_the_difference_that_agrees_least_decides():
    limit = Agrees(0.5)
    claim = Claim("a", "A.", "B", limit, unit="points")
    near, far = [0.1, -0.1, 0.2], [2.0, 2.2, 1.8]
    assert judge(claim, agreement({"near": near}, limit)).verdict == "holds"
    part = judge(claim, agreement({"far": far, "near": near}, limit))
    assert (part.verdict, part.measured) == ("contradicted", pytest.approx(2.0))
    assert part.high == pytest.approx(2 + 2 * 0.2 / math.sqrt(3))
    noisy = [3.0, -3.0, 0.0]
    assert judge(claim, agreement({"near": near, "noisy": noisy}, limit)).verdict == "underpowered"
    assert judge(claim, agreement({"one seed": [0.1]}, limit)).verdict == "underpowered"
    # A larger difference that agrees by its noise does not hide one that is not resolved.
    larger, unresolved = [0.45, 1.15, 1.85], [-1.2, 0.0, 1.2]
    assert judge(claim, agreement({"larger": larger}, limit)).verdict == "holds"
    assert judge(claim, agreement({"larger": larger, "unresolved": unresolved}, limit)).verdict == "underpowered"


def test_rank_correlation():
    assert rank_correlation([1, 2, 4], [0.1, 0.5, 0.6]) == pytest.approx(1)
    assert rank_correlation([1, 5, 15, 20], [1, 4, 3, 2]) == pytest.approx(0.2)
    assert rank_correlation([1, 2], [3, 3]) == 0
    assert math.isnan(rank_correlation([1, 2], [3, math.nan]))


# optimizers ---------------------------------------------------------------------------------------------------------


def kept(seen=0.0, along=0.0):
    """Arrays with |b + W h_G| = seen off the vector of ones and along on it."""
    weight, ones = np.eye(4, dtype=np.float32), np.ones(4, dtype=np.float32) / 2
    off = np.array([1, -1, 0, 0], dtype=np.float32) / np.sqrt(2)
    features = np.tile(off * seen, (3, 1)).astype(np.float32)
    return {"features": features, "labels": np.arange(3), "weight": weight, "bias": (ones * along).astype(np.float32)}


def optimizers(adam=None, accuracy=(0.70, 0.74, 0.60), arrays=None):
    cells = []
    for data in ("MNIST", "CIFAR10"):
        for name, test in zip(("SGD", "Adam", "L-BFGS"), accuracy, strict=True):
            train = {**COLLAPSED, **(adam or {})} if name == "Adam" else COLLAPSED
            cells.append(({"data": data, "optimizer": name}, train, {"accuracy": test}, arrays or kept(0.1, 0.2)))
    return with_seeds(cells)


def test_optimizers_that_collapse_and_differ(tmp_path):
    found = verdicts(get("geometric/optimizers"), results_of(tmp_path, optimizers()))
    assert set(found) == {"nc1", "nc2", "nc3", "nc4", "nc4-whole", "accuracies-differ"}
    assert set(found.values()) == {"holds"}


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        *((name, {"adam": {name: 0.5}}) for name in ("nc1", "nc2", "nc3")),
        ("nc4-whole", {"arrays": kept(0.1, 3.0)}),
        ("accuracies-differ", {"accuracy": (0.7, 0.702, 0.7)}),
    ],
)
def test_one_optimizer_can_contradict_each_part(tmp_path, part, changes):
    assert only(verdicts(get("geometric/optimizers"), results_of(tmp_path, optimizers(**changes))), part)


def test_bias_collapse_is_judged_by_what_the_loss_sees(tmp_path):
    found = verdicts(get("geometric/optimizers"), results_of(tmp_path / "a", optimizers(arrays=kept(3.0, 0.0))))
    assert found["nc4"] == found["nc4-whole"] == "contradicted"
    run = stand_in(tmp_path / "b", 0, COLLAPSED, kept=kept(3.0, 4.0))
    assert bias_collapse(run) == pytest.approx((3.0, 4.0, 5.0), rel=1e-5)


def test_nets_that_do_not_fit_contradict_nothing(tmp_path):
    cells = optimizers(adam={"nc1": 0.5, "accuracy": 0.9})
    assert verdicts(get("geometric/optimizers"), results_of(tmp_path, cells))["nc1"] == "underpowered"


# random labels ------------------------------------------------------------------------------------------------------


def random_labels(**changes):
    falling = {
        "error": (0.8, 0.5, 0.1, 0.0),
        "nc1": (9, 3, 1, 0.01),
        "nc2": (4, 3, 2, 1),
        "nc3": (4, 3, 2, 1),
        **changes,
    }
    cells = []
    for net in ("MLP", "ResNet8"):
        for place, width in enumerate((1, 2, 4, 8)):
            values = {name: float(column[place]) for name, column in falling.items()}
            # Below d = K - 1 there is no ETF: its projection stands in.
            values["nc2_projected"] = values["nc2"] if width < 4 else None
            values["nc3_projected"] = values["nc3"] if width < 4 else None
            if width < 4:
                values["nc2"] = values["nc3"] = None
            cells.append(({"net": net, "width": width}, {"accuracy": 1 - values.pop("error"), **values}))
    return with_seeds(cells)


def test_random_labels_that_are_fitted_with_collapse(tmp_path):
    found = verdicts(get("geometric/random-labels"), results_of(tmp_path, random_labels()))
    assert len(found) == 6
    assert set(found.values()) == {"holds"}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"nc1": (9, 3, 1, 0.5)}, {"collapse"}),
        ({"nc2": (1, 2, 3, 4)}, {"nc2-with-width"}),
        ({"nc3": (1, 2, 3, 4)}, {"nc3-with-width"}),
        ({"nc1": (0.03, 0.04, 0.05, 0.06)}, {"nc1-with-width", "together"}),
        ({"error": (0.0, 0.002, 0.004, 0.006)}, {"error-with-width", "together"}),
        ({"error": (0.5, 0.8, 0.1, 0.0), "nc1": (3, 9, 0.01, 0.02)}, set()),
        ({"error": (0.1, 0.8, 0.5, 0.0), "nc1": (9, 1, 3, 0.02)}, {"together"}),
    ],
)
def test_random_labels_can_contradict_each_part(tmp_path, changes, wrong):
    found = verdicts(get("geometric/random-labels"), results_of(tmp_path, random_labels(**changes)))
    assert {name for name, verdict in found.items() if verdict == "contradicted"} == wrong


def test_a_widest_net_that_does_not_fit_decides_nothing_against_the_paper(tmp_path):
    cells = random_labels(nc1=(9, 3, 1, 0.5), error=(0.8, 0.5, 0.1, 0.05))
    assert verdicts(get("geometric/random-labels"), results_of(tmp_path, cells))["collapse"] == "underpowered"


# decay on features --------------------------------------------------------------------------------------------------


def feature_decay(peeled=(0.901, 0.899, 0.90), **changes):
    cells = []
    for place, seed in enumerate((10, 11, 12)):
        for data in ("MNIST", "CIFAR10"):
            for name in ("all parameters", "(W, H, b)", "(W, H, b), all N features"):
                test = {"all parameters": 0.90, "(W, H, b)": peeled[place]}.get(name, 0.1)
                train = {**COLLAPSED, **changes} if name == "(W, H, b)" else COLLAPSED
                if name == "(W, H, b), all N features":
                    train = {**COLLAPSED, "nc1": 9.0, "accuracy": 0.1}
                cells.append(({"data": data, "decay": name, "seed": seed}, train, {"accuracy": test}))
    return cells


def test_decay_on_features_that_is_on_par(tmp_path):
    found = verdicts(get("geometric/feature-decay"), results_of(tmp_path, feature_decay()))
    assert set(found) == {"on-par-MNIST", "on-par-CIFAR10", "nc1", "nc2", "nc3"}
    assert set(found.values()) == {"holds"}


def test_decay_on_features_that_costs_accuracy_or_collapse(tmp_path):
    study = get("geometric/feature-decay")
    for place, accuracy in enumerate(((0.88, 0.881, 0.882), (0.92, 0.921, 0.92))):
        found = verdicts(study, results_of(tmp_path / f"a{place}", feature_decay(accuracy)))
        assert found["on-par-MNIST"] == found["on-par-CIFAR10"] == "contradicted"
    assert (
        verdicts(study, results_of(tmp_path / "b", feature_decay((0.85, 0.95, 0.9))))["on-par-MNIST"] == "underpowered"
    )
    for name in ("nc1", "nc2", "nc3"):
        assert only(verdicts(study, results_of(tmp_path / name, feature_decay(**{name: 0.5}))), name)


# fixed heads --------------------------------------------------------------------------------------------------------


def fixed_heads(test=0.7, one=None, data=("MNIST", "CIFAR10")):
    """``one``: what the fixed head with d = K has instead."""
    cells = []
    for name in data:
        for fixed in (False, True):
            for small in (False, True):
                changed = fixed and small and one is not None
                train = {**COLLAPSED, "cosine_margin": 1.0, "numerical_rank": 1.1, **(one if changed else {})}
                head = f"{'fixed ETF' if fixed else 'learned'}, {'d = K' if small else 'wide'}"
                labels = {"data": name, "head": head, "fixed": fixed, "small": small}
                cells.append((labels, train, {"accuracy": train.pop("test", test)}))
    return with_seeds(cells)


def test_fixed_heads_that_lose_nothing(tmp_path):
    found = verdicts(get("geometric/fixed-etf"), results_of(tmp_path, fixed_heads()))
    assert set(found) == {"test", "train", "nc1", "nc3", "saved-resnet18", "saved-resnet50"}
    assert {name for name, verdict in found.items() if verdict != "holds"} == {"saved-resnet50"}


@pytest.mark.parametrize(
    ("part", "one"),
    [
        ("test", {"test": 0.68}),
        ("test", {"test": 0.72}),
        ("nc1", {"nc1": 0.5}),
        ("nc3", {"nc3": 0.5}),
        ("train", {"accuracy": 0.9}),
    ],
)
def test_one_fixed_head_can_contradict_each_part(tmp_path, part, one):
    found = verdicts(get("geometric/fixed-etf"), results_of(tmp_path, fixed_heads(one=one)))
    found.pop("saved-resnet50")
    assert only(found, part)


def test_a_fixed_head_with_d_equal_to_k_saves_a_fifth_of_resnet18(tmp_path, monkeypatch):
    saved, full, less = shared.saved_parameters("resnet18")
    assert full == 11_173_962
    # With d = K the last 3x3 convolution has 10 outputs instead of 512, and so have its shortcut, norms and the head.
    lean = create("resnet18:width=64,feature_dim=10", (3, 32, 32), 10, head="etf")
    assert less == parameter_count(lean).trainable
    assert 0.2 < saved < 0.21
    monkeypatch.setattr(shared, "saved_parameters", lambda net: (0.19, 100, 81))
    found = verdicts(get("geometric/fixed-etf"), results_of(tmp_path, fixed_heads()))
    assert found["saved-resnet18"] == "contradicted"


# plans --------------------------------------------------------------------------------------------------------------


def paper_plans(name, *labels):
    return {
        tuple(entry.labels[label] for label in labels): entry.cell.plan
        for entry in get(name).planned("paper")
        if entry.labels["seed"] == 0
    }


def test_paper_plans_of_the_optimizers():
    plans = paper_plans("geometric/optimizers", "data", "optimizer", "variant")
    assert {plan.model for plan in plans.values()} == {"resnet18:width=64,stem=imagenet"}
    assert all(not plan.augment and plan.init == "kaiming-fan-out" for plan in plans.values())
    assert {plan.data for (data, *_), plan in plans.items() if data == "MNIST"} == {"mnist:size=32,channels=3"}
    sgd, adam, lbfgs = (plans["CIFAR10", name, "text"] for name in ("SGD", "Adam", "L-BFGS"))
    assert (sgd.learning_rate, sgd.schedule, sgd.weight_decay, sgd.epochs) == (0.05, "step:every=40", 5e-4, 200)
    assert (adam.learning_rate, adam.batch_size) == (1e-3, 64)
    assert (lbfgs.learning_rate, lbfgs.batch_size, lbfgs.optimizer) == (0.1, 2048, "lbfgs:history=10")
    stored = plans["CIFAR10", "Adam", "released code"], plans["CIFAR10", "L-BFGS", "released code"]
    assert (stored[0].learning_rate, stored[0].batch_size) == (1e-4, 128)
    assert "keep=True" in stored[1].optimizer
    assert "statistics=evaluation" in stored[1].optimizer


def test_other_paper_plans():
    labels = list(paper_plans("geometric/random-labels", "net", "width").values())
    settings = {(p.random_labels, p.learning_rate, p.weight_decay, p.batch_size, p.init) for p in labels}
    assert settings == {(True, 0.01, 1e-4, 64, "torch")}
    assert [p.model for p in labels if "resnet" in p.model] == [f"resnet18:width={2**i}" for i in range(7)]
    decays = paper_plans("geometric/feature-decay", "data", "decay")
    assert decays["MNIST", "all parameters"].weight_decay == 5e-4
    for data in ("MNIST", "CIFAR10"):
        peeled = [plan for (name, decay), plan in decays.items() if name == data and decay != "all parameters"]
        assert {(p.weight_decay, p.bias_decay, p.feature_decay) for p in peeled} == {(0.01, 0.01, 1e-5)}
        assert [(p.feature_decay_over, p.batch_size) for p in peeled] == [("batch", 128), ("set", 128), ("unit", 64)]
    assert {plan.init for plan in decays.values()} == {"kaiming-fan-out"}
    heads = paper_plans("geometric/fixed-etf", "data", "head")
    assert len(heads) == 4 * 5
    assert heads["CIFAR10, ResNet50", "fixed ETF, d = K"].model == "resnet50:width=64,feature_dim=10"
    assert create(heads["CIFAR10, ResNet50", "learned, wide"].model, (3, 32, 32), 10).feature_dim == 2048
    assert {(p.head, "feature_dim=10" in p.model) for p in heads.values()} == {
        *(("linear", False), ("linear", True), ("etf:frame=canonical", False), ("etf:frame=canonical", True)),
    }


def test_desk_cells_are_shared_and_have_seeds_that_no_pilot_saw():
    names = ("geometric/optimizers", "geometric/feature-decay", "geometric/fixed-etf")
    cells = {name: [entry.cell for entry in get(name).planned("desk")] for name in names}
    nets, decays, heads = cells.values()
    assert len({cell.family for cell in nets} & {cell.family for cell in decays}) == 1  # from other seeds
    assert len({cell.key for cell in decays} & {cell.key for cell in heads}) == 6
    for name in (*names, "geometric/random-labels"):
        seeds = {entry.cell.plan.seed for entry in get(name).planned("desk")}
        assert len(seeds) >= 3
        assert min(seeds) >= 10
