"""The loop: every loss, head and optimizer learns; decay acts as the theory says; runs are read back."""

import dataclasses
import json

import pytest
import torch

import neuralcollapse as nc
from neuralcollapse import losses
from neuralcollapse.models import heads
from neuralcollapse.training import Plan, Progress, RiemannianSGD, Run, TrainingStopped, optimizers, train
from neuralcollapse.training import _train as train_module
from neuralcollapse.training._distributed import Team
from neuralcollapse.training._trainer import Trainer

SMALL = {
    "data": "synthetic:num_classes=4,dim=8,per_class=30,bayes_error=0.001",
    "model": "mlp:width=16,depth=2",
    "epochs": 6,
    "batch_size": 40,
    "measure": (1, 6),
    "metrics": ("nc1", "nc2", "nc3", "nc4_mismatch"),
    "weight_decay": 5e-4,
}


def small(**fields) -> Plan:
    return Plan(**{**SMALL, **fields})


def trainer(**fields) -> Trainer:
    plan = small(**fields)
    data = nc.data.load(plan.data, seed=plan.seed)
    model = nc.models.create(plan.model, data.image_shape, data.num_classes, plan.head, plan.seed)
    return Trainer(plan, model, data, Team(), torch.device("cpu"))


def one_batch(machine: Trainer) -> tuple[torch.Tensor, torch.Tensor]:
    return machine.data.train.batch(torch.arange(0, 120, 3))


LOGIT_LOSSES = [name for name, kind in losses.losses.items() if kind.takes == "logits"]


@pytest.mark.parametrize("loss", LOGIT_LOSSES)
def test_every_loss_trains(loss, tmp_path):
    run = train(small(loss=loss), tmp_path / "run")
    first, last = (row for row in run.history if row["split"] == "train")
    assert last["loss"] < first["loss"]
    assert last["accuracy"] > 0.9
    assert run.done["epochs"] == 6


@pytest.mark.parametrize("head", [*heads, "normalized:temperature=5"])
def test_every_head_trains(head, tmp_path):
    run = train(small(head=head, epochs=8, measure=(1, 8)), tmp_path / "run")
    assert run.final()["accuracy"] > (0.7 if head == "normalized" else 0.9)
    model = run.model()
    if head.startswith("normalized"):
        torch.testing.assert_close(model.head.weight.norm(dim=1), torch.ones(4))
    if head == "etf":
        gram = model.head.weight @ model.head.weight.T
        torch.testing.assert_close(gram, torch.eye(4) * 4 / 3 - 1 / 3)


OPTIMIZER_FIELDS = {
    "sgd": {},
    "adam": {"learning_rate": 1e-2},
    "adamw": {"learning_rate": 1e-2},
    "lbfgs": {"learning_rate": 0.1, "batch_size": 120},
    "riemannian-sgd": {"head": "normalized:temperature=5"},
}


@pytest.mark.parametrize("name", list(optimizers))
def test_every_optimizer_trains(name, tmp_path):
    run = train(small(optimizer=name, **OPTIMIZER_FIELDS.get(name, {})), tmp_path / "run")
    assert run.final()["accuracy"] > 0.9


def test_a_run_directory_can_be_read_back(tmp_path):
    rows, lines = [], []
    plan = small(validation=0.2)
    run = train(plan, tmp_path / "run", save_features=True, on_measure=rows.append, message=lines.append)
    assert Run.open(tmp_path / "run").plan == plan
    assert run.history == rows
    assert [row["split"] for row in rows] == ["train", "validation", "test"] * 2
    assert set(rows[0]) == {"epoch", "split", "loss", "accuracy", *plan.metrics}
    epochs, values = run.curve("nc1")
    assert epochs == [1, 6]
    assert values[1] < values[0]
    environment = json.loads((run.folder / "environment.json").read_text())
    assert environment["threads"] == 1
    assert environment["processes"] == 1
    assert run.done["best"]["accuracy"] == max(row["accuracy"] for row in rows if row["split"] == "validation")
    data = nc.data.load(plan.data, validation=0.2)
    for which in ("final", "best"):
        report = nc.measure_model(run.model(which), data.train.loader(50), metrics="nc1")
        assert report.nc1 > 0
    assert report.nc1 is not None
    final = nc.measure_model(run.model(), data.train.loader(50), metrics=plan.metrics)
    assert final.nc1 == pytest.approx(run.final()["nc1"], rel=1e-4)
    assert final.nc3 == pytest.approx(run.final()["nc3"], rel=1e-4)
    with pytest.raises(ValueError, match="was not measured"):
        run.curve("vci")
    with pytest.raises(ValueError, match="holds no run"):
        Run.open(tmp_path)
    with pytest.raises(ValueError, match="no 'worst' model"):
        run.model("worst")


