"""How a model's output comes from a layer's.

It is the same numbers, a choice of positions, their mean, a scale and shift of every class (a temperature, the log of a
prior, batch normalisation, without the classes that pad the last ones; perhaps with a softmax or a sigmoid after it),
or some other increasing function, behind which a small shift would go unseen.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..._support.machine import has_float64

__all__ = [
    "FEWEST",
    "OutputMap",
    "Relation",
    "flat_outputs",
    "is_turned",
    "output_map",
    "picked_positions",
    "relation_of",
    "relation_of_turned",
    "samples_first",
    "widened",
]

Relation = Literal["same", "pick", "mean", "affine", "monotone"]

ROWS, ENTRIES = 128, 1 << 20
"""Rows that are compared, fewer of wide outputs: a whole language model's would take long and show no more."""
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
    same = _equal_to_rounding if averaged else _same_numbers
    for view in views:
        if view.numel() == layer.numel() and same(*_sampled(layer, view)):
            return "same"
    for view in views:
        if layer.ndim > 2 and view.shape == (layer.shape[0], width):
            if picked_positions(layer, view) is not None:
                return "pick"
            if _equal_to_rounding(widened(layer.flatten(1, -2)).mean(1), widened(view), coarsest_rounding(layer, view)):
                return "mean"
    if output_map(layer, output) is not None:
        return "affine"
    for view in views:
        if view.numel() == layer.numel() and _monotone(*_sampled(layer, view)[:2]):
            return "monotone"
    return None


def relation_of_turned(rows: Tensor, output: Tensor) -> Relation | None:
    """:func:`relation_of` with samples and time exchanged, for layers that see time first where the output does not."""
    if rows.ndim < 3 and (rows.ndim < 2 or output.ndim != 3 or rows.numel() != output.numel()):
        return None
    relation = relation_of(samples_first(rows, output, rows.shape[-1]), output)
    return None if relation == "monotone" else relation


def samples_first(rows: Tensor, output: Tensor, width: int) -> Tensor:
    """Rows (T, B, ..., d), or (T B, d), as (B, T, ..., d).

    ``output`` is (B, T, ...) and tells where the first ends in (T B, d); its ``width`` classes may stand between.
    """
    if rows.ndim == 2 and output.ndim == 3:
        samples, times = _leading(output, width)
        rows = rows.unflatten(0, (times, samples))
    return rows.transpose(0, 1)


def is_turned(rows: Tensor, output: Tensor) -> bool:
    """Whether rows (T, B, K) go with an output of B samples and T steps by their shapes, as of a single sample."""
    if rows.ndim != 3 or output.ndim != 3:
        return False
    leading = _leading(output, rows.shape[-1])
    return (rows.shape[0], rows.shape[1]) == leading[::-1] != leading


def _leading(output: Tensor, width: int) -> tuple[int, int]:
    """The first two dimensions of an output (B, T, K) or (B, K, T)."""
    return output.shape[0], output.shape[1 if output.shape[-1] == width else 2]


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


