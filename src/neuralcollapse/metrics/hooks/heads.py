"""What a classifier is: the layers that can be one, and the weight and bias they apply to their input.

A head takes features (..., d) to outputs (..., K). Linear layers and 1x1 convolutions say how by their weight;
for others (low-rank adapters around a linear layer, scaled or re-parametrised heads) the effective weight is
what the head does to the unit vectors, W' = f(I) - f(0), in float64, if the head proves to be affine.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..._support.checks import describe
from ..._support.machine import has_float64
from ..._support.registry import unknown_name
from .relations import OutputMap, output_map, widened

__all__ = [
    "LastLayer",
    "candidates_of",
    "classifier_of",
    "is_scattered",
    "module_of",
    "plain_name",
    "read_classifier",
    "rows_of",
    "stated",
    "unwrapped",
]

CENTRED = " (bias up to a number that all classes share, which the model's output does not tell: taken with mean zero)"
PROBED = 1024
"""Unit vectors that go through a head at a time."""


@dataclass(frozen=True, eq=False)
class LastLayer:
    """The last linear layer of a model: its name, weight (K, d) and bias (K,) or ``None``.

    ``channels_first`` says that features and outputs have their channels in dimension 1, as convolutions do;
    ``note`` is what a reader of the report should know about the weight.
    """

    name: str
    module: nn.Module | None
    weight: Tensor | None
    bias: Tensor | None
    channels_first: bool = False
    note: str | None = None

    @property
    def outputs(self) -> int | None:
        """The width of the layer's output, where it is known."""
        return None if self.weight is None else self.weight.shape[0]

    def mapped(self, found: OutputMap, note: str) -> "LastLayer":
        """The classifier together with what happens to its outputs: rows scale_k w_k, bias scale_k b_k + shift_k."""
        assert self.weight is not None
        weight = self.weight[: found.outputs]
        bias = None if self.bias is None else self.bias[: found.outputs]
        if found.scale is None or found.shift is None:
            return replace(self, weight=weight, bias=bias)
        scale, weight = found.scale, widened(weight)
        shift = found.shift if bias is None else scale.to(bias.device) * widened(bias) + found.shift.to(bias.device)
        note += CENTRED if found.centred else ""
        return replace(self, weight=scale.to(weight.device)[:, None] * weight, bias=shift, note=note)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel``."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def plain_name(name: str) -> str:
    """A module's name without the parts that wrappers add."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def is_scattered(model: nn.Module) -> bool:
    """Whether parameters are whole only while their layer runs, as ``FullyShardedDataParallel`` keeps them."""
    return any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())


def module_of(model: nn.Module, name: object) -> nn.Module:
    """The module of that name; wrappers' parts of a name may be left out or given."""
    modules = {plain_name(known): module for known, module in model.named_modules()}
    if isinstance(name, str):
        for spelling in (plain_name(name), plain_name(name).removeprefix("module.")):
            if isinstance(modules.get(spelling), torch.jit.ScriptModule):
                raise TypeError(
                    f"layer {spelling!r} is a scripted module, which takes no hooks; put back what it was made from"
                )
            if spelling in modules:
                return modules[spelling]
    raise unknown_name("layer", name, [known for known in modules if known])


def _is_adapted(module: nn.Module) -> bool:
    """Whether the module wraps a layer and adds to it, as low-rank adapters do."""
    inner = getattr(module, "base_layer", None)
    return isinstance(inner, nn.Module) and can_classify(inner)


def _is_quantised(module: nn.Module) -> bool:
    """Whether the module is a linear layer of torch's own quantisation."""
    return hasattr(module, "_packed_params") and callable(getattr(module, "weight", None))


def _tensor_attribute(module: nn.Module, name: str) -> Tensor | None:
    """A module's tensor of that name; quantised layers hand theirs out by a method."""
    value = getattr(module, name, None)
    if _is_quantised(module) and callable(value):
        value = value()
    if not isinstance(value, Tensor):
        return None
    return value.dequantize() if value.is_quantized else value


def _own_matrix(module: nn.Module) -> Tensor | None:
    """The module's own weight: ``weight``, else its only matrix."""
    weight = _tensor_attribute(module, "weight")
    if weight is not None and weight.ndim == 2:
        return weight
    matrices = [tensor for tensor in module.parameters(recurse=False) if tensor.ndim == 2]
    return matrices[0] if len(matrices) == 1 else None


def is_pointwise(module: nn.Module) -> bool:
    """Whether the module is a 1x1 convolution."""
    return isinstance(module, _ConvNd) and not module.transposed and {*module.kernel_size} == {1} and module.groups == 1


