"""Models whose forward is unusual."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from kinds.base import D, K, N, kind, plain


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
