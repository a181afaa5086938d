"""Encoders and heads: nets of the papers' shapes with ``features(x)`` and ``head``, one file per family.

>>> import torch
>>> import neuralcollapse as nc
>>> model = nc.models.resnet18(width=4, feature_dim=10, in_channels=1, num_classes=10, head="etf")
>>> model.features(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 10])
"""

from .._support.public import explain_calls
from .._support.registry import load_entries
from ._classifier import Classifier, ParameterCount, create, nets, parameter_count
from ._heads import Head, create_head, heads
from ._heads.etf import SimplexETFHead
from ._heads.linear import LinearHead
from ._heads.normalized import NormalizedHead
from ._initialise import Init
from .mlp import mlp
from .resnet import resnet8, resnet18, resnet50, wide_resnet18, wide_resnet50

__all__ = [
    "Classifier",
    "Head",
    "Init",
    "LinearHead",
    "NormalizedHead",
    "ParameterCount",
    "SimplexETFHead",
    "create",
    "create_head",
    "heads",
    "mlp",
    "nets",
    "parameter_count",
    "resnet8",
    "resnet18",
    "resnet50",
    "wide_resnet18",
    "wide_resnet50",
]

load_entries(__name__, list(__path__))

explain_calls(__name__)
