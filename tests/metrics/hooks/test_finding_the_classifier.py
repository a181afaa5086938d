"""What ``measure_model`` says where it cannot decide, what it keeps meanwhile, and what it leaves behind."""

import gc
import random
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import naive
import neuralcollapse as nc
from neuralcollapse.metrics import measure_layers


class TwoHeads(nn.Module):
    def __init__(self, averaged=True):
        super().__init__()
        self.body, self.first, self.second = nn.Linear(5, 6), nn.Linear(6, 3), nn.Linear(6, 3)
        self.averaged = averaged

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        first, second = self.first(hidden), self.second(hidden)
        return (first + second) / 2 if self.averaged else (first, second)


@pytest.mark.parametrize("averaged", [True, False])
def test_two_heads_are_not_decided_and_the_error_lists_them(averaged):
    torch.manual_seed(0)
    model, batch = TwoHeads(averaged), (torch.randn(30, 5), torch.arange(30) % 3)
    with pytest.raises(ValueError, match="layer=") as caught:
        nc.measure_model(model, [batch])
    text = str(caught.value)
    assert "\n" not in text
    assert "'first' (30, 6) -> (30, 3)" in text
    assert "'second' (30, 6) -> (30, 3)" in text
    assert nc.measure_model(model, [batch], "second").layer == "second"


def test_a_distilled_transformer_names_both_of_its_heads():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.DeiTConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4,
        num_labels=3,
    )  # fmt: skip
    model = transformers.DeiTForImageClassificationWithTeacher(config)
    batch = {"pixel_values": torch.randn(16, 3, 8, 8), "labels": torch.arange(16) % 3}
    with pytest.raises(ValueError, match=r"'cls_classifier'.*'distillation_classifier'"):
        nc.measure_model(model, [batch])


def test_a_head_called_twice_for_two_outputs_is_not_decided():
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(5, 6), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.body(x)), self.head(self.body(x.flip(1)))

    with pytest.raises(ValueError, match=r"called 2 times.*forward="):
        nc.measure_model(Views(), [(torch.randn(30, 5), torch.arange(30) % 3)])


class Counted(nn.Module):
    """Remembers, without holding them, the tensors that pass between layers."""

    def __init__(self, depth, width, last):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 3)
        self.last = last
        self.passed = []
        self.alive = 0

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
            self.passed.append(weakref.ref(x))
            self.alive = max(self.alive, sum(tensor() is not None for tensor in self.passed))
        logits = self.head(x)
        if self.last:
            return logits
        self.layers[0](x)
        return logits


@pytest.mark.parametrize("last", [True, False])
def test_only_the_last_candidates_input_is_kept(last):
    torch.manual_seed(0)
    model = Counted(20, 16, last)
    gc.disable()
    try:
        report = nc.measure_model(model, [(torch.randn(30, 16), torch.arange(30) % 3)])
    finally:
        gc.enable()
    assert report.layer == "head"
    # The running value, the one before it, and one kept.
    assert model.alive <= 3