def test_the_core_metrics_are_measured_without_a_choice(tmp_path):
    run = train(small(metrics=None, epochs=1, measure="every"), tmp_path / "run")
    assert {name for name, metric in nc.metrics.METRICS.items() if metric.core} <= set(run.final())
    assert "numerical_rank" not in run.final()


def test_folders_are_not_overwritten(tmp_path):
    train(small(epochs=1, measure="every"), tmp_path / "run")
    with pytest.raises(ValueError, match="holds a run already: resume it or choose another"):
        train(small(epochs=1, measure="every"), tmp_path / "run")
    with pytest.raises(ValueError, match="holds a run of another plan"):
        train(small(epochs=2, measure="every"), tmp_path / "run", resume=True)
    lines = []
    train(small(epochs=1, measure="every"), tmp_path / "run", resume=True, message=lines.append)
    assert lines == [f"{tmp_path / 'run'} is finished already"]


def test_the_same_plan_gives_the_same_bits_and_steps_are_told(tmp_path):
    seen: list[Progress] = []
    one = train(small(augment=True), tmp_path / "a", on_step=seen.append)
    two = train(small(augment=True), tmp_path / "b")
    assert one.history == two.history
    first, second = one.model().state_dict(), two.model().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert len(seen) == 6 * 3
    assert (seen[-1].epoch, seen[-1].step, seen[-1].steps) == (5, 3, 3)


