"""Heads and loaders as real networks have them, each against float64 truths made from the network's parts by hand.

What a model does to its logits after the last layer (a prior, a normalisation, a cut) belongs to the classifier; what
cannot be told is an error, and what is taken without proof is said in the notes.
"""

import copy
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import naive
import neuralcollapse as nc

K, D, N = 4, 7, 48
METRICS = ["nc1", "nc2", "nc3", "nc4_bias", "nc4_mismatch", "cdnv"]
PRIOR = torch.tensor([1.0, -2.0, 0.5, 0.0])
SCALES = torch.tensor([1.0, 2.0, 3.0, 0.5])
MAPPED = "scales or shifts"
pytestmark = pytest.mark.filterwarnings("ignore")


def data():
    return torch.randn(N, 5, generator=torch.Generator().manual_seed(3)), torch.arange(N) % K


def batches():
    return DataLoader(TensorDataset(*data()), 16)


class Net(nn.Module):
    body: Any
    head: Any
    aux: Any

    def __init__(self, way=None, head=None):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(5, D), nn.Tanh())
        self.head = nn.Linear(D, K) if head is None else head
        self.way = way

    def forward(self, x):
        hidden = self.body(x)
        return self.head(hidden) if self.way is None else self.way(self, hidden)


def check(
    model, weight, bias, *, features=None, labels=None, layer="head", loader=None, note=None, rel=2e-4, **options
):
    x, y = data()
    y = y if labels is None else labels
    with torch.no_grad():
        hidden = model.body(x) if features is None else features
    bias = torch.zeros(len(weight)) if bias is None else bias
    h, w, b = (part.detach().double().numpy() for part in (hidden, weight, bias))
    truth = naive.all_metrics(h, y.numpy(), w, b)
    loader = DataLoader(TensorDataset(x, y), 16) if loader is None else loader
    report = nc.measure_model(model, loader, metrics=METRICS, **options)
    assert report.layer is not None
    assert layer in report.layer
    for name in METRICS:
        assert report[name] == pytest.approx(truth[name], rel=rel, abs=1e-6), name
    told = [line for line in report.notes if note is not None and note in line]
    assert note is None or told, report.notes
    return report


# what comes after the last layer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "scale", "shift"),
    [
        (lambda net, h: net.head(h) + PRIOR, torch.ones(K), PRIOR),
        (lambda net, h: net.head(h) / 0.07 + PRIOR, torch.full((K,), 1 / 0.07), PRIOR),
        (lambda net, h: net.head(h) * SCALES, SCALES, torch.zeros(K)),
        (lambda net, h: SCALES * (net.head(h) - PRIOR), SCALES, -SCALES * PRIOR),
        (lambda net, h: F.linear(h, net.head.weight, net.head.bias) + PRIOR, torch.ones(K), PRIOR),
        (lambda net, h: -net.head(h), -torch.ones(K), torch.zeros(K)),
    ],
    ids=["prior", "temperature-and-prior", "scale", "scale-and-shift", "functional-and-prior", "energy"],
)
def test_a_scale_and_shift_of_the_logits_belong_to_the_classifier(way, scale, shift):
    net = Net(way)
    check(net, scale[:, None] * net.head.weight, scale * net.head.bias + shift, note=MAPPED)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_prior_is_seen_in_half_precision(dtype):
    """A tolerance of many roundings would take a prior of a tenth of the logits for no prior at all."""
    net = Net(lambda net, h: net.head(h) + 0.2 * PRIOR.to(h.dtype)).to(dtype)
    x, y = data()
    with torch.no_grad():
        hidden = net.body(x.to(dtype))
    report = nc.measure_model(net, DataLoader(TensorDataset(x.to(dtype), y), 16), metrics=["nc4_bias"])
    shift = 0.2 * PRIOR.to(dtype).double()
    logits = hidden.double().mean(0) @ net.head.weight.double().T + net.head.bias.double() + shift
    assert report.nc4_bias == pytest.approx(float(logits.norm()), rel=0.02)
    assert any(MAPPED in note for note in report.notes)