def everything(model, loader):
    generator = loader.generator
    return (
        {name: tensor.clone() for name, tensor in model.state_dict().items()},
        [module.training for module in model.modules()],
        [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        torch.get_rng_state(),
        generator.get_state(),
        random.getstate(),
        np.random.get_state()[1].copy(),
    )


class Noisy(torch.utils.data.Dataset):
    """Augments with every random number there is."""

    def __init__(self, y):
        self.y = y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        noise = torch.rand(()) + random.random() + float(np.random.rand())
        return torch.randn(5) + noise, self.y[index]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, None),
        ({"layer": "nothing"}, "unknown layer"),
        ({"labels": 7}, "labels=7"),
        ({"num_classes": 4}, "num_classes = 4"),
        ({"labels": lambda batch: batch[1] + 1}, "ignore_label="),
        ({"labels": lambda batch: batch[1].float()}, "integers"),
        ({"labels": lambda batch: ["cat"] * len(batch[1])}, "class_names="),
        ({"labels": lambda batch: batch[1][:3]}, "forward="),
        ({"max_batches": 0}, "max_batches"),
        ({"min_samples": 0}, "min_samples"),
        ({"ignore_label": []}, "ignore_label"),
        ({"reduce": "yes"}, "reduce"),
        ({"class_names": "cat"}, "class_names"),
        ({"class_names": ["ant", "bee"]}, "class_names.* label 2"),
        ({"class_names": ["ant", "bee", "cat", "dog"]}, "4 names for 3 classes"),
    ],
)
@pytest.mark.unchecked
def test_good_and_bad_calls_leave_everything_as_it_was(options, words):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 3))
    model[1].eval()
    loader = DataLoader(Noisy(torch.arange(30) % 3), 10, shuffle=True, generator=torch.Generator().manual_seed(1))
    before = everything(model, loader)
    if words is None:
        nc.measure_model(model, loader, **options)
    else:
        with pytest.raises((TypeError, ValueError), match=words) as caught:
            nc.measure_model(model, loader, **options)
        assert "\n" not in str(caught.value)
    after = everything(model, loader)
    assert all(torch.equal(after[0][name], tensor) for name, tensor in before[0].items())
    assert after[1:3] == before[1:3]
    assert torch.equal(after[3], before[3])
    assert torch.equal(after[4], before[4])
    assert after[5] == before[5]
    assert np.array_equal(after[6], before[6])


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (lambda x, y: x, "labels=.*forward="),
        (lambda x, y: {"pixels": x}, "labels=.*forward="),
        (lambda x, y: {"a": x, "b": x, "label": y}, "forward="),
        (lambda x, y: (x, torch.rand(30, 3) + 1), "one class a sample"),
        (lambda x, y: (torch.arange(30), x, y), "forward="),
        (lambda x, y: (x, y.reshape(5, 6)), None),
        (lambda x, y: (x[:, :4], y), "mat1 and mat2"),
    ],
)
def test_batches_that_cannot_be_read_name_the_argument_that_helps(batch, words):
    x, y = torch.randn(30, 5), torch.arange(30) % 3
    model = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3))
    if words is None:
        assert nc.measure_model(model, [batch(x, y)]).num_samples == 30
        return
    with pytest.raises(Exception, match=words):
        nc.measure_model(model, [batch(x, y)])


def test_two_label_like_items_are_not_guessed_between():
    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(5, 3)

        def forward(self, x, lengths=None):
            return self.head(x)

    x, y = torch.randn(30, 5), torch.arange(30) % 3
    with pytest.raises(ValueError, match="labels="):
        nc.measure_model(Optional(), [(x, y, torch.arange(30))])
    report = nc.measure_model(Optional(), [(x, y, torch.arange(30))], labels=1)
    truth = naive.covariances(x.double().numpy(), y.numpy(), 3)
    assert report.nc1_quotient == pytest.approx(np.trace(truth[0]) / np.trace(truth[1]), rel=1e-5)


def test_a_scripted_module_says_what_to_give():
    model = nn.Sequential(nn.Linear(5, 3))
    with pytest.warns(DeprecationWarning, match="script"):
        scripted = torch.jit.script(model)
    with pytest.raises(TypeError, match="the module that it was made from"):
        nc.measure_model(scripted, [(torch.randn(6, 5), torch.arange(6) % 3)])


def test_positions_are_averaged_and_channels_never():
    class Convolutions(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Sequential(nn.Conv1d(3, 16, 3), nn.BatchNorm1d(16), nn.ReLU())
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            return self.head(self.line(x).mean(2))

    torch.manual_seed(0)
    model, x, y = Convolutions(), torch.randn(60, 3, 48), torch.arange(60) % 4
    report = measure_layers(model, [(x, y)], ["line", "line.0"], pool="average", metrics="nc1")
    model.eval()
    for name, layer in (("line", model.line), ("line.0", model.line[0])):
        with torch.no_grad():
            features = layer(x).mean(2).double().numpy()
        within, between = naive.covariances(features, y.numpy(), 4)
        assert report[name].dim == 16
        assert report[name].layer == name
        assert report[name].nc1 == pytest.approx(np.trace(within @ np.linalg.pinv(between, rcond=1e-9)) / 4, rel=1e-4)


def test_tokens_are_averaged_also_after_a_convolution():
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut = nn.Conv2d(3, 8, 2, 2)

        def forward(self, x):
            return self.cut(x).flatten(2).transpose(1, 2)

    torch.manual_seed(0)
    model = nn.Sequential(Patches(), nn.LayerNorm(8), nn.Flatten(), nn.Linear(72, 3))
    x, y = torch.randn(30, 3, 6, 6), torch.arange(30) % 3
    report = measure_layers(model, [(x, y)], ["0", "1"], pool="average", metrics="nc1_quotient")
    with torch.no_grad():
        tokens = model[0](x)
    for name, features in (("0", tokens), ("1", model[1](tokens).detach())):
        within, between = naive.covariances(features.mean(1).double().numpy(), y.numpy(), 3)
        assert report[name].dim == 8
        assert report[name].nc1_quotient == pytest.approx(np.trace(within) / np.trace(between), rel=1e-4)


def test_layers_of_a_causal_model_are_paired_with_the_next_token():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=7, n_embd=8, n_layer=2, n_head=2, n_positions=12, bos_token_id=0, eos_token_id=0
    )
    model, tokens = transformers.GPT2LMHeadModel(config).eval(), torch.randint(0, 7, (20, 10))
    batch = {"input_ids": tokens, "labels": tokens}
    reports = measure_layers(model, [batch], ["transformer.h.0", "transformer.h.1"], metrics="nc1_quotient")
    with torch.no_grad():
        hidden = model.transformer(tokens, output_hidden_states=True).hidden_states[1]
    within, between = naive.covariances(
        hidden[:, :-1].reshape(-1, 8).double().numpy(), tokens[:, 1:].reshape(-1).numpy(), 7
    )
    found = reports["transformer.h.0"]
    assert found.nc1_quotient == pytest.approx(np.trace(within) / np.trace(between), rel=1e-4)
    assert any("shifted" in note for note in found.notes)


