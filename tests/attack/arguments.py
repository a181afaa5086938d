"""Hypothesis strategies for arguments, from their types and names: values that fit, and values that do not."""

import collections.abc
import os
import types
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import neuralcollapse as nc
from attack.samples import PLAN, PROBLEM
from neuralcollapse.training import Plan

K, D, PER_CLASS = 3, 4, 2
N = K * PER_CLASS
SIZES = {"K": K, "d": D, "N": N, "n": N, "M": N, "r": 2, "C": 1, "channels": 1, "K-1": K - 1}

ODD: list[Any] = [0, 1, 2, 3, 10, -1, 2**31, 2**63 - 1, 10**400, 10**5000, 0.0, 0.5, 1e300, 1e-300, -1.0, True, None]
ODD += [float("nan"), float("inf"), "", "ce", "focal:gamma=2", "x" * 999, "nc1", "a\nb", b"x", [], [1, 2], (2, 2), {}]
ODD += [{"a": 1}, object(), range(3), 1j, np.eye(3), np.arange(3), np.array(["a"]), np.float32(2), np.int64(3), set()]
ODD += [torch.zeros(0), torch.zeros(4, 2), torch.eye(4), torch.arange(4) % 2, torch.full((6, 4), float("nan"))]
ODD += [torch.tensor(1.0), torch.zeros(6, 4, dtype=torch.complex64), torch.full((6, 4), 1e38), torch.zeros(1, 1, 1)]
ODD += [lambda *given: None, int, Path("nowhere"), [[1, 2], [3]], torch.zeros(6, 4).to_sparse(), [None], ["a", 1]]
"""Values that most arguments do not take."""


def _features() -> Tensor:
    return torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def _labels() -> Tensor:
    return torch.arange(K).repeat_interleave(PER_CLASS)


def _statistics() -> nc.ClassStatistics:
    statistics = nc.ClassStatistics(K, D)
    statistics.update(_features(), _labels())
    return statistics


def _second() -> Any:
    second = _statistics().second_pass(metrics=["nc1", "numerical_rank"])
    second.update(_features(), _labels())
    return second


def _grouped() -> Any:
    grouped = nc.metrics.GroupedStatistics(K, D, groups=2)
    grouped.update(_features(), _labels())
    return grouped


def _report() -> nc.CollapseReport:
    return nc.measure(_features(), _labels(), torch.randn(K, D, generator=torch.Generator().manual_seed(1)))


def _torchmetric() -> Any:
    metric = nc.metrics.NeuralCollapse(K, D)
    metric.update(_features(), _labels())
    return metric


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, K))


def _data() -> nc.data.DataSet:
    return nc.data.load("synthetic:num_classes=3,dim=4,per_class=6", cache=False)


