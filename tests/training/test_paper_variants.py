"""What the papers' code does and their texts do not say: each variant against the few lines one would write by hand."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize, one_hot

import neuralcollapse as nc
from neuralcollapse.training import Plan, train
from neuralcollapse.training._distributed import Team
from neuralcollapse.training._trainer import Trainer
from neuralcollapse.training.run import net_of

SMALL = {
    "data": "synthetic:num_classes=4,dim=8,per_class=30,bayes_error=0.001",
    "model": "mlp:width=16,depth=2",
    "epochs": 4,
    "batch_size": 40,
    "measure": (4,),
    "metrics": ("nc1",),
    "weight_decay": 5e-4,
}


def trainer(**fields) -> Trainer:
    plan = Plan(**{**SMALL, **fields})
    data = nc.data.load(plan.data, seed=plan.seed)
    machine = Trainer(plan, net_of(plan, data.image_shape, data.num_classes), data, Team(), torch.device("cpu"))
    machine.model.train()
    return machine


def batches(machine: Trainer) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(images, labels) for images, labels, _ in machine._batches()]


def encoder_gradient(machine: Trainer) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in machine.model.encoder.parameters()])


# the loss ------------------------------------------------------------------------------------------------------------


def test_a_scale_of_two_over_k_is_pytorch_mean_over_classes():
    machine = trainer(loss="squared-error", loss_scale=2 / 4)
    images, labels = batches(machine)[0]
    by_hand = copy.deepcopy(machine.model)
    machine._gradient(images, labels, len(labels))
    nn.MSELoss()(by_hand(images), one_hot(labels, 4).float()).backward()
    for ours, theirs in zip(machine.model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_mean_over_classes_has_an_equivalent_rate_and_decay():
    """Rate times 2/K and decay times K/2, for SGD (and only the decay for Adam, which does not see the scale)."""
    pairs = {
        "sgd": ({"learning_rate": 0.04, "weight_decay": 0.01}, {"learning_rate": 0.02, "weight_decay": 0.02}),
        "adam": ({"learning_rate": 0.01, "weight_decay": 0.01}, {"learning_rate": 0.01, "weight_decay": 0.02}),
    }
    for name, (scaled, plain) in pairs.items():
        machines = [
            trainer(loss="squared-error", optimizer=name, schedule="constant", **fields)
            for fields in ({**scaled, "loss_scale": 0.5}, plain)
        ]
        for machine in machines:
            machine.run_epoch(lambda progress: None)
        for one, two in zip(*(machine.model.parameters() for machine in machines), strict=True):
            torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("over", "share"), [("set", 120 / 40), ("batch", 1.0)])
def test_feature_decay_is_over_the_set_or_the_batch(over, share):
    machine = trainer(decay_on="features", feature_decay=0.1, feature_decay_over=over, bias_decay=0.0, weight_decay=0.0)
    images, labels = batches(machine)[0]
    by_hand = copy.deepcopy(machine.model)
    machine._gradient(images, labels, len(labels))
    features = by_hand.encoder(images)
    (cross_entropy(by_hand.head(features), labels) + 0.05 * share * features.square().sum()).backward()
    for ours, theirs in zip(machine.model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4)


def test_decay_of_unit_features_has_no_gradient():
    gradients = []
    for fields in ({}, {"feature_decay": 0.1, "feature_decay_over": "unit"}):
        machine = trainer(decay_on="features", **fields)
        images, labels = batches(machine)[0]
        machine._gradient(images, labels, len(labels))
        gradients.append(encoder_gradient(machine))
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=0)


def test_decays_as_the_unconstrained_model_takes_them():
    plan = Plan(decay_on="features", weight_decay=0.1, feature_decay=0.03, bias_decay=0.2, batch_size=40)
    assert plan.decays_per_loss(120) == (0.1, 0.03, 0.2)
    batch = plan.model_copy(update={"feature_decay_over": "batch", "loss_scale": 0.5})
    assert batch.decays_per_loss(120) == pytest.approx((0.2, 0.02, 0.4))
    assert plan.model_copy(update={"feature_decay_over": "unit"}).decays_per_loss(120) is None
    assert Plan().decays_per_loss(120) is None


# order and start -----------------------------------------------------------------------------------------------------


def test_without_shuffling_every_epoch_has_the_order_of_the_data_set():
    machine = trainer(shuffle=False)
    for epoch in (0, 3):
        machine.epoch = epoch
        images, labels = (torch.cat(parts) for parts in zip(*batches(machine), strict=True))
        expected = machine.data.train.batch(torch.arange(120))
        assert torch.equal(images, expected[0])
        assert torch.equal(labels, expected[1])
    shuffled = trainer()
    orders = []
    for epoch in (0, 3):
        shuffled.epoch = epoch
        orders.append(torch.cat([labels for _, labels in batches(shuffled)]))
    assert not torch.equal(*orders)


def test_the_plan_decides_how_convolutions_start():
    facts = ((1, 8, 8), 10)
    plans = {init: Plan(model="resnet8:width=16", init=init) for init in ("kaiming-fan-out", "torch")}
    for init, plan in plans.items():
        for layer in net_of(plan, *facts).encoder.modules():
            if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 1000:
                area = math.prod(layer.kernel_size)
                wanted = (
                    2 / (layer.out_channels * area) if init == "kaiming-fan-out" else 1 / (3 * layer.in_channels * area)
                )
                assert float(layer.weight.detach().var()) == pytest.approx(wanted, rel=0.12)
    assert plans["torch"].run_id != plans["kaiming-fan-out"].run_id == Plan(model="resnet8:width=16").run_id


# heads ---------------------------------------------------------------------------------------------------------------


def test_rows_at_norm_one_after_every_step_and_nothing_else():
    machine = trainer(head="linear:unit_rows=True", weight_decay=0.3, learning_rate=0.1, schedule="constant")
    by_hand = copy.deepcopy(machine.model)
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1, momentum=0.9, weight_decay=0.3)
    for images, labels in batches(machine):
        machine._step(images, labels, len(labels))
        optimizer.zero_grad()
        cross_entropy(by_hand(images), labels).backward()
        optimizer.step()
        by_hand.head.weight.data = by_hand.head.weight.data / by_hand.head.weight.data.norm(dim=1, keepdim=True)
    torch.testing.assert_close(machine.model.head.weight.norm(dim=1), torch.ones(4))
    torch.testing.assert_close(machine.model.head.weight, by_hand.head.weight, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(machine.model.head.bias, by_hand.head.bias, atol=1e-5, rtol=1e-4)


def test_a_normalized_head_may_have_a_bias(tmp_path):
    run = train(
        Plan(**{**SMALL, "head": "normalized:temperature=5,bias=True", "epochs": 8, "measure": (8,)}), tmp_path / "run"
    )
    head = run.model().head
    assert head.bias.shape == (4,)
    features = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    by_hand = 5 * features / features.norm(dim=1, keepdim=True) @ head.weight.T + head.bias
    torch.testing.assert_close(head(features), by_hand)
    assert run.final()["accuracy"] > 0.9


def test_a_fixed_head_does_not_die_with_its_units(tmp_path):
    """At a large rate the canonical frame loses classes whose one unit died; the default, spread over all, does not."""
    common = {"data": "digits", "per_class": 60, "test_per_class": 5, "model": "mlp:width=64,depth=4", "epochs": 40}
    common |= {"loss": "squared-error", "learning_rate": 0.2, "measure": (40,), "metrics": ("nc1",)}
    ends = {
        head: train(Plan(**common, head=head), tmp_path / head.partition(":")[2]).final()["accuracy"]
        for head in ("etf", "etf:frame=canonical")
    }
    assert ends["etf"] > 0.99
    assert ends["etf:frame=canonical"] < 0.9


# L-BFGS --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["strong-wolfe", "none"])
def test_lbfgs_as_the_released_code_runs_it(search):
    """History over batches, statistics at every evaluation: PyTorch's own L-BFGS in a bare loop."""
    spec = f"lbfgs:history=5,iterations=4,line_search={search},keep=True,statistics=evaluation"
    machine = trainer(optimizer=spec, learning_rate=0.05, weight_decay=0.02, schedule="constant")
    by_hand = copy.deepcopy(machine.model)
    bare = torch.optim.LBFGS(
        by_hand.parameters(),
        lr=0.05,
        max_iter=4,
        history_size=5,
        line_search_fn="strong_wolfe" if search == "strong-wolfe" else None,
    )
    for images, labels in batches(machine):

        def closure(images=images, labels=labels):
            bare.zero_grad()
            decay = 0.02 / 2 * sum(parameter.square().sum() for parameter in by_hand.parameters())
            value = cross_entropy(by_hand(images), labels) + decay
            value.backward()
            return value

        bare.step(closure)
        machine._step(images, labels, len(labels))
    machine_state, bare_state = machine.model.state_dict(), by_hand.state_dict()
    evaluations = int(bare_state["encoder.layers.1.num_batches_tracked"])
    assert evaluations > 3
    for name, value in bare_state.items():
        torch.testing.assert_close(machine_state[name], value, atol=2e-4, rtol=2e-3)
    (ours,), (theirs,) = machine.optimizer.state.values(), bare.state.values()
    assert ours["n_iter"] == theirs["n_iter"] > 4  # more than one batch's