def coarsest_rounding(*tensors: Tensor) -> float:
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
    rows = min(max(16, min(ROWS, ENTRIES // first.shape[1])), first.shape[0])
    chosen = torch.linspace(0, first.shape[0] - 1, rows, device=first.device).long()
    return widened(first[chosen]), widened(second[chosen]), coarsest_rounding(layer, output)


def _same_numbers(first: Tensor, second: Tensor, rounding: float) -> bool:
    """Whether two tensors are one, up to a change of type."""
    slack = 1e-3 * rounding * float(first.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return bool(torch.isclose(second, first, rtol=rounding, atol=slack, equal_nan=True).all())


def _equal_to_rounding(first: Tensor, second: Tensor, rounding: float) -> bool:
    size = float(first.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return bool(torch.isclose(first, second, rtol=0.0, atol=32 * rounding * size, equal_nan=True).all())


def _monotone(first: Tensor, second: Tensor) -> bool:
    """Whether the second is one increasing function of the first; of saturated probabilities, one in every row.

    In rows of two classes anything rises with anything else that decides alike, such as the mean of an ensemble with
    its members: so entries of all rows are compared, and probabilities only where a zero hides what they come from.
    """
    if not bool((first.isfinite() & second.isfinite()).all()):
        return False
    shares = bool((second >= 0).all()) and bool(((second.sum(1) - 1).abs() < 1e-2).all())
    if not shares or first.shape[1] == 1:
        first, second = first.reshape(1, -1), second.reshape(1, -1)
    elif bool((second > 0).all(1).any()):
        return False
    if first.shape[1] < 2:
        return False
    ordered = second.gather(1, first.argsort(1))
    steps = ordered.diff(dim=1)
    slack = 1e-6 * float(second.abs().max())
    return bool((steps >= -slack).all()) and bool((ordered[:, -1] - ordered[:, 0] > 2 * slack).any())


@dataclass(frozen=True, eq=False)
class OutputMap:
    """What a model makes of a layer's outputs z: the first ``outputs`` of them, as f(scale_k z_k + shift_k).

    f is the identity, a softmax, its logarithm, a sigmoid, or a positive factor of each row: nothing that decides
    otherwise. ``scale`` and ``shift`` are ``None`` for a scale that all classes share and no shift: such outputs decide
    alike. ``centred`` says that f hides a number that all shifts share: they are taken with mean zero.
    """

    outputs: int
    scale: Tensor | None = None
    shift: Tensor | None = None
    centred: bool = False


def output_map(layer: Tensor, output: Tensor) -> OutputMap | None:
    """The map from what a layer passed on to the model's output, where it is a scale and a shift of every class."""
    width = layer.shape[-1]
    for view in _class_last(output, 1 if width == 1 else None):
        fits = view.ndim >= 2 and min(2, width) <= view.shape[-1] <= width
        if not fits or view.shape[:-1].numel() != layer.shape[:-1].numel():
            continue
        z, out, rounding = _sampled(layer, view)
        z = z[:, : out.shape[1]]
        if not bool(z.isfinite().all()):
            continue
        for before, doubt, centred in _before_activation(out, rounding, torch.finfo(view.dtype).tiny):
            found = _scale_and_shift(z, before, rounding, doubt, centred)
            if found is not None:
                return found
        if _scaled_rows(z, out, rounding):
            return OutputMap(out.shape[1])
    return None


def _before_activation(output: Tensor, rounding: float, tiny: float) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """What an output was before the function that it may have gone through, how far that is rounded, and ``centred``.

    The identity, a sigmoid, a softmax and its logarithm; the last two leave a number of each row unknown. Numbers below
    ``tiny`` have fewer digits.
    """
    exact = torch.zeros_like(output)
    yield output, exact, False
    if bool(((output >= 0) & (output <= 1)).all()):
        below = rounding * (tiny / output).clamp(min=1)
        yield torch.logit(output), below + rounding / (1 - output), False
        if output.shape[1] > 1 and _equal_to_rounding(output.sum(1), exact[:, 0] + 1, rounding):
            yield output.log(), below, True
    if output.shape[1] > 1 and bool((output.logsumexp(1).abs() <= 32 * rounding * (1 + output.abs().amax(1))).all()):
        yield output, exact, True


def _scale_and_shift(layer: Tensor, output: Tensor, rounding: float, doubt: Tensor, centred: bool) -> OutputMap | None:
    """The map that fits all rows to rounding; ``None`` where none does, or the rows are too few or alike to tell.

    output_ik = scale_k layer_ik + shift_k, ``centred``: up to a number of each row. A saturated function leaves rows
    that tell nothing.
    """
    told = (output.isfinite() & doubt.isfinite()).all(1)
    z, output, doubt = layer[told], output[told], doubt[told]
    if not len(z):
        return None
    size = rounding * (output.abs() + z.abs() * _best_factor(z, output).abs()).amax(0, keepdim=True)
    if centred:
        z, output = z - z.mean(1, keepdim=True), output - output.mean(1, keepdim=True)
        doubt, size = doubt + doubt.mean(1, keepdim=True), size.max()
    slack = 4 * (size + doubt)
    count, free = output.shape[1], output.shape[1] - centred
    # Without a shift there is at most one unknown number, which a few rows tell; the rows may be alike.
    for scale, unknown in ((torch.ones((), dtype=z.dtype, device=z.device), 0), (_best_factor(z, output), 1)):
        moving = bool((z.abs() > slack).any()) and float(scale) > 0
        if moving and len(z) * free > unknown and bool(((output - scale * z).abs() <= slack).all()):
            return OutputMap(count)
    if len(z) < FEWEST:
        return None
    weight = (slack + torch.finfo(slack.dtype).tiny).expand_as(z).square().reciprocal()
    weight = weight / weight.sum(0)
    mean, middle = (weight * z).sum(0), (weight * output).sum(0)
    spread = (weight * (z - mean).square()).sum(0)
    together = (weight * (z - mean) * (output - middle)).sum(0)
    alike = float(together.sum() / spread.sum().clamp(min=torch.finfo(spread.dtype).tiny))
    known = spread * alike**2 > 16 * (weight * slack.square()).sum(0)
    if not bool(known.any()):
        return None
    each = torch.where(known, together / spread.clamp(min=torch.finfo(spread.dtype).tiny), alike)
    for scale in (torch.ones_like(each), torch.full_like(each, alike), each)[: 2 if centred else 3]:
        shift = (weight * (output - scale * z)).sum(0)
        if bool(((output - scale * z - shift).abs() <= slack).all()):
            moved = bool((shift.abs() > (weight * slack).sum(0)).any())
            uneven = bool((scale != scale[0]).any()) or float(scale[0]) < 0
            return OutputMap(count, scale, shift, centred) if moved or uneven else OutputMap(count)
    return None


def _best_factor(first: Tensor, second: Tensor) -> Tensor:
    """The number that takes the first tensor nearest to the second."""
    return (first * second).sum() / first.square().sum().clamp(min=torch.finfo(first.dtype).tiny)


def _scaled_rows(layer: Tensor, output: Tensor, rounding: float) -> bool:
    """Whether every row of the output is a positive multiple of the layer's, perhaps with a number added to the row.

    So do a normalisation and a standardisation of each sample's logits.
    """
    count = layer.shape[1]
    if count < 2 or not bool(output.isfinite().all()):
        return False
    for z, out in ((layer, output), (layer - layer.mean(1, keepdim=True), output - output.mean(1, keepdim=True))):
        factor = (z * out).sum(1, keepdim=True) / z.square().sum(1, keepdim=True)
        slack = 8 * rounding * (output.abs() + (factor * layer).abs()).amax(1, keepdim=True)
        if bool((factor > 0).all()) and bool(((out - factor * z).abs() <= slack).all()):
            return True
        if count < 3:
            return False
    return False
