"""The mse paper's studies of nets: each part on results in which it is true and in which it is false."""

import json
from itertools import product

import numpy as np
import pytest
import torch

import made_up
from made_up import results_of, stand_in, verdicts, with_seeds
from neuralcollapse.frames import simplex_etf
from neuralcollapse.models import create
from neuralcollapse.studies import Train, get
from neuralcollapse.studies._common.geometric_and_mse import margins
from neuralcollapse.studies.mse.bias import frame_distances
from neuralcollapse.studies.mse.three_dimensions import nearest_angles, shown_samples, spreads
from neuralcollapse.training.optimizers import create_optimizer

pytestmark = pytest.mark.unchecked

COLLAPSED = {
    "accuracy": 1.0,
    "nc1": 0.01,
    "nc2": 0.05,
    "nc3": 0.05,
    "cosine_margin": 1.0,
    "numerical_rank": 1.1,
}


def contradicted(found):
    return {name for name, verdict in found.items() if verdict == "contradicted"}


# optimizers ---------------------------------------------------------------------------------------------------------


def optimizers(cosines=(1.0, 0.9, 0.5), tests=(0.8, 0.79, 0.6), **adam):
    cells = []
    for name, test, cosine in zip(("SGD", "Adam", "L-BFGS"), tests, cosines, strict=True):
        train = {**COLLAPSED, "cosine_margin": cosine, **(adam if name == "Adam" else {})}
        cells.append(({"data": "CIFAR10", "optimizer": name}, train, {"accuracy": test}))
    return with_seeds(cells)


def test_optimizers_that_collapse_with_margins_like_accuracies(tmp_path):
    found = verdicts(get("mse/optimizers"), results_of(tmp_path, optimizers()))
    assert set(found) == {"nc1", "nc2", "nc3", "accuracies-differ", "margins", "numerical-rank"}
    assert set(found.values()) == {"holds"}


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"cosines": (0.4, 1.0, 0.5)}, "margins"),
        ({"tests": (0.8, 0.8, 0.8)}, "accuracies-differ"),
        ({"numerical_rank": 3.0}, "numerical-rank"),
        *(({name: 0.5}, name) for name in ("nc1", "nc2", "nc3")),
    ],
)
def test_optimizers_can_contradict_each_part(tmp_path, changes, part):
    assert contradicted(verdicts(get("mse/optimizers"), results_of(tmp_path, optimizers(**changes)))) == {part}


def test_margins_of_accuracies_that_agree_decide_nothing(tmp_path):
    tie = optimizers(cosines=(0.4, 1.0, 0.5), tests=(0.8, 0.802, 0.801))
    assert verdicts(get("mse/optimizers"), results_of(tmp_path, tie))["margins"] == "underpowered"


# feature dimension --------------------------------------------------------------------------------------------------

SHARES = {5: 0.6, 8: 0.2, 9: 0.0, 10: 0.0, 64: 0.0}


def kept(near):
    """Features of ten classes with this share of cosine margins at 0, the others at 10/9."""
    frame = simplex_etf(10, 9).numpy().astype(np.float32)
    boundary = frame + np.roll(frame, -1, axis=0)
    rows = np.concatenate([boundary if place < round(10 * near) else frame for place in range(10)])
    return {"features": rows, "labels": np.tile(np.arange(10), 10), "weight": frame}


def feature_dim(shares=SHARES, squared=None, entropy=None, nc1=0.01):
    """``squared`` and ``entropy``: (training, test) accuracies that differ from (1, .7), by d."""
    squared = {5: (0.6, 0.6), 8: (0.9, 0.68), **(squared or {})}
    cells = []
    for loss, changes in (("squared-error", squared), ("cross-entropy", entropy or {})):
        for dim, share in shares.items():
            train, test = changes.get(dim, (1.0, 0.7))
            values = {**COLLAPSED, "accuracy": train, "nc1": nc1 if dim == 5 else 0.01}
            cells.append(({"loss": loss, "d": dim}, values, {"accuracy": test}, kept(share)))
    return with_seeds(cells)