def can_classify(module: nn.Module) -> bool:
    """Whether a module can be a classifier by its form."""
    if isinstance(module, torch.jit.ScriptModule):
        return False
    if isinstance(module, nn.Linear) or is_pointwise(module) or _is_adapted(module) or _is_quantised(module):
        return True
    if isinstance(module, nn.Embedding | nn.EmbeddingBag | nn.RNNBase | nn.RNNCellBase | nn.MultiheadAttention):
        return False
    leaf = next(module.children(), None) is None
    return leaf and _own_matrix(module) is not None


def candidates_of(model: nn.Module) -> dict[str, nn.Module]:
    """The layers that can be the classifier, by name; the parts of an adapted layer count as one."""
    found: dict[str, nn.Module] = {}
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if inside and name.startswith(inside):
            continue
        if can_classify(module):
            found[plain_name(name)] = module
            if _is_adapted(module) or _is_quantised(module):
                inside = (*inside, f"{name}.")
    return found


def last_linear(names: Sequence[str], candidates: dict[str, nn.Module]) -> str | None:
    """The last of the names, a linear layer if there is one."""
    linear = [name for name in names if isinstance(candidates[name], nn.Linear) or _is_adapted(candidates[name])]
    return (linear or list(names) or [None])[-1]


def classifier_of(model: nn.Module, layer: str | None = None) -> LastLayer:
    """The classifier of ``model``: the layer of that name, else the last ``nn.Linear`` that was defined.

    :func:`measure_model` goes by what the layers pass on, which it sees while the model runs.

    >>> classifier_of(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))).name
    '2'
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {describe(model)}")
    model = unwrapped(model)
    if layer is not None:
        return read_classifier(layer, module_of(model, layer))
    found = candidates_of(model)
    name = last_linear(list(found), found)
    if name is None:
        raise ValueError("the model has no nn.Linear; name its classifier with layer=")
    return read_classifier(name, found[name])


# the weight that a head applies -----------------------------------------------------------------------------


def read_classifier(
    name: str,
    module: nn.Module,
    features: Tensor | None = None,
    outputs: Tensor | None = None,
    own: tuple[Tensor | None, Tensor | None] | None = None,
) -> LastLayer:
    """The head's effective weight and bias; ``features`` and ``outputs`` of a pass check them.

    Both have their channels where the layer has them. ``own`` is what :func:`stated` gave while the layer ran, for
    layers that have it only then.
    """
    first = isinstance(module, _ConvNd)
    if first and not is_pointwise(module):
        return LastLayer(name, module, None, None, True)
    weight, bias = (None, None) if _is_adapted(module) else stated(module) if own is None else own
    rows = expected = None
    rounding = 0.0
    if features is not None and outputs is not None:
        rows, expected = _sample_rows(features, outputs, first)
        rounding = _product_rounding(features, outputs)
    if weight is not None and rows is not None and expected is not None:
        # Some layers keep their weight as (d, K).
        for matrix in (weight, weight.T):
            if matrix.shape == (expected.shape[1], rows.shape[1]) and _agrees(rows, matrix, bias, expected, rounding):
                return LastLayer(name, module, matrix, bias, first)
    if weight is not None and rows is None:
        return LastLayer(name, module, weight, bias, first)
    if weight is None and next(module.parameters(), None) is None:
        return LastLayer(name, module, None, None, first)
    dim = rows.shape[1] if rows is not None else _input_width(module)
    probed = None if dim is None else _probe(module, dim)
    if probed is not None and (rows is None or expected is None or _agrees(rows, *probed, expected, rounding)):
        return LastLayer(name, module, *probed, first)
    if weight is None or rows is None or expected is None or not weight.is_floating_point():
        return LastLayer(name, module, None, None, first)
    fitting = [matrix for matrix in (weight, weight.T) if matrix.shape == (expected.shape[1], rows.shape[1])]
    if not fitting:
        return LastLayer(name, module, None, None, first)
    for matrix in fitting:
        # What a hook on the layer, or its own forward, does to the product is as good as what comes after the layer.
        made = _logits_of(rows, matrix, bias).to(outputs.dtype) if outputs is not None else None
        found = None if made is None else output_map(made, expected.to(made.dtype))
        if found is not None and found.outputs == len(matrix):
            note = f"layer {name!r} scales or shifts its product: weight and bias are those of both together"
            return LastLayer(name, module, matrix, bias, first).mapped(found, note)
    note = f"layer {name!r} is not linear in its input: its weight is taken as it stands"
    other = _logits_of(rows, fitting[0], bias).argmax(1) != expected.argmax(1)
    if expected.shape[1] > 1 and bool(other.any()):
        note += f", and decides otherwise than the layer for {int(other.sum())} of {len(rows)} samples"
    return LastLayer(name, module, fitting[0], bias, first, note)


def _logits_of(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Rows W' + b in float64; a bias of another width is left out."""
    made = rows @ widened(weight.to(rows.device)).T
    return made + widened(bias.to(rows.device)) if bias is not None and bias.shape[0] == weight.shape[0] else made


