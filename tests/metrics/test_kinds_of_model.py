"""Forty kinds of model and loader, each against features that were taken from its parts by hand, in float64.

The truths come from ``naive`` (definitions in numpy); the package is not asked for any of them.
"""

import collections
import dataclasses
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import naive
import neuralcollapse as nc

K, D, N = 4, 7, 48
NAMES = ["ant", "bee", "cat", "dog"]
pytestmark = pytest.mark.filterwarnings("ignore")


@dataclasses.dataclass
class Case:
    model: nn.Module
    loader: object
    features: torch.Tensor
    labels: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    layer: str
    options: dict = dataclasses.field(default_factory=dict)
    note: str | None = None


KINDS = {}


def kind(function):
    KINDS[function.__name__] = function
    return function


def vectors(classes=K):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(N, 5, generator=generator), torch.arange(N) % classes


def images(size=6, classes=K):
    generator = torch.Generator().manual_seed(4)
    return torch.randn(N, 3, size, size, generator=generator), torch.arange(N) % classes


class Net(nn.Module):
    """A body and a head; ``way`` says how forward uses them."""

    def __init__(self, head=None, way=None):
        super().__init__()
        self.head = head if head is not None else nn.Linear(D, K)
        self.body = nn.Sequential(nn.Linear(5, D), nn.Tanh())
        self.after = nn.Linear(D, 2 * K)
        self.other = nn.Linear(D, K)
        self.temperature = nn.Parameter(torch.tensor(3.0))
        self.way = way

    def forward(self, x):
        hidden = self.body(x)
        return self.head(hidden) if self.way is None else self.way(self, hidden)


def plain(way=None, loader=None, head=None, labels=None, **changes):
    torch.manual_seed(0)
    x, y = vectors()
    model = Net(head, way)
    with torch.no_grad():
        hidden = model.body(x)
    weight = changes.pop("weight", None)
    bias = changes.pop("bias", "head")
    return Case(
        changes.pop("model", lambda net: net)(model),
        DataLoader(TensorDataset(x, y), 16) if loader is None else loader(x, y),
        changes.pop("features", lambda net, h: h)(model, hidden),
        y if labels is None else labels,
        model.head.weight if weight is None else weight(model),
        getattr(model.head, "bias", None) if isinstance(bias, str) else bias,
        changes.pop("layer", "head"),
        **changes,
    )


# models whose forward is unusual ----------------------------------------------------------------------------


@kind
def a_perceptron():
    return plain()


@kind
def a_projection_head_after_the_classifier():
    def way(net, hidden):
        logits = net.head(hidden)
        net.after(hidden)
        return logits

    return plain(way)


@kind
def logits_and_a_projection():
    return plain(lambda net, hidden: (net.head(hidden), net.after(hidden)))


@kind
def a_projection_and_logits():
    return plain(lambda net, hidden: (net.after(hidden), net.head(hidden)))


@kind
def an_output_object():
    return plain(lambda net, hidden: {"embedding": net.after(hidden), "logits": net.head(hidden)})


@kind
def a_functional_head():
    return plain(lambda net, hidden: F.linear(hidden, net.head.weight, net.head.bias))


@kind
def a_product_and_a_bias():
    return plain(lambda net, hidden: hidden @ net.head.weight.T + net.head.bias)


@kind
def a_functional_head_by_name():
    return plain(lambda net, hidden: F.linear(hidden, net.head.weight, net.head.bias), options={"layer": "head"})


@kind
def a_head_called_twice():
    def way(net, hidden):
        first = net.head(hidden)
        net.head(hidden.flip(0))
        return first

    return plain(way)


@kind
def a_functional_head_used_twice():
    def way(net, hidden):
        first = F.linear(hidden, net.head.weight, net.head.bias)
        F.linear(hidden.flip(0), net.head.weight, net.head.bias)
        return first

    return plain(way)


@kind
def the_mean_of_two_views():
    return plain(
        lambda net, hidden: (net.head(hidden) + net.head(hidden.flip(1))) / 2,
        features=lambda net, hidden: (hidden + hidden.flip(1)) / 2,
    )


@kind
def a_scaled_output():
    return plain(lambda net, hidden: net.temperature * net.head(hidden))


@kind
def log_probabilities():
    return plain(lambda net, hidden: F.log_softmax(net.head(hidden), 1))


@kind
def a_model_that_returns_its_loss():
    return plain(lambda net, hidden: net.head(hidden).logsumexp(1).mean(), options={"num_classes": K})