def test_dimensions_that_the_squared_error_needs_and_cross_entropy_does_not(tmp_path):
    found = verdicts(get("mse/feature-dim"), results_of(tmp_path, feature_dim()))
    assert set(found) == {"nc1", "train", "test", "margins", "entropy-alike", "contrast"}
    assert set(found.values()) == {"holds"}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"nc1": 0.5}, {"nc1"}),
        ({"squared": {8: (1.0, 0.68)}}, {"train"}),
        ({"squared": {8: (0.9, 0.70)}}, {"test"}),
        ({"shares": {**SHARES, 8: 0.7}}, {"margins"}),
        ({"shares": {**SHARES, 9: 0.3}}, {"margins"}),
        ({"entropy": {5: (1.0, 0.66)}}, {"entropy-alike"}),
        ({"entropy": {5: (0.6, 0.7)}}, {"contrast"}),
    ],
)
def test_dimensions_can_contradict_each_part(tmp_path, changes, wrong):
    assert contradicted(verdicts(get("mse/feature-dim"), results_of(tmp_path, feature_dim(**changes)))) == wrong


# fixed heads --------------------------------------------------------------------------------------------------------


def fixed_heads(test=0.7, one_change=0.7, **one):
    cells = []
    for fixed in (False, True):
        for small in (False, True):
            last = fixed and small
            head = f"{'fixed ETF' if fixed else 'learned'}, {'d = K' if small else 'wide'}"
            labels = {"data": "CIFAR10", "head": head, "fixed": fixed, "small": small}
            accuracy = test if last else one_change if fixed or small else 0.7
            cells.append((labels, {**COLLAPSED, **(one if last else {})}, {"accuracy": accuracy}))
    return with_seeds(cells)


def test_fixed_heads_may_gain_and_must_not_lose(tmp_path):
    study = get("mse/fixed-etf")
    gained = verdicts(study, results_of(tmp_path / "a", fixed_heads(0.75, cosine_margin=1.1)))
    assert set(gained) == {"test", "test-of-one", "train", "nc1", "nc3", "saved-resnet18", "margins"}
    assert set(gained.values()) == {"holds"}
    assert contradicted(verdicts(study, results_of(tmp_path / "b", fixed_heads(0.68, cosine_margin=0.9)))) == {"test"}
    assert contradicted(verdicts(study, results_of(tmp_path / "c", fixed_heads(0.75, cosine_margin=0.9)))) == {
        "margins"
    }
    assert contradicted(verdicts(study, results_of(tmp_path / "d", fixed_heads(nc1=0.5)))) == {"nc1"}
    assert contradicted(verdicts(study, results_of(tmp_path / "e", fixed_heads(nc3=0.5)))) == {"nc3"}
    assert contradicted(verdicts(study, results_of(tmp_path / "f", fixed_heads(accuracy=0.9)))) == {"train"}
    alone = fixed_heads(one_change=0.68)  # the paper makes both changes at once
    assert contradicted(verdicts(study, results_of(tmp_path / "g", alone))) - {"margins"} == {"test-of-one"}


# rescaling ----------------------------------------------------------------------------------------------------------

RISING = {
    "nc1": (9, 3, 1),
    "train": (0.2, 0.4, 0.6),
    "test": (0.1, 0.2, 0.3),
    "margin": (0.1, 0.2, 0.3),
    "rank": (3, 2, 1),
}


def rescaling(sweep=None, **changes):
    cells = []
    for name in ("alpha", "M"):
        columns = {**RISING, **(changes if name == sweep else {})}
        for place, value in enumerate((1, 5, 10)):
            nc1, train, test, margin, rank = (float(columns[key][place]) for key in RISING)
            values = {"accuracy": train, "nc1": nc1, "cosine_margin": margin, "numerical_rank": rank}
            cells.append(({"sweep": name, "value": value}, values, {"accuracy": test}))
    return with_seeds(cells)