LOSSES = ("ce", "focal:gamma=2", "ls:alpha=0.1", "mse", "mse:alpha=2,target=3")
MADE: dict[type, Callable[[], list[Any]]] = {
    nc.ufm.Problem: lambda: [
        PROBLEM,
        nc.ufm.RegularizedUFM("mse", K, PER_CLASS, D, 0.01, 0.02, 0.0),
        nc.ufm.RegularizedUFM("ce", K, [3, 2, 1], 2, 0.01, 0.02),
        nc.ufm.NormalizedUFM("ls:alpha=0.1", K, PER_CLASS, D, 2.0),
        nc.ufm.ContrastiveUFM(K, PER_CLASS, D),
    ],
    nc.ufm.Point: lambda: [
        PROBLEM.random_point(0),
        nc.ufm.NormalizedUFM("ce", K, PER_CLASS, D).random_point(0),
        nc.ufm.ContrastiveUFM(K, PER_CLASS, D).random_point(0),
    ],
    nc.ufm.Optimum: lambda: [PROBLEM.optimum()],
    nc.ufm.Trace: lambda: [nc.ufm.solve(PROBLEM, max_iter=3)],
    nc.losses.Loss: lambda: [nc.losses.get(name) for name in (*LOSSES, "sc")],
    nc.ClassStatistics: lambda: [_statistics(), nc.ClassStatistics(K, D, passes=2)],
    nc.metrics.SecondPass: lambda: [_second()],
    nc.metrics.GroupedStatistics: lambda: [_grouped()],
    nc.metrics.NeuralCollapse: lambda: [_torchmetric()],
    nc.CollapseReport: lambda: [_report()],
    nc.data.DataSet: lambda: [_data()],
    nc.data.Split: lambda: [_data().train],
    nc.data.CropFlip: lambda: [nc.data.CropFlip(1)],
    Plan: lambda: [PLAN.model_copy(update={"epochs": 1, "measure": (1,)})],
    nc.models.Classifier: lambda: [nc.models.create("mlp:width=4,depth=1", (1, 2, 2), K)],
    nc.models.LinearHead: lambda: [nc.models.LinearHead(D, K)],
    nc.models.SimplexETFHead: lambda: [nc.models.SimplexETFHead(D, K)],
    nc.models.NormalizedHead: lambda: [nc.models.NormalizedHead(D, K)],
    nc.studies.Study: lambda: [nc.studies.get("geometric/bound"), nc.studies.get("mse/landscape")],
    nc.studies.Claim: lambda: list(nc.studies.get("geometric/bound").claims),
    nc.studies.Evidence: lambda: [nc.studies.Evidence([0.1, 0.2, 0.3])],
    nc.studies.Limit: lambda: [nc.studies.AtMost(1.0), nc.studies.Between(0.0, 1.0)],
    nc.landscape.FeatureSlice: lambda: [nc.landscape.FeatureSlice(nc.losses.CrossEntropy(), K)],
    nc.landscape.WideSlice: lambda: [nc.landscape.WideSlice(nc.losses.CrossEntropy())],
    nn.Module: lambda: [_net()],
    torch.Generator: lambda: [torch.Generator().manual_seed(0)],
    torch.dtype: lambda: [torch.float32, torch.float64, torch.bfloat16, torch.int64],
    torch.device: lambda: [torch.device("cpu"), torch.device("meta")],
    np.ndarray: lambda: [np.linspace(0.1, 1, K), np.full(K, 1.0 / K), np.zeros((K, D)), np.array([3, 2, 1])],
    os.PathLike: lambda: [Path("made"), Path("features.npz"), Path("results"), Path("point.safetensors")],
    Path: lambda: [Path("made"), Path("results"), Path("results/run"), Path("plan.toml")],
}
"""Whole objects of each class, made fresh; what is asked for a class also gets those of classes below it."""

NAMED: dict[str, list[Any]] = {
    "num_classes": [K, 2, 5],
    "dim": [D, 2, 8],
    "feature_dim": [D, 2],
    "per_class": [PER_CLASS, [3, 2, 1], 1],
    "counts": [[3, 2, 1], [2, 2, 2], np.array([5, 1, 1])],
    "sizes": [[2, 2], [3]],
    "seed": [0, 1, 5],
    "loss": list(LOSSES),
    "spec": [*LOSSES, "sc", "mlp:width=4", "resnet8:width=2"],
    "method": ["lbfgs", "gradient-descent", "trust-region", "adam", "conjugate-gradient"],
    "record": [("value",), ("value", "gap", "nc1", "accuracy")],
    "metrics": ["core", "all", "nc1", ["nc1", "nc2"], ["numerical_rank", "cosine_margin"]],
    "max_iter": [1, 5, 20],
    "max_seconds": [0.1, 1.0],
    "features": [_features(), "free", "nonnegative"],
    "labels": [_labels(), _labels().numpy(), _labels().tolist()],
    "weight": [torch.ones(K, D), torch.randn(K, D, generator=torch.Generator().manual_seed(2))],
    "means": [torch.randn(K, D, generator=torch.Generator().manual_seed(3), dtype=torch.float64)],
    "bias": [torch.zeros(K), True, False],
    "logits": [torch.zeros(N, K), torch.randn(N, K, generator=torch.Generator().manual_seed(4), dtype=torch.float64)],
    "targets": [torch.randn(5, N, dtype=torch.float64, generator=torch.Generator().manual_seed(5))],
    "out_of_distribution": [torch.ones(2, D)],
    "workers": [1],
    "engine": ["local"],
    "passes": [1, 2],
    "groups": [2, 3],
    "intervals": [0.9],
    "width": [2, 4],
    "depth": [1, 2],
    "image_shape": [(1, 8, 8), (3, 8, 8)],
    "image_size": [8, (8, 8)],
    "in_channels": [1, 3],
    "head": ["linear", "etf", "normalized:temperature=2"],
    "paths": ["features.npz", ["features.npz", "features.parquet"], "results"],
    "path": ["made.file", "features.npz", "point.safetensors", "plan.toml"],
    "out": ["made", "made.html"],
    "folder": ["made", "results"],
    "name": ["synthetic:num_classes=3,dim=4,per_class=6", "digits", "geometric/bound", "mse/landscape"],
    "loader": [[(_features().float(), _labels())]],
    "model": [_net()],
    "profile": ["smoke", "exponential:ratio=2", "step:ratio=2,minority=1"],
    "steps": [1, 3],
    "temperatures": [[0.5, 1.0]],
    "weight_decays": [[0.01, 0.1]],
    "feature_decays": [[0.01, 0.1]],
    "layer": [None, "2"],
    "layers": [["0"], ["0", "2"]],
    "text": ["select 1", ""],
    "level": [0.9],
    "rows_or_path": [[{"epoch": 1, "split": "train", "nc1": 0.5}], "results/run/metrics.jsonl"],
}
"""Values that fit arguments of these names, where the type alone says too little."""


