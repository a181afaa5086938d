"""How a model's output comes from a layer's: the same numbers, a choice of positions, their mean, or in order."""

from collections.abc import Iterator, Mapping
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Relation", "flat_outputs", "picked_positions", "relation_of", "widened"]

Relation = Literal["same", "pick", "mean", "monotone"]

ROWS = 128
"""Rows that are compared; a whole language model's output would take long and show no more."""


def flat_outputs(value: object, key: str = "") -> dict[str, Tensor]:
    """The floating tensors that a model returned, by key or position; losses and nested states are left out."""
    if isinstance(value, Tensor):
        return {key: value.detach()} if value.is_floating_point() and value.ndim else {}
    if isinstance(value, Mapping):
        items = [(str(name), item) for name, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(str(number), item) for number, item in enumerate(value)]
    else:
        return {}
    found: dict[str, Tensor] = {}
    for name, item in items:
        if isinstance(item, Tensor) or (isinstance(item, Mapping) and not key):
            found |= flat_outputs(item, f"{key}.{name}" if key else name)
    return found


def relation_of(layer: Tensor, output: Tensor) -> Relation | None:
    """How ``output`` comes from what a layer passed on, (..., K) with its channels last; ``None`` if it does not."""
    width = layer.shape[-1]
    if layer.ndim < 2 or not layer.numel() or not output.numel():
        return None
    views = list(_class_last(output, width))
    for view in views:
        if view.numel() == layer.numel() and _equal(*_sampled(layer, view)):
            return "same"
    for view in views:
        if layer.ndim > 2 and view.shape == (layer.shape[0], width):
            if picked_positions(layer, view) is not None:
                return "pick"
            if _equal(widened(layer.flatten(1, -2)).mean(1), widened(view), coarsest(layer, view)):
                return "mean"
    for view in views:
        if view.numel() == layer.numel() and _monotone(*_sampled(layer, view)[:2]):
            return "monotone"
    return None


def picked_positions(layer: Tensor, output: Tensor) -> Tensor | None:
    """For each sample the position (flattened) whose row of ``layer`` (B, ..., K) is its row of ``output`` (B, K)."""
    rows = layer.flatten(1, -2)
    same = (rows.to(output.dtype) == output[:, None]).all(-1)
    if not bool(same.any(1).all()):
        return None
    # The last one of several: positions with equal outputs are padding beside each other.
    return rows.shape[1] - 1 - same.flip(1).int().argmax(1)


def widened(tensor: Tensor) -> Tensor:
    """The tensor in float64, or in float32 on devices that have no more."""
    return tensor.float() if tensor.device.type == "mps" else tensor.double()


def coarsest(*tensors: Tensor) -> float:
    """The largest rounding unit among the tensors' types."""
    return max(torch.finfo(tensor.dtype).eps for tensor in tensors)


def _class_last(output: Tensor, width: int) -> Iterator[Tensor]:
    if output.shape[-1] == width:
        yield output
    if output.ndim >= 3 and output.shape[1] == width:
        yield output.movedim(1, -1)
    if width == 1:
        yield output.unsqueeze(-1)


def _sampled(layer: Tensor, output: Tensor) -> tuple[Tensor, Tensor, float]:
    width = layer.shape[-1]
    first, second = layer.reshape(-1, width), output.reshape(-1, width)
    chosen = torch.linspace(0, first.shape[0] - 1, min(ROWS, first.shape[0]), device=first.device).long()
    return widened(first[chosen]), widened(second[chosen]), coarsest(layer, output)


def _equal(first: Tensor, second: Tensor, rounding: float) -> bool:
    size = float(first.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return bool(torch.isclose(first, second, rtol=0.0, atol=32 * rounding * size, equal_nan=True).all())


def _monotone(first: Tensor, second: Tensor) -> bool:
    """Whether the second is an increasing function of the first in every row (of one output: over the rows)."""
    if first.shape[1] == 1:
        first, second = first.T, second.T
    if first.shape[1] < 2 or not bool((first.isfinite() & second.isfinite()).all()):
        return False
    ordered = second.gather(1, first.argsort(1))
    steps = ordered.diff(dim=1)
    slack = 1e-6 * float(second.abs().max())
    return bool((steps >= -slack).all()) and bool((ordered[:, -1] - ordered[:, 0] > 2 * slack).any())
