"""A net of low rank in bfloat16, and its nc1 in float64 without the package.

The trunk is Linear(12 -> 40) on 30 classes: its features span 12 directions, and bfloat16 leaves rounding errors in the
28 others. Cut at the rounding of float32, those count, and nc1 is many times too large.
"""

import numpy as np
import pytest
import torch
from torch import nn

CLASSES, PER_CLASS, INNER, DIM = 30, 60, 12, 40


def inputs():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(CLASSES).repeat(PER_CLASS)
    x = torch.randn(CLASSES, INNER, generator=generator)[y] + 0.5 * torch.randn(len(y), INNER, generator=generator)
    return x, y


class Net(nn.Module):
    """A trunk of low rank and a head; ``ending`` is how features become float32 again."""

    def __init__(self, ending="float"):
        super().__init__()
        torch.manual_seed(1)
        self.trunk, self.head = nn.Linear(INNER, DIM), nn.Linear(DIM, CLASSES)
        self.ending = ending

    def forward(self, x):
        h = self.trunk(x)
        if self.ending == "outside":  # the head runs in single precision, as many do for stable logits
            with torch.autocast("cpu", enabled=False):
                return self.head(h.float())
        if self.ending == "function":
            return nn.functional.linear(h.float(), self.head.weight, self.head.bias)
        return self.head(h.float())


def truth(net, x, y, normalised=False):
    """nc1 = tr(S_W S_B^+)/K with the pseudo-inverse of the known rank, in float64."""
    weight, bias = net.trunk.weight.detach().double().numpy(), net.trunk.bias.detach().double().numpy()
    H, labels, rank = x.double().numpy() @ weight.T + bias, y.numpy(), INNER
    if normalised:  # the bias becomes a direction of its own, since every row has its own norm
        H = H - H.mean(1, keepdims=True)
        H, rank = H / np.sqrt((H**2).mean(1, keepdims=True) + 1e-5), INNER + 1
    means = np.stack([H[labels == k].mean(0) for k in range(CLASSES)])
    spread, between = H - means[labels], means - H.mean(0)
    values, vectors = np.linalg.eigh(between.T @ between / CLASSES)
    inverse = (vectors[:, -rank:] / values[-rank:]) @ vectors[:, -rank:].T
    return float(np.trace(spread.T @ spread / len(H) @ inverse) / CLASSES)


def check(report, expected, rank=INNER):
    assert report.rank == rank
    assert report.nc1 == pytest.approx(expected, rel=2e-2)
    assert any("rounding of bfloat16" in note for note in report.notes)