def stated(module: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    """Weight and bias as the module's attributes have them."""
    weight = _tensor_attribute(module, "weight") if isinstance(module, _ConvNd) else _own_matrix(module)
    bias = _tensor_attribute(module, "bias")
    if weight is None:
        return None, None
    weight = whole(weight.detach()).flatten(1)
    usable = bias is not None and bias.ndim == 1 and bias.shape[0] in weight.shape
    return weight, whole(bias.detach()) if usable and bias is not None else None


def whole(tensor: Tensor) -> Tensor:
    """The full tensor, also where its parts lie on several processes."""
    gather: Callable[[], Tensor] | None = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def _input_width(module: nn.Module) -> int | None:
    inner = getattr(module, "base_layer", module)
    width = getattr(inner, "in_features", None)
    return width if isinstance(width, int) else None


def rows_of(tensor: Tensor, channels_first: bool) -> Tensor:
    """``tensor`` with its channels last."""
    return tensor.movedim(1, -1) if channels_first and tensor.ndim > 2 else tensor


def _sample_rows(features: Tensor, outputs: Tensor, first: bool) -> tuple[Tensor | None, Tensor | None]:
    """At most 64 rows of features and outputs in float64, of the same samples."""
    x, z = rows_of(features, first), rows_of(outputs, first)
    if x.ndim < 2 or x.shape[:-1] != z.shape[:-1]:
        return None, None
    x, z = x.reshape(-1, x.shape[-1]), z.reshape(-1, z.shape[-1])
    chosen = torch.linspace(0, x.shape[0] - 1, min(64, x.shape[0]), device=x.device).long()
    return widened(x[chosen]), widened(z[chosen])


def _product_rounding(features: Tensor, outputs: Tensor) -> float:
    unit = max(torch.finfo(tensor.dtype).eps for tensor in (features, outputs))
    # Accelerators may multiply single precision in ten bits.
    return unit if features.device.type == "cpu" else max(unit, 1e-3)


def _agrees(rows: Tensor, weight: Tensor, bias: Tensor | None, expected: Tensor, rounding: float) -> bool:
    """Whether rows W' + b is what the head passed on, to the rounding of its products."""
    if bias is not None and bias.shape[0] != weight.shape[0]:
        return False
    matrix = widened(weight.to(rows.device))
    found, size = rows @ matrix.T, rows.abs() @ matrix.abs().T
    if bias is not None:
        shift = widened(bias.to(rows.device))
        found, size = found + shift, size + shift.abs()
    if not bool(torch.isfinite(expected).all()):
        return True  # a diverged head is told apart by nobody; what is measured says so
    return bool(((found - expected).abs() <= 8 * rounding * size + 1e-300).all())


@torch.no_grad()
def _probe(module: nn.Module, dim: int) -> tuple[Tensor, Tensor] | None:
    """W and b of a module from what it makes of the unit vectors and of zero; ``None`` where it fails to run.

    In float64, or in float32 where a part of the module makes that itself.
    """
    for dtype in (torch.float64, torch.float32):
        try:
            twin = _gathered(_copy_without_hooks(module)).eval()
            device = next((tensor.device for tensor in twin.parameters()), torch.device("cpu"))
            device = device if has_float64(device) else torch.device("cpu")
            twin = twin.to(device, dtype)
            with torch.autocast(device.type, enabled=False):
                return _response_to_units(twin, dim, dtype, device)
        except (
            Exception
        ):  # a head of another form, or of another library that refuses to be copied: the caller falls back
            continue
    return None


def _copy_without_hooks(module: nn.Module) -> nn.Module:
    """A copy of the module without hooks: these may hold the whole model, which would be copied, too."""
    hooks = [held for part in module.modules() for held in (part._forward_hooks, part._forward_pre_hooks)]
    return copy.deepcopy(module, {id(held): OrderedDict() for held in hooks})


def _gathered(module: nn.Module) -> nn.Module:
    """The module with whole parameters where they lie on several processes; all of these come here."""
    for part in module.modules():
        for name, tensor in part.named_parameters(recurse=False):
            if hasattr(tensor, "full_tensor"):
                setattr(part, name, nn.Parameter(whole(tensor.detach()), requires_grad=False))
    return module


def _response_to_units(
    module: nn.Module, dim: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor] | None:
    bias = module(torch.zeros(1, dim, dtype=dtype, device=device))
    if not isinstance(bias, Tensor) or bias.ndim != 2:
        return None
    columns = []
    for start in range(0, dim, PROBED):
        units = torch.zeros(min(PROBED, dim - start), dim, dtype=dtype, device=device)
        units.diagonal(start).fill_(1.0)
        columns.append(widened(module(units)) - widened(bias))
    return torch.cat(columns).T.contiguous(), widened(bias[0])
