"""``measure_model`` on networks as their authors write them, and what it leaves behind: nothing."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuralcollapse as nc
from neuralcollapse.metrics import classifier_of, measure_layers


class Block(nn.Module):
    def __init__(self, width, stride=1):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.skip = nn.Conv2d(width, width, 1, stride)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.norm(self.first(x)))) + self.skip(x))


class ResNetLike(nn.Module):
    """The classifier is defined before the body: only the order of execution finds it."""

    def __init__(self, classes=5, width=8):
        super().__init__()
        self.fc = nn.Linear(width, classes)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(Block(width), Block(width, 2))
        self.gate = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        x = self.blocks(self.stem(x)).mean((2, 3))
        return self.fc(self.dropout(x * torch.sigmoid(self.gate(x))))

    def features(self, x):
        x = self.blocks(self.stem(x)).mean((2, 3))
        return x * torch.sigmoid(self.gate(x))


def images(samples=60, classes=5):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(samples, 3, 8, 8, generator=generator), torch.arange(samples) % classes


def loader_of(*tensors, size=16, **options):
    return DataLoader(TensorDataset(*tensors), batch_size=size, **options)


def snapshot(model):
    return (
        {name: tensor.clone() for name, tensor in model.state_dict().items()},
        {name: module.training for name, module in model.named_modules()},
        {name: (len(m._forward_hooks), len(m._forward_pre_hooks)) for name, m in model.named_modules()},
        {name: (p.requires_grad, None if p.grad is None else p.grad.clone()) for name, p in model.named_parameters()},
    )


def assert_untouched(model, before):
    after = snapshot(model)
    assert all(torch.equal(after[0][name], tensor) for name, tensor in before[0].items())
    assert after[1:3] == before[1:3]
    assert list(after[3]) == list(before[3])


@pytest.mark.parametrize("memory_limit", [1 << 30, 0])
def test_a_residual_network(memory_limit):
    torch.manual_seed(0)
    model, (x, y) = ResNetLike(), images()
    model.train()
    model.blocks[0].norm.eval()
    before = snapshot(model)
    state = torch.get_rng_state()
    report = nc.measure_model(model, loader_of(x, y, shuffle=True), memory_limit=memory_limit)
    assert torch.equal(torch.get_rng_state(), state)
    assert_untouched(model, before)
    assert torch.is_grad_enabled()
    model.eval()
    with torch.no_grad():
        expected = nc.measure(model.features(x), y, model.fc.weight, model.fc.bias)
    for name, value in report.scalars.items():
        assert value == pytest.approx(expected[name], rel=1e-4), name
    left_out = set(report.reasons) - set(expected.reasons)
    assert left_out <= ({"numerical_rank", "vci"} if memory_limit == 0 else set())


def test_the_model_runs_once_when_once_is_enough():
    model, (x, y) = ResNetLike(), images()
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    nc.measure_model(model, loader_of(x, y))
    assert len(calls) == 4
    nc.measure_model(model, loader_of(x, y), memory_limit=1500, metrics=["nc1", "nc2", "nc3", "cdnv", "vci"])
    assert len(calls) == 8
    nc.measure_model(model, loader_of(x, y), memory_limit=1500, metrics=["nc1", "cosine_margin"])
    assert len(calls) == 16
    report = nc.measure_model(model, iter(loader_of(x, y)), memory_limit=1500)
    assert len(calls) == 20
    assert report.nc1 is not None
    assert "second_pass" in report.reasons["cosine_margin"]


def test_a_perceptron_and_its_layers():
    torch.manual_seed(0)
    layers = {"hidden": nn.Linear(6, 10), "act": nn.ReLU(), "deep": nn.Linear(10, 8), "act2": nn.ReLU()}
    model = nn.Sequential(OrderedDict(layers, head=nn.Linear(8, 3, bias=False)))
    x = torch.randn(90, 6)
    y = torch.arange(90) % 3
    report = nc.measure_model(model, [(x[:50], y[:50]), (x[50:], y[50:])])
    features = model[:4](x)
    assert report.nc1 == pytest.approx(nc.measure(features, y).nc1, rel=1e-4)
    assert report.nc2 == pytest.approx(nc.measure(features, y, model.head.weight).nc2, rel=1e-6)
    named = nc.measure_model(model, [(x, y)], layer="deep", num_classes=8)
    assert named.nc2 is not None
    layers = measure_layers(model, [(x[:50], y[:50]), (x[50:], y[50:])], ["act", "act2"])
    assert list(layers) == ["act", "act2"]
    assert layers["act2"].nc1 == pytest.approx(report.nc1, rel=1e-4)
    small = measure_layers(model, [(x, y)], ["act", "act2"], 3, memory_limit=10)
    assert small["act2"].nc1 == pytest.approx(report.nc1, rel=1e-4)
    assert classifier_of(model).name == "head"
    assert classifier_of(model, "deep").weight.shape == (8, 10)


def test_layers_of_a_convolutional_network():
    torch.manual_seed(0)
    model, (x, y) = ResNetLike(), images()
    before = snapshot(model)
    layers = measure_layers(model, loader_of(x, y), ["stem", "blocks.0", "blocks"], pool="average")
    flat = measure_layers(model, loader_of(x, y), ["blocks"])
    assert layers["stem"].dim == 8
    assert flat["blocks"].dim == 8 * 16
    model.eval()
    with torch.no_grad():
        expected = nc.measure(model.blocks(model.stem(x)).mean((2, 3)), y)
    assert layers["blocks"].nc1 == pytest.approx(expected.nc1, rel=1e-3)
    model.train()
    assert_untouched(model, before)


class TinyTransformer(nn.Module):
    """Hugging Face style: keyword inputs, an output object, token labels with -100."""

    def __init__(self, classes=4, width=12):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        layer = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.classifier = nn.Linear(width, classes)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        hidden = self.encoder(self.embed(input_ids))
        return OrderedDict(logits=self.classifier(hidden), hidden_states=(hidden,))


def test_token_labels_with_an_ignored_index():
    torch.manual_seed(0)
    model = TinyTransformer()
    ids = torch.randint(0, 20, (12, 7))
    labels = ids % 4
    labels[:, 5:] = -100
    batches = [
        {"input_ids": part, "attention_mask": torch.ones_like(part), "labels": targets}
        for part, targets in zip(ids.split(5), labels.split(5), strict=True)
    ]
    report = nc.measure_model(model, batches)
    assert report.num_samples == 60
    model.eval()
    with torch.no_grad():
        hidden = model(ids)["hidden_states"][0]
    expected = nc.measure(hidden[:, :5].reshape(-1, 12), labels[:, :5].reshape(-1), model.classifier.weight)
    assert report.nc1 == pytest.approx(expected.nc1, rel=1e-3)
    streamed = nc.measure_model(model, batches, memory_limit=100)
    assert streamed.nc1 == pytest.approx(expected.nc1, rel=1e-3)
    assert streamed.cosine_margin == pytest.approx(report.cosine_margin, rel=1e-3)


def test_a_real_hugging_face_model():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=20,
        num_labels=3,
    )
    model = transformers.BertForSequenceClassification(config)
    ids = torch.randint(0, 30, (24, 6))
    batches = [
        {"input_ids": part, "attention_mask": torch.ones_like(part), "labels": part[:, 0] % 3} for part in ids.split(8)
    ]
    before = snapshot(model)
    report = nc.measure_model(model, batches)
    assert_untouched(model, before)
    assert (report.num_classes, report.dim, report.num_samples) == (3, 16, 24)
    encoded = [transformers.BatchEncoding(batch) for batch in batches]
    assert nc.measure_model(model, encoded).nc1 == pytest.approx(report.nc1, rel=1e-6)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, left, right, *, scale=1.0):
        return self.head(left + scale * right)


def test_batches_of_many_forms():
    torch.manual_seed(0)
    a, b, y = torch.randn(30, 4), torch.randn(30, 4), torch.arange(30) % 3
    expected = nc.measure(a + b, y).nc1
    model = TwoInputs()
    forms = [
        [(a, b, y)],
        [((a, b), y)],
        [({"left": a, "right": b}, y)],
        [{"left": a, "right": b, "target": y, "name": "unused"}],
        [[a, b, y.tolist()]],
    ]
    for batches in forms:
        assert nc.measure_model(model, batches).nc1 == pytest.approx(expected, rel=1e-5)

    def forward(module, batch):
        module(batch["sum"], torch.zeros(1))
        return batch["answer"]

    assert nc.measure_model(model, [{"sum": a + b, "answer": y}], forward=forward).nc1 == pytest.approx(
        expected, rel=1e-5
    )
    single = nn.Sequential(nn.Linear(4, 3))
    assert nc.measure_model(single, [{"pixels": a, "label": y}]).dim == 4


def test_a_head_that_is_no_linear_layer():
    class Cosine(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 4))

        def forward(self, x):
            return nn.functional.normalize(x) @ nn.functional.normalize(self.weight).T

    class Bare(nn.Module):
        def forward(self, x):
            return x

    torch.manual_seed(0)
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    model = nn.Sequential(nn.BatchNorm1d(4), Cosine())
    assert nc.measure_model(model, [(x, y)]).nc2 is not None
    bare = nn.Sequential(Bare())
    report = nc.measure_model(bare, [(x, y)], layer="0")
    assert report.nc1 == pytest.approx(nc.measure(x, y).nc1, rel=1e-5)
    assert report.reasons["nc2"] == "no classifier weight was given"
    with pytest.raises(ValueError, match="num_classes must be given"):
        nc.measure_model(bare, [(x, y)], layer="0", memory_limit=0)


def test_a_lightning_module_is_a_model():
    lightning = pytest.importorskip("lightning")

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(5, 7), nn.Linear(7, 3)

        def forward(self, x):
            return self.head(torch.relu(self.body(x)))

    torch.manual_seed(0)
    net, x, y = Net(), torch.randn(30, 5), torch.arange(30) % 3
    report = nc.measure_model(net, loader_of(x, y))
    assert report.nc1 == pytest.approx(nc.measure(torch.relu(net.body(x)).detach(), y).nc1, rel=1e-4)


@pytest.mark.unchecked
def test_wrong_calls_say_what_is_wrong_and_leave_the_model_alone():
    model, (x, y) = ResNetLike(), images()
    before = snapshot(model)
    cases = [
        ({"layer": "head"}, ValueError, "unknown layer 'head'"),
        ({"num_classes": 4}, ValueError, "num_classes = 4"),
        ({"loader": []}, ValueError, "no batches"),
        ({"loader": 3}, TypeError, "loader"),
        ({"loader": [x]}, TypeError, "batch must be"),
        ({"loader": [{"pixels": x}]}, ValueError, "labels under one of"),
        ({"loader": [(x, y + 1)]}, ValueError, "label 5"),
        ({"loader": [(x, y.float())]}, TypeError, "integers"),
        ({"loader": [(x, y[:5])]}, ValueError, "labels"),
        ({"loader": [(x * torch.nan, y)]}, ValueError, "finite"),
        ({"metrics": "nc8"}, ValueError, "nc8"),
        ({"passes": 0}, ValueError, "passes"),
        ({"global_mean": "mode"}, ValueError, "global_mean"),
        ({"forward": 3}, TypeError, "forward"),
        ({"progress": "yes"}, TypeError, "progress"),
        ({"model": "net"}, TypeError, "model"),
        ({"model": nn.ReLU()}, ValueError, "no nn.Linear"),
    ]
    for change, error, words in cases:
        with pytest.raises(error, match=words):
            nc.measure_model(**({"model": model, "loader": [(x, y)]} | change))
        assert_untouched(model, before)

    def boom(module, batch):
        module(batch[0])
        raise RuntimeError("from the user")

    with pytest.raises(RuntimeError, match="from the user"):
        nc.measure_model(model, [(x, y)], forward=boom)
    assert_untouched(model, before)
    with pytest.raises(ValueError, match="pool"):
        measure_layers(model, [(x, y)], pool="max")
    with pytest.raises(ValueError, match="layers"):
        measure_layers(model, [(x, y)], "stem")
    with pytest.raises(ValueError, match="num_classes"):
        measure_layers(model, [(x, y)], ["stem"], 1)


def test_a_progress_bar_goes_to_stderr(capfd):
    model, (x, y) = ResNetLike(), images()
    nc.measure_model(model, loader_of(x, y), metrics="nc1", progress=True)
    assert capfd.readouterr().out == ""