# supervised contrastive ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("projection", [None, 6])
def test_the_contrastive_loss_trains_the_encoder_and_cross_entropy_the_head(projection):
    machine = trainer(loss="supervised-contrastive:temperature=2.0", projection=projection, weight_decay=0.0)
    images, labels = batches(machine)[0]
    by_hand = copy.deepcopy(machine.model)
    machine._gradient(images, labels, len(labels))
    features = by_hand.encoder(images)
    rows = normalize(features if projection is None else by_hand.projection(features))
    value = 0.0
    for i in range(len(labels)):
        others = torch.arange(len(labels)) != i
        similar = 4 * rows @ rows[i]
        friends = others & (labels == labels[i])
        value = value - (similar[friends].mean() - torch.logsumexp(similar[others], 0)) / len(labels)
    value.backward()
    cross_entropy(by_hand.head(features.detach()), labels).backward()
    for ours, theirs in zip(machine.model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-3)


def test_two_views_are_two_augmentations_of_each_image():
    machine = trainer(data="digits", loss="supcon", views=2, augment=True, batch_size=200)
    images, labels = batches(machine)[0]
    half = len(labels) // 2
    assert torch.equal(labels[:half], labels[half:])
    assert not torch.equal(images[:half], images[half:])
    one_view = trainer(data="digits", loss="supcon", augment=True, batch_size=200)
    alone, classes = batches(one_view)[0]
    assert len(alone) == half
    assert torch.equal(classes, labels[:half])