@kind
def one_of_two_heads_by_name():
    return plain(lambda net, hidden: (net.head(hidden) + net.other(hidden)) / 2, options={"layer": "head"})


class LowRank(nn.Module):
    """The layout of low-rank adapters: a frozen layer and two thin ones beside it."""

    def __init__(self, base_layer, rank=2, scaling=2.0):
        super().__init__()
        self.base_layer = base_layer
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base_layer.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, base_layer.out_features, bias=False)})
        self.scaling = {"default": scaling}

    @property
    def weight(self):
        return self.base_layer.weight

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x)) * self.scaling["default"]


def low_rank_weight(net):
    up, down = net.head.lora_B["default"].weight.double(), net.head.lora_A["default"].weight.double()
    return net.head.base_layer.weight.double() + 2.0 * up @ down


@kind
def a_low_rank_adapter_on_the_head():
    torch.manual_seed(0)
    base = nn.Linear(D, K)
    return plain(head=LowRank(base), weight=low_rank_weight, bias=base.bias)


@kind
def an_adapter_of_another_layout():
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen, self.extra = nn.Linear(D, K), nn.Linear(D, K)

        def forward(self, x):
            return self.frozen(x) + 0.5 * self.extra(x)

    torch.manual_seed(0)
    head = Beside()
    bias = head.frozen.bias.double() + 0.5 * head.extra.bias.double()
    weight = head.frozen.weight.double() + 0.5 * head.extra.weight.double()
    return plain(head=head, weight=lambda net: weight, bias=bias)


@kind
def a_head_with_a_scaled_weight():
    class Equalised(nn.Linear):
        def forward(self, x):
            return F.linear(x, 3.0 * self.weight, self.bias)

    torch.manual_seed(0)
    return plain(head=Equalised(D, K), weight=lambda net: 3.0 * net.head.weight)


@kind
def a_cosine_head():
    class Cosine(nn.Module):
        def __init__(self):
            super().__init__()
            self.prototypes = nn.Parameter(torch.randn(K, D))

        def forward(self, x):
            return 8 * F.linear(F.normalize(x), F.normalize(self.prototypes))

    torch.manual_seed(0)
    return plain(head=Cosine(), weight=lambda net: net.head.prototypes, bias=None, note="is not linear in its input")


@kind
def a_weight_normalised_head():
    torch.manual_seed(0)
    return plain(head=nn.utils.parametrizations.weight_norm(nn.Linear(D, K)))


@kind
def a_head_that_keeps_its_weight_transposed():
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(D, K)), nn.Parameter(torch.randn(K))

        def forward(self, x):
            return x @ self.weight + self.bias

    torch.manual_seed(0)
    return plain(head=Transposed(), weight=lambda net: net.head.weight.T)


@kind
def a_head_with_one_output():
    y = torch.arange(N) % 2
    torch.manual_seed(0)
    return plain(
        head=nn.Linear(D, 1),
        loader=lambda x, _: [(x[:30], y[:30].float()), (x[30:], y[30:].float())],
        labels=y,
        weight=lambda net: torch.cat([-net.head.weight / 2, net.head.weight / 2]),
        bias=None,
        note="one output",
    )


@kind
def a_head_with_one_squeezed_output_and_truth_values():
    y = torch.arange(N) % 2
    torch.manual_seed(0)
    head = nn.Linear(D, 1)
    case = plain(
        lambda net, hidden: net.head(hidden).squeeze(1),
        head=head,
        loader=lambda x, _: [(x, y.bool())],
        labels=y,
        weight=lambda net: torch.cat([-net.head.weight / 2, net.head.weight / 2]),
        note="truth values",
    )
    case.bias = torch.cat([-head.bias / 2, head.bias / 2])
    return case


# compiled and wrapped ---------------------------------------------------------------------------------------


def used(model):
    """Compiled code that has been made for both modes before the measurement."""
    x, _ = vectors()
    for mode in (False, True):
        model.train(mode)
        model(x)
    return model


@kind
def a_compiled_model():
    return plain(model=lambda net: used(torch.compile(net, backend="eager")))


@kind
def a_model_compiled_in_place():
    def compiled(net):
        net.compile(backend="eager")
        return used(net)

    return plain(model=compiled)


@kind
def compiled_parts():
    def compiled(net):
        net.body, net.head = torch.compile(net.body, backend="eager"), torch.compile(net.head, backend="eager")
        return used(net)

    return plain(model=compiled)


@kind
def a_data_parallel_wrapper():
    return plain(model=nn.DataParallel, options={"layer": "module.head"})


# loaders and labels -----------------------------------------------------------------------------------------