def test_divergence_stops_the_run_with_one_line(tmp_path):
    with pytest.raises(TrainingStopped, match="diverged") as caught:
        train(small(learning_rate=1e12, schedule="constant", loss="squared-error"), tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_clipping_and_low_precision_run(tmp_path):
    run = train(small(clip_gradient=0.5, precision="bfloat16", epochs=12, measure=(12,)), tmp_path / "run")
    assert run.final()["accuracy"] > 0.5


def test_a_bad_device_is_named(tmp_path):
    with pytest.raises(ValueError, match="device must be auto, cpu, cuda"):
        train(small(device="abacus"), tmp_path / "run")


# decay --------------------------------------------------------------------------------------------------------------


def test_feature_decay_acts_on_the_real_features():
    """Its gradient is that of feature_decay/2 N/B |h|^2 and is not zero."""
    plain, decayed = trainer(decay_on="features"), trainer(decay_on="features", feature_decay=0.1)
    images, labels = one_batch(plain)
    for machine in (plain, decayed):
        machine.model.train()
        machine._gradient(images, labels, len(labels))
    features = plain.model.encoder(images)
    expected = torch.autograd.grad(0.05 * 120 / 40 * features.square().sum(), list(plain.model.encoder.parameters()))
    total = 0.0
    for one, two, gradient in zip(
        plain.model.encoder.parameters(), decayed.model.encoder.parameters(), expected, strict=True
    ):
        torch.testing.assert_close(two.grad - one.grad, gradient, atol=1e-5, rtol=1e-4)
        total += float(gradient.abs().sum())
    assert total > 1


@pytest.mark.unchecked
def test_norms_under_feature_decay_are_those_of_the_unconstrained_feature_model(tmp_path):
    """Halving feature_decay changes the norms of W and H and the logits as predicted; the sizes agree within 15 %."""
    found = []
    for feature_decay in (1e-3, 5e-4):
        plan = small(
            epochs=120,
            measure=(120,),
            metrics=("nc1",),
            learning_rate=0.05,
            batch_size=30,
            decay_on="features",
            weight_decay=0.01,
            bias_decay=0.01,
            feature_decay=feature_decay,
            model="mlp:width=32,depth=3",
        )
        run = train(plan, tmp_path / str(feature_decay))
        assert run.final()["nc1"] < 0.05
        found.append(run.done["theory"])
    for name in ("weight_norm", "feature_norm", "logit_scale"):
        predicted, measured = ([pair[side][name] for pair in found] for side in ("predicted", "measured"))
        assert measured == pytest.approx(predicted, rel=0.15), name
        assert measured[1] / measured[0] == pytest.approx(predicted[1] / predicted[0], rel=0.03), name
        assert abs(predicted[1] / predicted[0] - 1) > 0.05


@pytest.mark.unchecked
def test_a_wide_net_fits_random_labels_and_collapses_and_a_narrow_one_does_not(tmp_path):
    common = {"data": "digits", "per_class": 20, "test_per_class": 5, "random_labels": "independent", "epochs": 150}
    common |= {"batch_size": 40, "measure": (1, 150), "metrics": ("nc1",), "weight_decay": 1e-3}
    runs = {
        width: train(Plan(model=f"mlp:depth=3,width={width}", **common), tmp_path / str(width)) for width in (8, 128)
    }
    assert runs[128].final()["accuracy"] == 1.0
    assert runs[128].final()["nc1"] < runs[128].history[0]["nc1"] / 20
    assert runs[8].final()["accuracy"] < 0.8
    assert runs[8].final()["nc1"] > 10 * runs[128].final()["nc1"]


@pytest.mark.parametrize("head", ["linear", "linear:bias=False", "etf"])
def test_classifier_decay_is_in_the_objective(head):
    machine = trainer(decay_on="features", weight_decay=0.3, bias_decay=0.2, head=head)
    images, labels = one_batch(machine)
    objective, loss = machine.objective(images, labels, len(labels))
    weight, bias = machine.model.head.weight, machine.model.head.bias
    expected = 0.15 * float(weight.detach().square().sum()) if head != "etf" else 0.0
    expected += 0.1 * float(bias.detach().square().sum()) if bias is not None else 0.0
    assert float(objective.detach() - loss) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_lbfgs_trains_a_convolutional_net_in_either_memory_layout(tmp_path):
    ends = []
    for layout in (True, False):
        plan = small(
            data="digits",
            per_class=12,
            test_per_class=2,
            measure="every",
            model="resnet8:width=8",
            optimizer="lbfgs:iterations=5",
            learning_rate=0.1,
            batch_size=120,
            epochs=3,
            channels_last=layout,
        )
        run = train(plan, tmp_path / str(layout))
        ends.append([row["loss"] for row in run.history if row["split"] == "train"])
    # The same steps, until rounding has grown.
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-4)
    assert all(losses[-1] < losses[0] for losses in ends)


def test_weight_decay_of_lbfgs_is_in_the_objective():
    machine = trainer(optimizer="lbfgs", weight_decay=0.02, batch_size=120)
    images, labels = one_batch(machine)
    objective, loss = machine.objective(images, labels, len(labels))
    squares = sum(float(p.detach().square().sum()) for p in machine.model.parameters())
    assert float(objective.detach() - loss) == pytest.approx(0.01 * squares, rel=1e-4)


# L-BFGS and Riemannian SGD ------------------------------------------------------------------------------------------