def test_rescaling_with_all_trends(tmp_path):
    found = verdicts(get("mse/rescaling"), results_of(tmp_path, rescaling()))
    assert len(found) == 9
    assert set(found.values()) == {"holds"}


@pytest.mark.parametrize("sweep", ["alpha", "M"])
@pytest.mark.parametrize(
    ("name", "column", "part"),
    [
        ("nc1", (1, 3, 9), "{}-nc1"),
        ("nc1", (1, 1, 1), "{}-nc1"),
        ("train", (0.6, 0.4, 0.2), "{}-train"),
        ("test", (0.3, 0.2, 0.1), "{}-test"),
        ("margin", (3, 2, 1), "margins"),
        ("rank", (1, 2, 3), "numerical-rank"),
    ],
)
def test_rescaling_can_contradict_each_trend(tmp_path, sweep, name, column, part):
    found = verdicts(get("mse/rescaling"), results_of(tmp_path, rescaling(sweep, **{name: column})))
    own = {part.format(sweep)}
    assert contradicted(found) == (own if "{}" not in part else own | {"clear"})


def test_a_positive_trend_with_one_swap_holds_and_is_not_clear(tmp_path):
    found = verdicts(get("mse/rescaling"), results_of(tmp_path, rescaling("M", test=(0.1, 0.3, 0.2))))
    assert contradicted(found) == {"clear"}


# three dimensions and the bias --------------------------------------------------------------------------------------


def cloud(angle, spread):
    """Two pairs of classes in a plane: the classes of a pair are ``angle`` apart, samples ``spread`` to either side."""
    rows, labels = [], []
    for label, middle in enumerate((0.0, angle, np.pi, np.pi + angle)):
        for turn in (-spread, spread):
            rows.append([np.cos(middle + turn), np.sin(middle + turn), 0.0])
            labels.append(label)
    return {"features": np.array(rows, dtype=np.float32), "labels": np.array(labels)}


def test_angles_and_spreads_of_known_features(tmp_path):
    run = stand_in(tmp_path, 0, COLLAPSED, kept=cloud(0.8, 0.1))
    np.testing.assert_allclose(nearest_angles(run), 0.8, rtol=1e-5)
    np.testing.assert_allclose(spreads(run), 0.1, rtol=1e-4)
    features, labels = shown_samples(run)
    assert features.shape == (8, 3)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("entropy", "wrong"),
    [((0.9, 0.2), set()), ((0.4, 0.2), {"discriminative"}), ((0.9, 0.05), {"diverse"})],
)
def test_three_dimensions_compares_the_losses(tmp_path, entropy, wrong):
    cells = [
        ({"loss": "squared-error"}, COLLAPSED, None, cloud(0.6, 0.1)),
        ({"loss": "cross-entropy"}, COLLAPSED, None, cloud(*entropy)),
    ]
    found = verdicts(get("mse/three-dimensions"), results_of(tmp_path, with_seeds(cells)))
    assert contradicted(found) == wrong
    assert set(found.values()) <= {"holds", "contradicted"}


def test_nets_near_chance_say_nothing_about_three_dimensions(tmp_path):
    guessing = {**COLLAPSED, "accuracy": 0.15}
    cells = [({"loss": loss}, guessing, None, cloud(0.6, 0.1)) for loss in ("squared-error", "cross-entropy")]
    found = verdicts(get("mse/three-dimensions"), results_of(tmp_path, with_seeds(cells)))
    assert set(found.values()) == {"underpowered"}


FRAMES = {"simplex": np.eye(10) - 0.1, "orthogonal": np.eye(10)}


def test_distances_of_frames(tmp_path):
    for place, (name, frame) in enumerate(FRAMES.items()):
        run = stand_in(tmp_path, place, COLLAPSED, kept={"weight": 3 * frame})
        apart = frame_distances(run)
        assert apart.pop(name) == pytest.approx(0, abs=1e-12)
        # The cosine between I/sqrt(K) and (I - 11'/K)/sqrt(K-1) is sqrt((K-1)/K).
        assert apart.popitem()[1] == pytest.approx(np.sqrt(2 - 2 * np.sqrt(0.9)))


