"""Compiled and wrapped models, loaders and labels."""

import collections

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from kinds.base import NAMES, K, N, kind, plain, vectors


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