def _subclass(tensor: Tensor) -> Tensor:
    class Own(Tensor):
        pass

    return tensor.as_subclass(Own)


def _wide(tensor: Tensor) -> Tensor:
    """The same numbers, every other entry of a larger storage."""
    return torch.stack([tensor, tensor], dim=-1)[..., 0]


GUISES: list[Callable[[Tensor], Any]] = [
    lambda tensor: tensor.to_sparse(),
    lambda tensor: tensor.to_sparse_csr(),
    lambda tensor: tensor.to("meta"),
    lambda tensor: tensor.to_mkldnn(),
    lambda tensor: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
    lambda tensor: torch.nested.nested_tensor(list(tensor)),
    lambda tensor: tensor.to(torch.complex64),
    lambda tensor: tensor.to(torch.complex128).conj().imag,
    lambda tensor: tensor.clone().requires_grad_(),
    lambda tensor: tensor.clone().requires_grad_() * 1.0,
    lambda tensor: nn.Parameter(tensor),
    lambda tensor: tensor.refine_names(*("ab"[: tensor.ndim])),
    lambda tensor: tensor.numpy(),
    lambda tensor: tensor.tolist(),
    lambda tensor: tensor[:0],
    lambda tensor: tensor[..., :0],
    lambda tensor: tensor[:1].expand(tensor.shape),
    lambda tensor: tensor.unsqueeze(0),
    lambda tensor: tensor.T,
    lambda tensor: tensor.sum(),
    lambda tensor: tensor.bool(),
    lambda tensor: tensor.to(torch.float16),
    lambda tensor: tensor.to(torch.bfloat16),
    lambda tensor: tensor.to(torch.float8_e4m3fn),
    lambda tensor: tensor.to(torch.uint8),
    lambda tensor: tensor.to(torch.uint64),
    lambda tensor: tensor.numpy().astype(">f8"),
    lambda tensor: tensor.numpy().astype(object),
    lambda tensor: tensor.numpy().astype(complex),
    lambda tensor: tensor.numpy().astype("datetime64[s]"),
    lambda tensor: np.ma.masked_array(tensor.numpy(), mask=tensor.numpy() > 0),
    _subclass,
    _wide,
]
"""Other shapes, kinds and layouts in which a tensor may come: some fit, some do not."""


