"""Convolutions and positions."""

import torch
from torch import nn

from kinds.base import Case, D, K, N, images, kind, vectors


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
