"""Reading batches of any shape: what goes into the model, and which part is the labels."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .._support.checks import describe

__all__ = ["Forward", "first_tensor", "flat_samples", "labels_of", "run_batch", "to_device"]

Forward = Callable[[nn.Module, Any], Any]
"""Runs the model on a batch and returns the labels."""

LABELS = ("labels", "label", "targets", "target", "y")


def to_device(value: Any, device: torch.device) -> Any:
    """``value`` with every tensor in it on ``device``."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [to_device(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def run_batch(model: nn.Module, batch: Any) -> Any:
    """Run ``model`` on ``(inputs, labels)``, ``(input, ..., labels)`` or a dict; return the labels."""
    labels = labels_of(batch)
    if isinstance(batch, Mapping):
        _call_with_names(model, {key: value for key, value in batch.items() if value is not labels})
    else:
        inputs = batch[:-1]
        if len(inputs) > 1:
            model(*inputs)
        elif isinstance(inputs[0], Mapping):
            _call_with_names(model, dict(inputs[0]))
        elif isinstance(inputs[0], list | tuple):
            model(*inputs[0])
        else:
            model(inputs[0])
    return labels


def labels_of(batch: Any) -> Any:
    """The labels of ``(inputs, labels)``, ``(input, ..., labels)`` or a dict."""
    if isinstance(batch, Mapping):
        name = next((key for key in LABELS if key in batch), None)
        if name is None:
            raise ValueError(
                f"a dict batch must hold its labels under one of {', '.join(LABELS)}, "
                f"got the keys {list(batch)}; or say how to run it with forward="
            )
        return batch[name]
    if isinstance(batch, list | tuple) and len(batch) >= 2:
        return batch[-1]
    raise TypeError(
        f"a batch must be (inputs, labels) or a dict with labels, got {describe(batch)}; "
        "or say how to run it with forward="
    )


def _call_with_names(model: nn.Module, inputs: dict[str, Any]) -> None:
    """Call with the keywords that ``forward`` takes; by position if it knows none and there is one tensor."""
    parameters = inspect.signature(model.forward).parameters
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        accepted = {key: value for key, value in inputs.items() if key in parameters}
        tensors = [value for value in inputs.values() if isinstance(value, Tensor)]
        if not accepted and len(tensors) == 1:
            model(tensors[0])
            return
        inputs = accepted
    model(**inputs)


def first_tensor(value: Any) -> Tensor | None:
    """The tensor that a layer passed on: itself, or the first in a tuple, list or output object."""
    if isinstance(value, Tensor):
        return value
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for item in items:
        found = first_tensor(item)
        if found is not None:
            return found
    return None


def flat_samples(features: Tensor, labels: object, layer: str) -> tuple[Tensor, Tensor]:
    """Features (samples, d) and labels (samples,): tokens of sequences become samples."""
    if not isinstance(labels, Tensor):
        labels = torch.as_tensor(labels)
    leading = features.shape[:-1]
    if labels.shape == leading or labels.shape == (*leading, 1):
        return features.reshape(-1, features.shape[-1]), labels.reshape(-1)
    raise ValueError(
        f"the features of layer {layer!r} have shape {tuple(features.shape)}, "
        f"the labels {tuple(labels.shape)}: they must agree in all but the last dimension; "
        "forward= may return labels to suit"
    )