@kind
def a_data_set_instead_of_a_loader():
    return plain(loader=TensorDataset)


@kind
def a_stream():
    class Stream(IterableDataset):
        def __init__(self, x, y):
            self.pairs = list(zip(x, y, strict=True))

        def __iter__(self):
            return iter(self.pairs)

    return plain(loader=lambda x, y: DataLoader(Stream(x, y), 10))


@kind
def a_generator():
    return plain(loader=lambda x, y: iter([(x[:20], y[:20]), (x[20:], y[20:])]))


@kind
def batches_with_an_index():
    return plain(loader=lambda x, y: [(x, y, torch.arange(N))], note="item 1 of 3")


@kind
def batches_with_paths():
    return plain(loader=lambda x, y: [(x, y, ["a.png"] * N)], note="item 1 of 3")


@kind
def an_index_first_and_labels_by_position():
    def run(net, batch):
        net(batch[1])

    return plain(loader=lambda x, y: [(torch.arange(N), x, y)], options={"labels": 2, "forward": run})


@kind
def a_named_tuple():
    pair = collections.namedtuple("Pair", ["image", "label"])
    return plain(loader=lambda x, y: [pair(x, y)])


@kind
def one_hot_labels():
    return plain(loader=lambda x, y: [(x, F.one_hot(y, K))], note="one-hot")


@kind
def soft_labels():
    return plain(loader=lambda x, y: [(x, F.one_hot(y, K) * 0.8 + 0.05)], note="soft")


@kind
def names_of_classes():
    return plain(loader=lambda x, y: [(x, [NAMES[k] for k in y])], options={"class_names": NAMES})


@kind
def a_model_that_takes_the_whole_batch():
    class Whole(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, batch):
            return self.net(batch["image"])

    return plain(model=Whole, loader=lambda x, y: [{"image": x, "label": y}], layer="net.head")


@kind
def labels_under_another_key():
    return plain(loader=lambda x, y: [{"x": x, "answer": y}], options={"labels": "answer"})


@kind
def a_sample_of_the_batches():
    case = plain(options={"max_batches": 2}, note="first 2 batches")
    case.features, case.labels = case.features[:32], case.labels[:32]
    return case


# convolutions and positions ---------------------------------------------------------------------------------


class ConvNet(nn.Module):
    def __init__(self, way, head=None, width=D):
        super().__init__()
        self.head = head if head is not None else nn.Conv2d(width, K, 1)
        self.body = nn.Conv2d(3, width, 3, padding=1)
        self.squeeze = nn.Conv2d(width, width, 1)
        self.way = way

    def features(self, x):
        return torch.relu(self.squeeze(torch.relu(self.body(x))))

    def forward(self, x):
        return self.way(self, self.features(x))


def convolved(way, rows, labels, layer="head", size=6, **options):
    torch.manual_seed(0)
    x, _ = images(size)
    model = ConvNet(way)
    with torch.no_grad():
        features = rows(model.features(x))
    return Case(
        model,
        [(x, labels)],
        features,
        options.pop("kept", labels).reshape(-1),
        model.head.weight.flatten(1),
        model.head.bias,
        layer,
        **options,
    )


def dense_labels(size=6):
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, K, (N, size, size), generator=generator)
    labels[:, 0] = 255
    labels[:, 1] = 254
    return labels


@kind
def a_convolution_after_pooling():
    return convolved(
        lambda net, h: net.head(h.mean((2, 3), keepdim=True)).flatten(1), lambda h: h.mean((2, 3)), torch.arange(N) % K
    )


@kind
def a_convolution_before_pooling():
    return convolved(
        lambda net, h: net.head(h).mean((2, 3)), lambda h: h.mean((2, 3)), torch.arange(N) % K, note="averaged"
    )


@kind
def segmentation_with_two_ignored_labels():
    labels = dense_labels()
    kept = labels < K
    return convolved(
        lambda net, h: net.head(h),
        lambda h: h.movedim(1, -1)[kept],
        labels,
        kept=labels[kept],
        options={"ignore_label": [255, 254]},
    )


@kind
def segmentation_as_wide_as_the_image():
    """Channels, height and width are equal: only the kind of layer says which is which."""
    labels = dense_labels(D)
    kept = labels < K
    return convolved(
        lambda net, h: net.head(h),
        lambda h: h.movedim(1, -1)[kept],
        labels,
        size=D,
        kept=labels[kept],
        options={"ignore_label": (254, 255)},
    )