@pytest.mark.parametrize("head", ["linear", "normalized"])
def test_contrastive_nets_collapse_and_are_read_back(head, tmp_path):
    plan = Plan(
        **{**SMALL, "loss": "sc:temperature=2.0", "head": head, "projection": 8, "epochs": 20, "measure": (1, 20)}
    )
    run = train(plan, tmp_path / "run")
    first, last = (row for row in run.history if row["split"] == "train")
    assert last["loss"] < first["loss"]
    assert last["nc1"] < first["nc1"]
    assert last["accuracy"] > 0.9
    assert nc.models.parameter_count(run.model()).projection == 16 * 16 + 16 + 16 * 8 + 8


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"views": 2, "loss": "supcon"}, "views=2 needs augment=True"),
        ({"views": 2, "augment": True}, "views and projection are for a loss on features"),
        ({"projection": 8}, "views and projection are for a loss on features"),
        ({"loss": "supcon", "decay_on": "features"}, "does not see the features' norms"),
        ({"head": "linear:unit_rows=True", "optimizer": "lbfgs"}, "rows of a head at norm one"),
        ({"decay_on": "features", "feature_decay_over": "batch"}, "needs a feature_decay"),
        ({"init": "xavier"}, "init"),
        ({"loss_scale": 0.0}, "loss_scale"),
        ({"random_labels": "some"}, "random_labels"),
    ],
)
def test_a_bad_variant_gets_one_clear_line(fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        Plan(**fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", ["line_search=wolfe", "statistics=never", "keep=2"])
def test_a_bad_option_of_lbfgs_is_named(option):
    with pytest.raises((ValueError, TypeError), match=option.partition("=")[0]):
        trainer(optimizer=f"lbfgs:{option}")


def test_new_fields_leave_the_ids_of_old_plans():
    assert Plan(init="kaiming-fan-out", views=1, loss_scale=1.0, shuffle=True).run_id == Plan().run_id
    assert len({Plan(**fields).run_id for fields in ({}, {"shuffle": False}, {"random_labels": True})}) == 3
