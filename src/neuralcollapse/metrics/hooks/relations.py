"""How a model's output comes from a layer's.

It is the same numbers, a choice of positions, their mean, a scale and shift of every class (a temperature, the log of a
prior, batch normalisation, without the classes that pad the last ones), or some increasing function.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..._support.machine import has_float64

__all__ = ["OutputMap", "Relation", "flat_outputs", "output_map", "picked_positions", "relation_of", "widened"]

Relation = Literal["same", "pick", "mean", "affine", "monotone"]

ROWS = 128
"""Rows that are compared; a whole language model's output would take long and show no more."""
FEWEST = 5
"""Rows that it takes to tell a scale and a shift from chance."""


def flat_outputs(value: object, key: str = "") -> dict[str, Tensor]:
    """The floating tensors that a model returned, by key or position; losses and nested states are left out."""
    if isinstance(value, Tensor):
        return {key: value.detach()} if value.is_floating_point() and value.ndim else {}
    parts: object = value
    if dataclasses.is_dataclass(value) and not isinstance(value, Mapping | type):
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields is not None:
        parts = dict(zip(fields, value, strict=True))
    named = isinstance(parts, Mapping)
    items = parts.items() if isinstance(parts, Mapping) else enumerate(parts) if isinstance(parts, list | tuple) else ()
    found: dict[str, Tensor] = {}
    for name, item in items:
        nested = isinstance(item, Mapping) or (dataclasses.is_dataclass(item) and not isinstance(item, type))
        if isinstance(item, Tensor) or (nested and named and key.count(".") < 2):
            found |= flat_outputs(item, f"{key}.{name}" if key else str(name))
    return found


def relation_of(layer: Tensor, output: Tensor, averaged: bool = False) -> Relation | None:
    """How ``output`` comes from what a layer passed on, (..., K) with its channels last; ``None`` if it does not.

    ``averaged`` says that ``layer`` is a mean that the model took in another order, so that it is rounded otherwise.
    """
    width = layer.shape[-1]
    if layer.ndim < 2 or not layer.numel() or not output.numel():
        return None
    views = list(_class_last(output, width))
    same = _equal if averaged else _same
    for view in views:
        if view.numel() == layer.numel() and same(*_sampled(layer, view)):
            return "same"
    for view in views:
        if layer.ndim > 2 and view.shape == (layer.shape[0], width):
            if picked_positions(layer, view) is not None:
                return "pick"
            if _equal(widened(layer.flatten(1, -2)).mean(1), widened(view), coarsest(layer, view)):
                return "mean"
    if output_map(layer, output) is not None:
        return "affine"
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
    return tensor.double() if has_float64(tensor.device) else tensor.float()


def coarsest(*tensors: Tensor) -> float:
    """The largest rounding unit among the tensors' types."""
    return max(torch.finfo(tensor.dtype).eps for tensor in tensors)


def _class_last(output: Tensor, width: int | None) -> Iterator[Tensor]:
    """Views of an output with its classes last, where there are ``width`` of them (``None``: any number)."""
    if width is None or output.shape[-1] == width:
        yield output
    if output.ndim >= 3 and (width is None or output.shape[1] == width):
        yield output.movedim(1, -1)
    if width == 1:
        yield output.unsqueeze(-1)


def _sampled(layer: Tensor, output: Tensor) -> tuple[Tensor, Tensor, float]:
    first, second = layer.reshape(-1, layer.shape[-1]), output.reshape(-1, output.shape[-1])
    chosen = torch.linspace(0, first.shape[0] - 1, min(ROWS, first.shape[0]), device=first.device).long()
    return widened(first[chosen]), widened(second[chosen]), coarsest(layer, output)


def _same(first: Tensor, second: Tensor, rounding: float) -> bool:
    """Whether two tensors are one, up to a change of type."""
    slack = 1e-3 * rounding * float(first.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return bool(torch.isclose(second, first, rtol=rounding, atol=slack, equal_nan=True).all())


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


@dataclass(frozen=True, eq=False)
class OutputMap:
    """What a model makes of a layer's outputs z: the first ``outputs`` of them, as scale_k z_k + shift_k.

    ``scale`` and ``shift`` are ``None`` for a scale that all classes share and no shift: such outputs decide alike.
    """

    outputs: int
    scale: Tensor | None = None
    shift: Tensor | None = None


def output_map(layer: Tensor, output: Tensor) -> OutputMap | None:
    """The map from what a layer passed on to the model's output, where it is a scale and a shift of every class."""
    width = layer.shape[-1]
    for view in _class_last(output, None):
        if view.ndim >= 2 and 2 <= view.shape[-1] <= width and view.shape[:-1].numel() == layer.shape[:-1].numel():
            found = _scale_and_shift(*_sampled(layer, view))
            if found is not None:
                return found
    return None


def _scale_and_shift(layer: Tensor, output: Tensor, rounding: float) -> OutputMap | None:
    """The map that fits all rows to rounding; ``None`` where none does, or the rows are too few or alike to tell."""
    count = output.shape[1]
    z = layer[:, :count]
    if z.shape[0] < FEWEST or not bool((z.isfinite() & output.isfinite()).all()):
        return None
    mean, middle = z.mean(0), output.mean(0)
    spread = (z - mean).square().sum(0)
    together = ((z - mean) * (output - middle)).sum(0)
    alike = float(together.sum() / spread.sum().clamp(min=torch.finfo(spread.dtype).tiny))
    slack = 4 * rounding * (output.abs() + abs(alike) * z.abs()).amax(0)
    known = spread * alike**2 > 16 * z.shape[0] * slack.square()
    if not bool(known.any()):
        return None
    each = torch.where(known, together / spread.clamp(min=torch.finfo(spread.dtype).tiny), alike)
    for scale in (torch.ones_like(each), torch.full_like(each, alike), each):
        shift = (output - scale * z).mean(0)
        if bool(((output - scale * z - shift).abs() <= slack).all()):
            moved = bool((shift.abs() > slack).any())
            uneven = bool((scale != scale[0]).any()) or float(scale[0]) < 0
            return OutputMap(count, scale, shift) if moved or uneven else OutputMap(count)
    return None