def test_lbfgs_sees_one_objective_a_step_and_batch_norm_sees_each_batch_once():
    machine = trainer(optimizer="lbfgs", learning_rate=0.1, batch_size=60)
    norm = machine.model.encoder.layers[1]
    images, labels = one_batch(machine)
    seen = []
    original = machine.objective

    def watched(*arguments):
        seen.append(arguments[0].data_ptr())
        return original(*arguments)

    machine.objective = watched
    machine.model.train()
    start = norm.running_mean.clone()
    machine._lbfgs_step(machine.optimizer, images, labels, len(labels))
    assert len(seen) > 5
    assert set(seen) == {images.data_ptr()}
    assert norm.momentum == 0.1
    with torch.no_grad():
        batch_mean = machine.model.encoder.layers[0](images.flatten(1)).mean(0)
    torch.testing.assert_close(norm.running_mean, 0.9 * start + 0.1 * batch_mean, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("batch_size", "kept"), [(120, True), (60, False)])
def test_lbfgs_forgets_the_curvature_of_other_batches(batch_size, kept):
    machine = trainer(optimizer="lbfgs", learning_rate=0.1, batch_size=batch_size)
    images, labels = one_batch(machine)
    machine.model.train()
    counts = []
    for _ in range(2):
        machine._lbfgs_step(machine.optimizer, images, labels, len(labels))
        (state,) = machine.optimizer.state.values()
        counts.append(state["n_iter"])
    assert (counts[1] > counts[0]) is kept


def test_lbfgs_lowers_the_objective_of_its_batch():
    machine = trainer(optimizer="lbfgs", learning_rate=1.0, batch_size=120)
    images, labels = one_batch(machine)
    machine.model.train()
    losses_seen = [float(machine._lbfgs_step(machine.optimizer, images, labels, 40)) for _ in range(3)]
    assert losses_seen[2] < losses_seen[1] < losses_seen[0]


def test_riemannian_sgd_stays_on_the_spheres_and_finds_the_nearest_points():
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.Parameter(torch.nn.functional.normalize(torch.randn(3, 5, generator=generator), dim=1))
    targets = torch.nn.functional.normalize(torch.randn(3, 5, generator=generator), dim=1)
    free = torch.nn.Parameter(torch.ones(2))
    groups = [{"params": [rows], "sphere": True}, {"params": [free], "weight_decay": 0.1}]
    optimizer = RiemannianSGD(groups, 0.1, 0.5)
    for _ in range(200):
        optimizer.zero_grad()
        (-(rows * targets).sum() + 0.0 * free.sum()).backward()
        optimizer.step()
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(rows.detach(), targets, atol=1e-3, rtol=0)
    velocity = optimizer.state[rows]["velocity"]
    assert float((velocity * rows.detach()).sum(1).abs().max()) < 1e-6
    assert 0 < float(free[0].detach()) < 0.2


def test_riemannian_sgd_takes_a_closure():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = RiemannianSGD([{"params": [weight]}], 0.1, 0.0)

    def closure() -> float:
        optimizer.zero_grad()
        value = weight.square().sum()
        value.backward()
        return float(value.detach())

    assert optimizer.step(closure) == 2.0
    assert float(weight[0].detach()) == pytest.approx(0.8)


