"""What a kind of model is: a model, a loader, and its features by hand."""

import dataclasses

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

K, D, N = 4, 7, 48
NAMES = ["ant", "bee", "cat", "dog"]


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