@kind
def tokens_flattened_before_the_head():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(20, D), nn.Linear(D, K)

        def forward(self, tokens):
            return self.head(torch.tanh(self.embed(tokens)).view(-1, D))

    torch.manual_seed(0)
    tokens, model = torch.randint(0, 20, (N, 6)), Tagger()
    labels = tokens % K
    labels[:, 4:] = -100
    features = torch.tanh(model.embed(tokens)).detach()[:, :4].reshape(-1, D)
    return Case(
        model, [(tokens, labels)], features, labels[:, :4].reshape(-1), model.head.weight, model.head.bias, "head"
    )


class Recurrent(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.body, self.head, self.way = nn.LSTM(5, D, batch_first=True), nn.Linear(D, K), way

    def forward(self, x):
        return self.way(self.head, self.body(x)[0])


def recurrent(way, rows, labels, **options):
    torch.manual_seed(0)
    model, x = Recurrent(way), torch.randn(N, 3, 5)
    features = rows(model.body(x)[0].detach())
    head = model.head
    return Case(model, [(x, labels)], features, labels.reshape(-1), head.weight, head.bias, "head", **options)


@kind
def the_last_step_of_a_recurrent_net():
    return recurrent(lambda head, h: head(h[:, -1]), lambda h: h[:, -1], torch.arange(N) % K)


@kind
def logits_averaged_over_steps():
    return recurrent(lambda head, h: head(h).mean(1), lambda h: h.mean(1), torch.arange(N) % K, note="averaged")


@kind
def a_step_that_the_model_picks():
    return recurrent(lambda head, h: head(h)[:, 1], lambda h: h[:, 1], torch.arange(N) % K, note="itself picks")


@kind
def tokens_with_classes_in_the_middle():
    """The shape that a cross entropy of sequences takes."""
    labels = torch.arange(3 * N).reshape(N, 3) % K
    return recurrent(lambda head, h: head(h).transpose(1, 2), lambda h: h.reshape(-1, D), labels)


@kind
def a_linear_layer_itself():
    torch.manual_seed(0)
    x, y = vectors()
    model = nn.Linear(5, K)
    return Case(model, [(x, y)], x, y, model.weight, model.bias, "the model itself")


# Hugging Face -----------------------------------------------------------------------------------------------

VOCABULARY = 9


def language():
    """Tokens whose successors depend on them, so that a pairing without a shift shows."""
    generator = torch.Generator().manual_seed(6)
    tokens = torch.randint(0, VOCABULARY, (N, 10), generator=generator)
    tokens[:, 1::2] = (tokens[:, ::2] * 2 + 1) % VOCABULARY
    return tokens


def gpt2(**changes):
    transformers = pytest.importorskip("transformers")
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None} | changes
    return transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=12, n_layer=1, n_head=2, n_positions=16, **ends)


def llama(**changes):
    transformers = pytest.importorskip("transformers")
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None} | changes
    sizes = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=1, **sizes, **ends)


def bert(**changes):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.BertConfig(vocab_size=VOCABULARY, pad_token_id=None, **sizes, **changes)


def causal(model, hidden, layer, same_object=True):
    model.eval()
    tokens = language()
    with torch.no_grad():
        features = hidden(model, tokens)
    head = dict(model.named_modules())[layer]
    labels = tokens if same_object else tokens.clone()
    return Case(
        model,
        [{"input_ids": tokens, "labels": labels}],
        features[:, :-1].reshape(-1, 12),
        tokens[:, 1:].reshape(-1),
        head.weight,
        head.bias,
        layer,
        note="shifted by one token",
    )


@kind
def a_causal_model_with_a_tied_head():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel(gpt2())
    assert model.lm_head.weight is model.transformer.wte.weight
    return causal(model, lambda m, t: m.transformer(t).last_hidden_state, "lm_head")


@kind
def llama_with_padding():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    case = causal(
        transformers.LlamaForCausalLM(llama()), lambda m, t: m.model(t).last_hidden_state, "lm_head", same_object=False
    )
    batch = case.loader[0]
    batch["labels"][:, -2:] = -100
    kept = batch["labels"][:, 1:].reshape(-1) != -100
    case.features, case.labels = case.features[kept], case.labels[kept]
    return case


@kind
def an_encoder_used_as_a_causal_model():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")

    def hidden(model, tokens):
        return model.cls.predictions.transform(model.bert(tokens).last_hidden_state)

    return causal(transformers.BertLMHeadModel(bert(is_decoder=True)), hidden, "cls.predictions.decoder")