@pytest.mark.parametrize("inside", [True, False])
def test_batch_normalisation_of_logits_belongs_to_the_classifier(inside):
    norm: Any = nn.BatchNorm1d(K)
    generator = torch.Generator().manual_seed(5)
    norm.running_mean.normal_(generator=generator)
    norm.running_var.uniform_(0.5, 2, generator=generator)
    net = Net(head=nn.Sequential(nn.Linear(D, K), norm))
    linear = net.head[0]
    if not inside:
        net.head, net.norm = linear, norm
        net.way = lambda net, h: net.norm(net.head(h))
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    bias = scale * (linear.bias - norm.running_mean) + norm.bias
    check(net, scale[:, None] * linear.weight, bias)


def test_outputs_that_only_fill_up_the_vocabulary_are_cut_with_their_rows():
    net = Net(lambda net, h: net.head(h)[:, :K], nn.Linear(D, 8))
    report = check(net, net.head.weight[:K], net.head.bias[:K])
    assert report.num_classes == K


# heads that are no linear layer -------------------------------------------------------------------------------


class Int8(nn.Module):
    """A weight in eight bits with a scale a row, made anew in float32 at every call."""

    weight: torch.Tensor

    def __init__(self):
        super().__init__()
        weight = SCALES[:, None] * torch.randn(K, D, generator=torch.Generator().manual_seed(1))
        self.scale = weight.abs().amax(1) / 127
        self.register_buffer("weight", (weight / self.scale[:, None]).round().to(torch.int8))
        self.bias = nn.Parameter(PRIOR.clone())

    def forward(self, x):
        return F.linear(x, self.weight.float() * self.scale[:, None], self.bias)


def test_a_head_in_eight_bits():
    head = Int8()
    check(Net(head=head), head.weight.float() * head.scale[:, None], head.bias)


def test_a_head_of_dynamic_quantisation():
    net = Net()
    net.head = torch.ao.quantization.quantize_dynamic(nn.Sequential(net.head), {nn.Linear})[0]
    check(net, net.head.weight().dequantize(), net.head.bias())


class MaskFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(K, D)), nn.Parameter(torch.randn(K))

    def forward(self, mask, hidden):
        return F.linear(hidden, self.weight, self.bias)


@pytest.mark.parametrize("named", [True, False])
def test_the_features_are_found_beside_a_mask(named):
    def way(net, h):
        mask = torch.ones(len(h), 3)
        return net.head(mask=mask, hidden=h) if named else net.head(mask, h)

    net = Net(way, MaskFirst())
    check(net, net.head.weight, net.head.bias)


class Centred(nn.Module):
    def forward(self, weight):
        return weight - weight.mean(0)


@pytest.mark.parametrize(
    "parametrize",
    [
        torch.nn.utils.parametrizations.weight_norm,
        torch.nn.utils.parametrizations.spectral_norm,
        torch.nn.utils.parametrizations.orthogonal,
        lambda head: nn.utils.parametrize.register_parametrization(head, "weight", Centred()),
        lambda head: prune.random_unstructured(head, "weight", 0.5),
    ],
    ids=["weight-norm", "spectral-norm", "orthogonal", "centred", "pruned"],
)
def test_parametrised_heads(parametrize):
    net = Net()
    parametrize(net.head)
    net.eval()
    check(net, net.head.weight, net.head.bias)


