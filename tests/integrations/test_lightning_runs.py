"""The Lightning callback where runs are unusual: loaders, precisions, modules, checkpoints, divergence."""

import logging
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("lightning")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torchmetrics
    from lightning.pytorch import LightningModule, Trainer

    from neuralcollapse.integrations import LightningCollapse

import low_rank
import naive

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = ["nc1", "nc2", "nc3", "nc4_mismatch", "cosine_margin"]


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)
        self.steps = 0

    def forward(self, x):
        return self.head(self.body(x))

    def logits(self, x):
        return self(x)

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.logits(batch[0]), batch[1])

    def validation_step(self, batch, index, dataloader_idx=0):
        self.log("seen", torch.tensor(1.0))
        self.logits(batch[0])

    def test_step(self, batch, index, dataloader_idx=0):
        self.logits(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class NoForward(LightningModule):
    """All is done in the steps, by parts that are called one after the other; a metric counts along."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)
        self.loss = nn.CrossEntropyLoss()
        self.accuracy = torchmetrics.MeanMetric()

    def training_step(self, batch, index):
        return self.loss(self.head(self.body(batch[0])), batch[1])

    def validation_step(self, batch, index):
        logits = self.head(self.body(batch[0]))
        self.accuracy((logits.argmax(1) == batch[1]).float())
        self.log("loss", self.loss(logits, batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data(count=90, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 5, generator=generator), torch.arange(count) % 3


def loader(x, y, size=16):
    return DataLoader(TensorDataset(x, y), batch_size=size)


def trainer_of(callbacks, folder, **options):
    return Trainer(
        callbacks=callbacks, logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
        default_root_dir=folder, **{"max_epochs": 2, "enable_checkpointing": False} | options,
    )  # fmt: skip


def truth(net, x, y):
    with torch.no_grad():
        features = net.body(x).double().numpy()
    weight, bias = (tensor.detach().double().numpy() for tensor in (net.head.weight, net.head.bias))
    return naive.all_metrics(features, y.numpy(), weight, bias)


def same(report, expected, rel=1e-4):
    for name in NAMES:
        assert report[name] == pytest.approx(expected[name], rel=rel, abs=1e-6), name


def test_two_validation_loaders_stay_two(tmp_path):
    torch.manual_seed(0)
    first, second = data(60, 1), data(45, 2)
    callback, net = LightningCollapse(), Net()
    trainer = trainer_of([callback], tmp_path)
    trainer.fit(net, loader(*data()), [loader(*first), loader(*second)])
    assert [epoch for epoch, _ in callback.history] == [0, 0, 1, 1]
    same(callback.history[2][1], truth(net, *first))
    same(callback.history[3][1], truth(net, *second))
    logged = trainer.callback_metrics
    assert float(logged["nc/nc1/dataloader_idx_1"]) == pytest.approx(callback.history[3][1].nc1, rel=1e-5)
    assert "nc/nc1" not in logged
    assert not any(module._forward_hooks for module in net.modules())


def test_validate_and_test_report_too(tmp_path):
    torch.manual_seed(0)
    callback, net, (x, y) = LightningCollapse(every=5), Net(), data(60, 1)
    trainer = trainer_of([callback], tmp_path)
    (validated,) = trainer.validate(net, loader(x, y), verbose=False)
    (tested,) = trainer.test(net, loader(x, y), verbose=False)
    assert validated["nc/nc1"] == tested["nc/nc1"] == pytest.approx(truth(net, x, y)["nc1"], rel=1e-4)
    assert len(callback.history) == 2


@pytest.mark.parametrize(("precision", "rel"), [("bf16-true", 0.1), ("64-true", 1e-4), ("bf16-mixed", 0.1)])
def test_a_loader_in_the_precision_of_the_run(precision, rel, tmp_path):
    torch.manual_seed(0)
    x, y = data()
    callback, net = LightningCollapse(loader(x, y), metrics=["nc1", "nc1_quotient"]), Net()
    trainer_of([callback], tmp_path, precision=precision).fit(net, loader(x, y))
    report = callback.history[-1][1]
    kind = {"bf16-true": torch.bfloat16, "64-true": torch.float64}.get(precision, torch.float32)
    assert net.head.weight.dtype == kind
    expected = truth(net.double(), x.double(), y)
    assert report.nc1_quotient == pytest.approx(expected["nc1_quotient"], rel=rel)


class LowRank(Net):
    """Autocast rounds the features, and the head takes them in float32."""

    def __init__(self):
        super().__init__()
        self.net = low_rank.Net("outside")

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize("with_loader", [True, False])
def test_mixed_precision_is_cut_at_its_own_rounding(with_loader, tmp_path):
    x, y = low_rank.inputs()
    callback, net = LightningCollapse(loader(x, y) if with_loader else None, metrics="nc1"), LowRank()
    net.configure_optimizers = lambda: torch.optim.SGD(net.net.parameters(), lr=1e-12)
    trainer_of([callback], tmp_path, precision="bf16-mixed", max_epochs=1).fit(net, loader(x, y), loader(x, y))
    low_rank.check(callback.history[-1][1], low_rank.truth(net.net, x, y))


@pytest.mark.parametrize("with_loader", [True, False])
def test_a_module_without_a_forward(with_loader, tmp_path):
    torch.manual_seed(0)
    x, y = data()
    callback, net = LightningCollapse(loader(x, y) if with_loader else None), NoForward()
    trainer = trainer_of([callback], tmp_path)
    trainer.fit(net, loader(x, y), loader(x, y))
    assert callback.history[-1][1].layer == "head"
    same(callback.history[-1][1], truth(net, x, y))
    # The sanity check and two epochs of validation have counted, measuring has not.
    assert float(net.accuracy.weight) == 32 + 2 * 90
    assert "log" not in vars(net)


def test_labels_and_forward_are_respected(tmp_path):
    torch.manual_seed(0)
    x, y = data()
    batches = DataLoader(TensorDataset(torch.arange(90), x, y), batch_size=16)

    def forward(module, batch):
        module(batch[1])
        return batch[2]

    class Indexed(Net):
        def validation_step(self, batch, index):
            self(batch[1])

    net = Indexed()
    own = LightningCollapse(batches, forward=forward, prefix="train/")
    watched = LightningCollapse(labels=2)
    trainer_of([own, watched], tmp_path, max_epochs=1).fit(net, loader(x, y), batches)
    same(own.history[-1][1], truth(net, x, y))
    same(watched.history[-1][1], truth(net, x, y))
    by_labels = LightningCollapse(loader(x, y), labels=lambda batch: 2 - batch[1])
    trainer_of([by_labels], tmp_path, max_epochs=1).fit(net, loader(x, y))
    same(by_labels.history[-1][1], truth(net, x, 2 - y))


def test_the_history_is_in_the_checkpoint(tmp_path):
    torch.manual_seed(0)
    x, y = data()
    callback, net = LightningCollapse(), Net()
    trainer = trainer_of([callback], tmp_path)
    trainer.fit(net, loader(x, y), loader(x, y))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert len(content["callbacks"][callback.state_key]["history"]) == 2
    again, net = LightningCollapse(), Net()
    trainer_of([again], tmp_path, max_epochs=3).fit(net, loader(x, y), loader(x, y), ckpt_path=tmp_path / "last.ckpt")
    assert [epoch for epoch, _ in again.history] == [0, 1, 2]
    before, restored = callback.history[1][1], again.history[1][1]
    assert restored.to_dict() == before.to_dict()
    assert restored.per_class.to_dict() == before.per_class.to_dict()
    assert before.cosine_margins is not None  # one a sample and epoch: too many for a checkpoint
    assert restored.cosine_margins is None
    assert restored.layer == "head"


def test_a_compiled_part_in_the_middle_of_training(tmp_path):
    torch.manual_seed(0)
    x, y = data()
    net = Net()
    body, head = net.body, net.head
    net.body, net.head = torch.compile(body, backend="eager"), torch.compile(head, backend="eager")
    watched, own = LightningCollapse(), LightningCollapse(loader(x, y), prefix="train/")
    trainer_of([watched, own], tmp_path, max_epochs=3).fit(net, loader(x, y), loader(x, y))
    for callback in (watched, own):
        assert [epoch for epoch, _ in callback.history] == [0, 1, 2]
        assert callback.history[-1][1].layer == "head"
        same(callback.history[-1][1], truth(net, x, y))


@pytest.mark.parametrize("with_loader", [True, False])
def test_a_diverged_model_ends_no_training(with_loader, tmp_path, caplog):
    class Diverging(Net):
        def on_train_batch_end(self, *_):
            if self.trainer.current_epoch == 1:
                with torch.no_grad():
                    self.head.weight.fill_(torch.nan)

    torch.manual_seed(0)
    x, y = data()
    callback = LightningCollapse(loader(x, y) if with_loader else None)
    trainer = trainer_of([callback], tmp_path, max_epochs=4)
    trainer.fit(Diverging(), loader(x, y), loader(x, y))
    assert trainer.current_epoch == 4
    assert [epoch for epoch, _ in callback.history] == [0]
    assert caplog.text.count("must be finite") == 1


def test_two_callbacks_need_two_prefixes(tmp_path):
    callbacks = [LightningCollapse(), LightningCollapse(loader(*data()))]
    with pytest.raises(ValueError, match="prefix="):
        trainer_of(callbacks, tmp_path).fit(Net(), loader(*data()), loader(*data()))


class Random(Net):
    """Draws random numbers in evaluation, too; its classifier is not the last layer that it calls."""

    def __init__(self):
        super().__init__()
        self.after = nn.Linear(3, 2)

    def forward(self, x):
        logits = super().forward(x + 0.0 * torch.rand(1))
        self.after(logits)
        return logits

    def training_step(self, batch, index):
        return super().training_step((batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1]), index)


def test_watching_a_model_that_draws_in_evaluation_leaves_the_run_as_it_is(tmp_path):
    weights, callback = [], LightningCollapse(metrics=NAMES)
    for callbacks in ([], [callback]):
        torch.manual_seed(0)
        net = Random()
        trainer_of(callbacks, tmp_path).fit(net, loader(*data()), loader(*data()))
        weights.append(net.head.weight.detach().clone())
    assert torch.equal(*weights)
    assert callback.history[-1][1].layer == "head"


class TwoViews(Net):
    """Looks at a batch and at a disturbed one in the same step."""

    def validation_step(self, batch, index, dataloader_idx=0):
        self.logits(batch[0])
        self.logits(batch[0] + 5)


def test_of_two_runs_in_a_step_none_is_chosen(tmp_path):
    net = TwoViews()
    with pytest.raises(ValueError, match=r"runs 2 times in a pass"):
        trainer_of([LightningCollapse()], tmp_path).validate(net, loader(*data()), verbose=False)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())