@pytest.mark.parametrize("other", [None, "squared-with", "squared-without", "entropy-with", "entropy-without"])
def test_the_bias_decides_the_frame_of_the_squared_error_alone(tmp_path, other):
    study = get("mse/bias")
    cells = []
    for loss, bias in product(("squared-error", "cross-entropy"), (True, False)):
        frame = "orthogonal" if (loss, bias) == ("squared-error", False) else "simplex"
        name = f"{'squared' if loss == 'squared-error' else 'entropy'}-{'with' if bias else 'without'}"
        if name == other:
            frame = next(one for one in FRAMES if one != frame)
        cells.append(({"loss": loss, "bias": bias}, COLLAPSED, None, {"weight": FRAMES[frame]}))
    found = verdicts(study, results_of(tmp_path, with_seeds(cells)))
    found = {name: verdict for name, verdict in found.items() if not name.startswith("model-")}
    assert contradicted(found) == ({other} if other else set())
    assert set(found.values()) <= {"holds", "contradicted"}


def test_the_bias_decides_the_frame_of_the_model():
    """Exact minimisers hold; the minimiser of another bias contradicts the part that it is given to."""
    study = get("mse/bias")
    planned = [entry for entry in study.planned("desk") if entry.labels.get("what") == "model"]
    ends = {(entry.labels["loss"], entry.labels["bias"]): made_up.ended(entry) for entry in planned}

    def judged(wrong=None, given=None):
        def value(entry):
            key = (entry.labels["loss"], entry.labels["bias"])
            return ends[given] if key == wrong else ends[key]

        found = made_up.verdicts(study, made_up.results(planned, value))
        return {name: verdict for name, verdict in found.items() if name.startswith("model-")}

    assert set(judged().values()) == {"holds"}
    simplex, orthogonal = ("squared-error", True), ("squared-error", False)
    assert contradicted(judged(orthogonal, simplex)) == {"model-squared-without"}
    assert contradicted(judged(simplex, orthogonal)) == {"model-squared-with"}
    assert contradicted(judged(("cross-entropy", True), orthogonal)) == {"model-entropy-with"}
    assert contradicted(judged(("cross-entropy", False), orthogonal)) == {"model-entropy-without"}


def test_margins_of_a_collapsed_run(tmp_path):
    frame = simplex_etf(4, 3).numpy()
    arrays = {
        "features": (np.repeat(frame, 5, axis=0) + 2.0).astype(np.float32),
        "labels": np.repeat(np.arange(4), 5),
        "weight": frame.astype(np.float32),
    }
    run = stand_in(tmp_path, 0, COLLAPSED, kept=arrays)
    np.testing.assert_allclose(margins(run), 4 / 3, rtol=1e-5)
    np.testing.assert_allclose(nearest_angles(run), torch.arccos(torch.tensor(-1 / 3)), rtol=1e-5)


# plans --------------------------------------------------------------------------------------------------------------