@pytest.mark.parametrize(
    ("way", "bias"),
    [
        (lambda net, h: torch.einsum("nd,kd->nk", h, net.head.weight) + net.head.bias, True),
        (lambda net, h: torch.einsum("dk,nd->nk", net.head.weight.T, h), False),
        (lambda net, h: torch.addmm(net.head.bias, h, net.head.weight.t()), True),
        (lambda net, h: (net.head.weight @ h.T).T + net.head.bias, True),
        (lambda net, h: h.matmul(net.head.weight.t()), False),
    ],
    ids=["einsum", "einsum-transposed", "addmm", "weight-first", "matmul"],
)
def test_products_of_every_kind(way, bias):
    net = Net(way)
    check(net, net.head.weight, net.head.bias if bias else None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_in_half_precision_is_the_right_one(dtype):
    """Two products of the same shape; in bfloat16 the tolerance must not take the first for the second."""

    def way(net, h):
        other = h @ net.other.T
        return h @ net.head.weight.T + 0 * other

    net = Net(way)
    net.other = nn.Parameter(torch.randn(K, D))
    net = net.to(dtype)
    x, y = data()
    report = nc.measure_model(net, DataLoader(TensorDataset(x.to(dtype), y), 16), metrics=["nc2"])
    gram = net.head.weight.double() @ net.head.weight.double().T
    etf = (torch.eye(K, dtype=torch.float64) - 1 / K) / (K - 1) ** 0.5
    assert report.layer == "head"
    assert report.nc2 == pytest.approx(float((gram / gram.norm() - etf).norm()), rel=1e-6)


class LowRank(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(D, K), nn.Linear(D, 2, bias=False), nn.Linear(2, K, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


@pytest.mark.parametrize("head", [nn.Linear, LowRank])
def test_dropout_that_is_left_on(head):
    """The features are those that the head saw; the second run over the data sees the same ones."""
    seen = []

    def way(net, h):
        h = F.dropout(h, 0.3, training=True)
        seen.append(h)
        return net.head(h)

    torch.manual_seed(0)
    net = Net(way, nn.Linear(D, K) if head is nn.Linear else LowRank())
    torch.manual_seed(7)
    once = nc.measure_model(net, batches(), metrics=["nc1", "nc2", "cdnv"])
    torch.manual_seed(7)
    twice = nc.measure_model(net, batches(), metrics=["nc1", "nc2", "cdnv"], memory_limit=0, passes=2)
    for name in ("nc1", "nc2", "cdnv"):
        assert twice[name] == pytest.approx(once[name], rel=1e-5), name
    assert once.layer == "head"
    hidden = torch.cat(seen[-3:]).double().numpy()
    weight = net.head.weight if head is nn.Linear else net.head.base.weight + net.head.up.weight @ net.head.down.weight
    truth = naive.all_metrics(hidden, data()[1].numpy(), weight.detach().double().numpy(), np.zeros(K))
    for name in ("nc1", "nc2", "cdnv"):
        assert once[name] == pytest.approx(truth[name], rel=2e-4), name


# what cannot be told ------------------------------------------------------------------------------------------


class Prototypes(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Linear(5, dim)
        self.points = nn.Parameter(torch.randn(K, dim))

    def forward(self, x):
        return -torch.cdist(self.body(x), self.points).square()


@pytest.mark.parametrize("dim", [K, 9])
@pytest.mark.parametrize("options", [{}, {"present_only": True}, {"num_classes": K}])
def test_the_only_linear_layer_is_not_the_classifier_of_a_prototype_net(dim, options):
    with pytest.raises(ValueError, match=r"classifier cannot be told.*candidates: 'body'"):
        nc.measure_model(Prototypes(dim), batches(), **options)


def test_the_sum_of_two_heads_is_no_layer():
    net = Net(lambda net, h: net.head(h) + net.second(h))
    net.second = nn.Linear(D, K)
    with pytest.raises(ValueError, match=r"cannot be told.*'head'.*'second'"):
        nc.measure_model(net, batches())


def test_a_layer_taken_by_its_width_is_noted():
    y = data()[1]
    net = Net(lambda net, h: net.head(h).softmax(1)[:, 1], nn.Linear(D, 2))
    check(net, net.head.weight, net.head.bias, labels=y % 2, note="by the number of its outputs")


# wrappers, outputs and loaders --------------------------------------------------------------------------------


def test_an_average_of_weights():
    net = Net()
    average = torch.optim.swa_utils.AveragedModel(net, avg_fn=lambda mean, new, count: 0.5 * mean + 0.5 * new)
    average.update_parameters(net)
    with torch.no_grad():
        for tensor in net.parameters():
            tensor.add_(1.0)
    average.update_parameters(net)
    inner: Any = average.module
    with torch.no_grad():
        features = inner.body(data()[0])
    check(average, inner.head.weight, inner.head.bias, features=features, layer="module.head")


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(reentrant):
    net = Net(
        lambda net, h: checkpoint(net.head, checkpoint(torch.tanh, h, use_reentrant=reentrant), use_reentrant=reentrant)
    )
    with torch.no_grad():
        features = net.body(data()[0]).tanh()
    check(net, net.head.weight, net.head.bias, features=features)


@dataclasses.dataclass
class Output:
    aux: torch.Tensor
    logits: torch.Tensor


class Heads(NamedTuple):
    aux_logits: torch.Tensor
    logits: torch.Tensor


def test_of_a_named_tuple_the_logits_are_taken_and_not_those_of_the_auxiliary_head():
    net = Net(lambda net, h: Heads(net.aux(h), net.head(h)))
    net.aux = nn.Linear(D, K)
    check(net, net.head.weight, net.head.bias)


@pytest.mark.parametrize("pack", [Output, lambda aux, z: {"out": {"cls": {"logits": z}, "aux": aux[:, :3]}}])
def test_outputs_in_objects_are_compared(pack):
    net = Net(lambda net, h: pack(net.aux(h), net.head(h)))
    net.aux = nn.Linear(D, K)
    check(net, net.head.weight, net.head.bias)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(*data(), strict=True))


@pytest.mark.parametrize("options", [{}, {"progress": True}, {"memory_limit": 0}, {"max_batches": 3}])
def test_a_stream_without_a_length(options):
    net = Net()
    check(net, net.head.weight, net.head.bias, loader=DataLoader(Stream(), 16), **options)


class Augmented(Dataset):
    """A new view of an image every time, drawn from two generators."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        x, y = data()
        shift = torch.rand(5) + torch.from_numpy(np.random.rand(5)).float()
        return x[index] + shift, y[index]


@pytest.mark.parametrize("generator", [None, torch.Generator().manual_seed(2)])
def test_a_second_run_over_augmented_data_sees_the_same_views(generator):
    net, loader = Net(), DataLoader(Augmented(), 16, shuffle=True, generator=generator)
    # Python's own generator is left out: the checks of types that run with the tests draw from it.
    arrays, tensors = np.random.get_state(legacy=False), torch.get_rng_state()
    once = nc.measure_model(net, loader)
    twice = nc.measure_model(net, loader, memory_limit=0, passes=2)
    assert str(np.random.get_state(legacy=False)) == str(arrays)
    assert torch.equal(torch.get_rng_state(), tensors)
    for name in METRICS:
        assert twice[name] == pytest.approx(once[name], rel=1e-5), name


def test_a_head_that_was_copied_into_an_ensemble_member_and_compiled():
    net = copy.deepcopy(Net())
    compiled = torch.compile(net, backend="eager")
    compiled(data()[0])
    with torch.no_grad():
        features = net.body(data()[0])
    check(compiled, net.head.weight, net.head.bias, features=features)


def test_a_batch_without_samples_decides_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    x, y = torch.randn(30, 5), torch.arange(30) % 3
    batches = list(zip(x.split(10), y.split(10), strict=True))
    nothing = (x[:0], y[:0])
    expected = nc.measure_model(model, batches)
    found = nc.measure_model(model, [nothing, *batches, nothing])
    assert (found.layer, found.scalars) == (expected.layer, expected.scalars)
    with pytest.raises(ValueError, match="no batches"):
        nc.measure_model(model, [nothing])


def test_a_scripted_part_before_the_head():
    net = Net()
    net.body = torch.jit.script(net.body)
    check(net, net.head.weight, net.head.bias)


def test_scripted_and_exported_classifiers_say_what_to_give():
    net = Net()
    net.head = torch.jit.script(net.head)
    with pytest.raises(TypeError, match="'head' is a scripted module"):
        nc.measure_model(net, batches(), layer="head")
    exported = torch.export.export(Net(), (data()[0][:16],)).module()
    with pytest.raises(TypeError, match="give the module that it was made from"):
        nc.measure_model(exported, batches())


@pytest.mark.parametrize(
    ("way", "scale", "shift"),
    [
        (lambda net, h: net.head(h).add_(PRIOR), torch.ones(K), PRIOR),
        (lambda net, h: net.head(h).mul_(SCALES), SCALES, torch.zeros(K)),
        (lambda net, h: F.linear(h, net.head.weight, net.head.bias).add_(PRIOR), torch.ones(K), PRIOR),
        (lambda net, h: (h @ net.head.weight.T).add_(net.head.bias), torch.ones(K), torch.zeros(K)),
    ],
    ids=["prior", "scale", "functional", "bias"],
)
def test_logits_that_are_changed_in_place(way, scale, shift):
    net = Net(way)
    check(net, scale[:, None] * net.head.weight, scale * net.head.bias + shift, note=MAPPED)