def disguised(value: Any, guise: Callable[[Tensor], Any]) -> Any:
    """A tensor or array in a guise; other values, and tensors that cannot wear it, as they are."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if not isinstance(value, Tensor):
        return value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layouts that PyTorch calls experimental
        try:
            return guise(value)
        except Exception:  # this tensor cannot be one of that kind
            return value


def unfit(annotation: Any, name: str = "") -> st.SearchStrategy[Any]:
    """A value that most likely does not fit: any at all, or one that would in another guise."""
    return odd() | st.builds(disguised, fitting(annotation, name), st.sampled_from(GUISES))


def odd() -> st.SearchStrategy[Any]:
    """A value of any kind."""
    # Numbers between a few and billions fit into memory and take minutes, which is no fault.
    numbers = st.integers(-5, 20) | st.integers(2**40) | st.integers(max_value=-(2**40)) | st.floats()
    return st.sampled_from(ODD) | numbers | st.text(max_size=6)


def fitting(annotation: Any, name: str = "") -> st.SearchStrategy[Any]:
    """A value that an argument of this type and name is meant to take."""
    by_type = _of_type(annotation)
    if name in NAMED:
        named = st.sampled_from(NAMED[name])
        return named if by_type is None else named | by_type
    return odd() if by_type is None else by_type


def _of_type(kind: Any) -> st.SearchStrategy[Any] | None:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is None or kind is type(None):
        return st.none()
    if origin is typing.Annotated:
        return _of_type(parts[0])
    if origin in (typing.Union, types.UnionType):
        known = [strategy for part in parts if (strategy := _of_type(part)) is not None]
        return st.one_of(known) if known else None
    if origin is Literal:
        return st.sampled_from(parts)
    if kind in SCALARS:
        return SCALARS[kind]
    if hasattr(kind, "dim_str") and hasattr(kind, "dtypes"):
        return _array(kind)
    if kind is Tensor:
        return st.sampled_from([_features(), torch.ones(K, D), torch.zeros(K), torch.ones(N, K), _labels()])
    if origin is collections.abc.Callable or kind is Callable:
        return st.sampled_from([lambda *given, **named: None, nn.functional.cross_entropy])
    if origin in (collections.abc.Mapping, dict):
        return st.dictionaries(st.sampled_from(["a", "seed", "nc1"]), fitting(parts[1]) if parts else odd(), max_size=2)
    if origin in (collections.abc.Sequence, collections.abc.Iterable, list, frozenset, set):
        inner = fitting(parts[0]) if parts else odd()
        return st.lists(inner, min_size=1, max_size=3)
    if origin is tuple:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return st.lists(fitting(parts[0]), max_size=3).map(tuple)
        return st.tuples(*(fitting(part) for part in parts))
    plain = origin or kind
    if not isinstance(plain, type):
        return None
    makers = [make for made, make in MADE.items() if issubclass(made, plain) or issubclass(plain, made)]
    if plain is object or not makers:
        return None
    wanted = plain

    def make() -> list[Any]:
        every = [value for maker in makers for value in maker()]
        return [value for value in every if isinstance(value, wanted)] or every

    return st.builds(make).flatmap(st.sampled_from)


SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.sampled_from([1, 2, 3, 4, 0]) | st.integers(-2, 20),
    float: st.sampled_from([0.01, 0.1, 0.5, 1.0, 2.0]) | st.floats(0, 10),
    str: st.sampled_from(["a", "nc1", "train", "flatten", "2"]) | st.text(max_size=5),
    bytes: st.binary(max_size=5),
}


def _array(kind: Any) -> st.SearchStrategy[Any]:
    """A tensor of the shape that a jaxtyping annotation names, such as ``"K d"``."""
    words = [word.lstrip("*#") for word in kind.dim_str.split()]
    shape = [SIZES.get(word, int(word) if word.isdigit() else 2) for word in words if word != "..."]
    if any("float" in str(dtype) for dtype in kind.dtypes):
        return st.sampled_from([torch.ones(shape), torch.linspace(-1, 1, int(np.prod(shape))).reshape(shape).double()])
    if any("int" in str(dtype) for dtype in kind.dtypes):
        counted = torch.arange(int(np.prod(shape))).reshape(shape) % K
        return st.sampled_from([torch.zeros(shape, dtype=torch.int64), counted])
    return st.just(torch.ones(shape))