@pytest.mark.parametrize("optimizer", ["sgd", "sgd:nesterov=True", "adam", "adamw"])
@pytest.mark.parametrize("gradients", ["as the weights", "in rows"])
def test_steps_are_those_of_the_plain_optimizer_in_any_memory_layout(optimizer, gradients):
    """Fused steps misread gradients that lie in memory in another order than their weights."""
    machine = trainer(
        data="digits", model="resnet8:width=5", optimizer=optimizer, weight_decay=0.01, learning_rate=0.01
    )
    machine.model.to(memory_format=torch.channels_last)
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    options = {"momentum": 0.9, "nesterov": "nesterov" in optimizer} if optimizer.startswith("sgd") else {}
    plain = [torch.nn.Parameter(p.detach().clone()) for p in machine.parameters]
    bare = kinds[optimizer.partition(":")[0]](plain, lr=0.01, weight_decay=0.01, foreach=False, fused=False, **options)
    drawn = torch.Generator().manual_seed(0)

    def draw(images, labels, size):
        for ours, theirs in zip(machine.parameters, plain, strict=True):
            value = torch.randn(ours.shape, generator=drawn)
            ours.grad = value if gradients == "in rows" else torch.empty_like(ours).copy_(value)
            theirs.grad = torch.empty_like(theirs).copy_(value)
        return torch.zeros(()), torch.zeros(())

    machine._gradient = draw
    for _ in range(3):
        machine._step(torch.zeros(0), torch.zeros(0), 1)
        bare.step()
    for ours, theirs in zip(machine.parameters, plain, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"head": "normalized:temperature=2"}, "NormalizedUFM"),
        ({"head": "normalized:temperature=2,bias=True"}, "NoneType"),  # the normalised model has no bias
        ({"decay_on": "features", "feature_decay": 1e-3}, "RegularizedUFM"),
        ({"decay_on": "features", "feature_decay": 1e-3, "head": "linear:unit_rows=True"}, "NoneType"),
        ({"decay_on": "features", "feature_decay": 1e-3, "head": "etf"}, "NoneType"),
        ({"decay_on": "features", "feature_decay": 0.0}, "NoneType"),
        ({}, "NoneType"),
    ],
)
def test_the_model_that_matches_a_plan(changes, kind):
    plan = nc.training.Plan(loss="mse", weight_decay=1e-2, **changes)
    assert type(nc.training.matching_model(plan, [5, 5, 2], 4)).__name__ == kind


@pytest.mark.parametrize("bias", [True, False])
def test_the_matching_model_has_the_plans_numbers(bias):
    plan = nc.training.Plan(
        loss="mse", head=f"linear:bias={bias}", decay_on="features", weight_decay=0.02, feature_decay=0.03,
        bias_decay=0.5, loss_scale=2.0,
    )  # fmt: skip
    model = nc.training.matching_model(plan, [4, 4, 1], 6)
    assert model.counts == (4, 4, 1)
    assert (model.weight_decay, model.feature_decay, model.bias_decay) == (0.01, 0.015, 0.25 if bias else None)


@pytest.mark.parametrize("bias", [True, False])
def test_the_closed_form_loss_is_that_of_a_solve(tmp_path, bias):
    """Of the squared error, whose minimum depends on the bias."""
    plan = nc.training.Plan(
        per_class=3, test_per_class=2, model="mlp:width=8,depth=1", loss="mse", head=f"linear:bias={bias}",
        decay_on="features", weight_decay=0.02, feature_decay=0.004, bias_decay=0.3, epochs=1,
    )  # fmt: skip
    run = nc.training.train(plan, tmp_path / "run")
    model = nc.ufm.RegularizedUFM("mse", 10, 3, 8, 0.02, 0.004, 0.3 if bias else None)
    point = min((nc.ufm.solve(model, seed=seed, tol=1e-10) for seed in range(3)), key=lambda trace: trace.value).point
    residual = point.H @ point.W.T + (0 if point.b is None else point.b) - torch.eye(10).double()[model.labels]
    assert nc.training.closed_form_loss(run) == pytest.approx(float(residual.square().sum()) / 60, rel=1e-6)


def test_classes_of_unequal_sizes_have_no_closed_form_loss(tmp_path, monkeypatch):
    """As those of MNIST, whose 60,000 images could be ten classes of equal size."""
    plan = nc.training.Plan(
        data="synthetic:num_classes=4,dim=8,per_class=6", model="mlp:width=8,depth=1", decay_on="features",
        weight_decay=0.02, feature_decay=0.004, epochs=1, metrics=("nc1",),
    )  # fmt: skip
    equal = nc.training.train(plan, tmp_path / "equal")
    assert nc.training.closed_form_loss(equal) is not None
    assert "class_sizes" not in equal.done

    def uneven(*arguments, **options):
        data = nc.data.load(*arguments, **options)
        return dataclasses.replace(data, train=data.train.select(torch.arange(20)))

    monkeypatch.setattr(train_module, "load", uneven)
    run = nc.training.train(plan, tmp_path / "uneven")
    assert run.done["class_sizes"] == [6, 6, 6, 2]
    assert nc.training.closed_form_loss(run) is None