def test_classes_without_samples_are_left_out_when_asked():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 9))
    x, y = torch.randn(61, 5), torch.arange(61) % 4 * 2
    y[60] = 7
    features, weight = model[:2](x).detach().double().numpy(), model[2].weight.detach().double().numpy()
    bias = model[2].bias.detach().double().numpy()
    assert nc.measure_model(model, [(x, y)]).nc1 is None
    for limit in (1 << 30, 0):
        report = nc.measure_model(model, [(x, y)], min_samples=2, memory_limit=limit)
        kept, classes = np.arange(60), np.array([0, 2, 4, 6])
        truth = naive.all_metrics(features[kept], y.numpy()[kept] // 2, weight[classes], bias[classes])
        for name in ("nc1", "nc2", "nc3", "nc4_mismatch", "cosine_margin", "cdnv"):
            assert report[name] == pytest.approx(truth[name], rel=1e-4), name
    layers = measure_layers(model, [(x, y)], ["1"], present_only=True)
    assert layers["1"].num_classes == 5


def test_names_of_classes_reach_the_report():
    model = nn.Sequential(nn.Linear(5, 3))
    x, y = torch.randn(30, 5), torch.arange(30) % 3
    report = nc.measure_model(model, DataLoader(TensorDataset(x, y), 7), class_names=["ant", "bee", "cat"])
    assert report.per_class.names == ("ant", "bee", "cat")
    report = nc.measure_model(model, [(x, y % 2)], class_names=["ant", "bee"], present_only=True)
    assert report.per_class.names == ("ant", "bee")
    report = nc.measure_model(model, [(x, y % 2)], class_names=["ant", "bee"])  # one output more than classes
    assert report.per_class.names == ("ant", "bee", "2")


def test_a_process_of_its_own_reports_no_share():
    model = nn.Sequential(nn.Linear(5, 3))
    report = nc.measure_model(model, [(torch.randn(30, 5), torch.arange(30) % 3)], reduce=True)
    assert report.num_samples == 30
    assert not any("process" in note for note in report.notes)


class Overwriting(torch.nn.Module):
    """What follows the classifier, or a layer, writes over the tensors that these took or gave."""

    def __init__(self, functional: bool = False):
        super().__init__()
        self.trunk = torch.nn.Linear(6, 5)
        self.relu = torch.nn.ReLU(inplace=True)
        self.head = torch.nn.Linear(5, 3)
        self.functional = functional

    def forward(self, x):
        features = self.trunk(x)
        if self.functional:
            logits = torch.nn.functional.linear(features, self.head.weight, self.head.bias)
        else:
            logits = self.head(features)
        self.relu(features).add_(7.0)
        return logits


@pytest.mark.parametrize("functional", [False, True])
def test_features_that_are_overwritten_later_in_the_pass(functional):
    torch.manual_seed(0)
    model = Overwriting(functional)
    x, y = torch.randn(60, 6), torch.arange(60) % 3
    features = (x @ model.trunk.weight.T + model.trunk.bias).detach().double()
    means = torch.stack([features[y == k].mean(0) for k in range(3)])
    within = (features - means[y]).square().sum() / 60
    between = (means - means.mean(0)).square().sum() / 3
    report = nc.measure_model(model, [(x, y)], metrics="nc1_quotient")
    assert report.nc1_quotient == pytest.approx(float(within / between), rel=1e-5)
    layer = measure_layers(model, [(x, y)], ["trunk"], metrics="nc1_quotient")["trunk"]
    assert layer.nc1_quotient == pytest.approx(float(within / between), rel=1e-5)