@kind
def a_masked_language_model():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    model, tokens = transformers.BertForMaskedLM(bert()).eval(), language()
    with torch.no_grad():
        features = model.cls.predictions.transform(model.bert(tokens).last_hidden_state)
    head = model.cls.predictions.decoder
    batch = {"input_ids": tokens, "labels": tokens.clone()}
    return Case(
        model, [batch], features.reshape(-1, 12), tokens.reshape(-1), head.weight, head.bias, "cls.predictions.decoder"
    )


@kind
def an_encoder_and_decoder():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=12, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    model, tokens = transformers.T5ForConditionalGeneration(config).eval(), language()
    caught = []
    hook = model.lm_head.register_forward_hook(lambda module, inputs, output: caught.append(inputs[0].detach()))
    shifted = torch.cat([torch.zeros(N, 1, dtype=torch.long), tokens[:, :-1]], 1)
    with torch.no_grad():
        model(input_ids=tokens, decoder_input_ids=shifted)
    hook.remove()
    batch = {"input_ids": tokens, "labels": tokens.clone()}
    return Case(model, [batch], caught[0].reshape(-1, 12), tokens.reshape(-1), model.lm_head.weight, None, "lm_head")


@kind
def token_classification():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    model, tokens = transformers.BertForTokenClassification(bert(num_labels=3)).eval(), language()
    with torch.no_grad():
        features = model.bert(tokens).last_hidden_state
    batch = {"input_ids": tokens, "labels": tokens % 3}
    head = model.classifier
    return Case(
        model, [batch], features.reshape(-1, 12), (tokens % 3).reshape(-1), head.weight, head.bias, "classifier"
    )


def sequences(model, base, side):
    tokens = language().clamp(min=1)
    mask = torch.ones_like(tokens)
    for row in range(N):
        missing = row % 4
        places = slice(10 - missing, 10) if side == "right" else slice(0, missing)
        tokens[row, places], mask[row, places] = 0, 0
    last = torch.full((N,), 9) if side == "left" else 9 - torch.arange(N) % 4
    labels = torch.arange(N) % 3
    model.eval()
    with torch.no_grad():
        hidden = base(input_ids=tokens, attention_mask=mask).last_hidden_state
    batches = [
        {"input_ids": tokens[part], "attention_mask": mask[part], "labels": labels[part]}
        for part in torch.arange(N).split(20)
    ]
    return Case(
        model, batches, hidden[torch.arange(N), last], labels, model.score.weight, None, "score", note="itself picks"
    )


@kind
def a_decoder_that_classifies_with_padding_on_the_right():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2ForSequenceClassification(gpt2(num_labels=3, pad_token_id=0))
    return sequences(model, model.transformer, "right")


@kind
def a_decoder_that_classifies_with_padding_on_the_left():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForSequenceClassification(llama(num_labels=3, pad_token_id=0))
    return sequences(model, model.model, "left")


@kind
def a_vision_transformer():
    torch.manual_seed(0)
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=12, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=6, patch_size=3,
        num_labels=K,
    )  # fmt: skip
    model, (x, y) = transformers.ViTForImageClassification(config).eval(), images()
    with torch.no_grad():
        features = model.vit(x).last_hidden_state[:, 0]
    head = model.classifier
    return Case(model, [{"pixel_values": x, "labels": y}], features, y, head.weight, head.bias, "classifier")


# the test ---------------------------------------------------------------------------------------------------

CHOSEN = ["nc1", "nc1_quotient", "nc2", "nc3", "nc3_frobenius", "nc4_mismatch", "cdnv", "equinorm_means"]


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_of_model(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = KINDS[name]()
    model = case.model
    model.train()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    report = nc.measure_model(model, case.loader, **{"metrics": CHOSEN} | case.options)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())

    weight = case.weight.detach().double().numpy()
    bias = np.zeros(len(weight)) if case.bias is None else case.bias.detach().double().numpy()
    if name == "a_head_with_one_output":
        bias = np.array([-0.5, 0.5]) * float(model.head.bias.detach())
    truth = naive.all_metrics(case.features.double().numpy(), case.labels.numpy(), weight, bias)
    assert report.layer == case.layer or case.layer in report.layer
    assert (report.num_samples, report.dim) == tuple(case.features.shape)
    for metric in CHOSEN:
        assert report[metric] == pytest.approx(truth[metric], rel=2e-4, abs=1e-6), metric
    if case.note is not None:
        assert any(case.note in note for note in report.notes), report.notes
    if "shifted" not in (case.note or ""):
        assert not any("shifted" in note for note in report.notes)


def test_there_are_enough_kinds():
    assert len(KINDS) >= 40