def test_paper_plans():
    rescaled = {
        (e.labels["sweep"], e.labels["value"], e.labels["variant"]): e.cell.plan
        for e in get("mse/rescaling").planned("paper")
    }
    assert [value for sweep, value, kind in rescaled if (sweep, kind) == ("alpha", "text")][:4] == [1, 5, 15, 20]
    assert [value for sweep, value, kind in rescaled if (sweep, kind) == ("M", "text")][:5] == [1, 3, 5, 7, 10]
    plan = rescaled["M", 10, "text"]
    assert (plan.data, plan.learning_rate, plan.weight_decay) == ("mini-imagenet", 0.01, 1e-3)
    assert (plan.schedule, plan.batch_size) == ("cosine:period=200,minimum=0.0001", 128)
    assert (plan.augment, plan.model, plan.loss_scale) == (True, "resnet18:width=64", 1.0)
    assert rescaled["M", 10, "released code"].loss_scale == pytest.approx(2 / 100)
    dims = get("mse/feature-dim").planned("paper")
    squared = [e for e in dims if e.labels["loss"] == "squared-error" and e.labels["seed"] == 0]
    assert [e.labels["d"] for e in squared if e.labels["variant"] == "text"] == [5, 8, 9, 10, 512]
    assert {e.cell.plan.loss_scale for e in squared if e.labels["variant"] != "text"} == {0.2}
    assert all(e.cell.plan.augment and e.cell.features for e in dims)
    trained = {
        (e.labels["optimizer"], e.labels["variant"]): e.cell.plan for e in get("mse/optimizers").planned("paper")
    }
    assert [trained[name, "text"].learning_rate for name in ("SGD", "Adam", "L-BFGS")] == [0.05, 1e-3, 0.01]
    assert [trained[name, "text"].batch_size for name in ("SGD", "Adam", "L-BFGS")] == [128, 64, 2048]
    stored = [trained[name, "released code"] for name in ("SGD", "Adam", "L-BFGS")]
    assert [plan.learning_rate for plan in stored] == [0.05, 1e-3, 0.1]
    assert [plan.batch_size for plan in stored] == [128, 128, 512]
    assert {plan.loss_scale for plan in stored} == {0.2}
    heads = [e.cell.plan for e in get("mse/fixed-etf").planned("paper")]
    assert {plan.loss for plan in heads} == {"squared-error"}
    assert {plan.head for plan in heads} == {"linear", "etf:frame=canonical"}
    three = [e.cell.plan.model for e in get("mse/three-dimensions").planned("paper")]
    assert set(three) == {"resnet18:width=64,feature_dim=3"}


def nets(name, profile):
    return [entry for entry in get(name).planned(profile) if isinstance(entry.cell, Train)]


def test_desk_cells_are_shared():
    families = {  # cells but for their seeds
        name: {entry.cell.family for entry in get(name).planned("desk")}
        for name in ("mse/optimizers", "mse/feature-dim", "mse/fixed-etf", "mse/bias", "geometric/optimizers")
    }
    assert len(families["mse/optimizers"] & families["mse/bias"]) == 1
    assert len(families["geometric/optimizers"] & families["mse/bias"]) == 1
    for name in (*families, "mse/rescaling", "mse/three-dimensions"):
        seeds = {entry.cell.plan.seed for entry in nets(name, "desk")}
        assert len(seeds) >= 3
        assert min(seeds) >= 10


def test_every_paper_plan_has_an_optimizer_and_a_head_that_can_be_made():
    for name in ("geometric/optimizers", "mse/optimizers", "mse/bias"):
        for entry in nets(name, "paper"):
            plan = entry.cell.plan
            model = create("mlp:width=8,depth=1", (1, 4, 4), 4, head=plan.head)
            create_optimizer(plan.optimizer, [{"params": list(model.parameters())}], plan.learning_rate)
            assert (model.head.bias is None) == (entry.labels.get("bias") is False)


def test_nets_whose_units_have_all_died_leave_parts_open_and_tables_readable(tmp_path):
    names = ("nc1", "nc2", "nc3", "cosine_margin", "numerical_rank")
    weight, features = np.zeros((10, 3), np.float32), np.zeros((20, 3), np.float32)
    arrays = {"features": features, "labels": np.arange(20) % 10, "weight": weight}
    rest = {"accuracy": 0.1, "loss": 0.5, **dict.fromkeys(names)}, None, arrays
    losses = ("squared-error", "cross-entropy")
    three = [({"loss": loss}, *rest) for loss in losses]
    dims = [({"loss": loss, "d": dim}, *rest) for loss, dim in product(losses, SHARES)]
    bias = [({"loss": loss, "bias": bias}, *rest) for loss, bias in product(losses, (True, False))]
    for name, cells in (("mse/three-dimensions", three), ("mse/feature-dim", dims), ("mse/bias", bias)):
        results = results_of(tmp_path / name, with_seeds(cells))
        assert set(verdicts(get(name), results).values()) == {"underpowered"}
        json.dumps(get(name).table(results), allow_nan=False)
