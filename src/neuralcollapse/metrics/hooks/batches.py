"""Reading batches of any shape: what goes into the model, and which part is the labels."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ..._support.checks import describe
from .heads import unwrapped

__all__ = ["LABELS", "Again", "Batch", "BatchReader", "Batches", "Forward", "LabelsOf", "RawLabels", "to_device"]

Batch = Any
"""What a loader hands out: a tuple, a list, a dict, or an object of one's own that ``forward=`` knows how to run."""

Batches = Iterable[Batch] | Dataset[Batch]
"""Where batches come from; a data set is cut into batches."""

RawLabels = object
"""The labels of a batch as they are there: integers, one-hot or soft rows, truth values, names of classes."""

Forward = Callable[[nn.Module, Batch], RawLabels]
"""Runs the model on a batch and returns the labels."""

LabelsOf = str | int | Callable[[Batch], RawLabels]
"""Where the labels of a batch are: a key, a position, or a function of the batch."""

Again = Callable[..., object]
"""Runs the latest batch once more, with further keywords for the model; what that gave."""

LABELS = ("labels", "label", "targets", "target", "y")


def to_device(value: Batch, device: torch.device) -> Batch:
    """``value`` with every tensor in it on ``device``."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [to_device(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


class BatchReader:
    """Splits batches into inputs and labels and runs a model on the inputs.

    Args:
        forward: the user's own way to run a batch, which returns the labels; ``None`` for the ways known here.
        labels: the user's word on where the labels are.

    """

    def __init__(self, forward: Forward | None = None, labels: LabelsOf | None = None):
        if forward is not None and not callable(forward):
            raise TypeError(f"forward must be a function (model, batch) -> labels, got {describe(forward)}")
        if labels is not None and (isinstance(labels, bool) or not (isinstance(labels, str | int) or callable(labels))):
            raise TypeError(f"labels must be a key, a position or a function of a batch, got {describe(labels)}")
        self.custom = forward is not None
        self._forward, self._labels = forward, labels
        self._whole = False
        self.notes: dict[str, None] = {}

    def run(self, model: nn.Module, batch: Batch) -> RawLabels:
        """Run ``model`` on a batch; the labels."""
        if self._forward is not None:
            labels = self._forward(model, batch)
            if labels is None and self._labels is None:
                raise TypeError("forward must return the labels of the batch, got None")
            return self.labels(model, batch) if labels is None or self._labels is not None else labels
        labels = self.labels(model, batch)
        self.call(model, batch)
        return labels

    # the labels ---------------------------------------------------------------------------------------------

    def labels(self, model: nn.Module, batch: Batch) -> RawLabels:
        """The labels of ``(inputs, labels)``, ``(input, ..., labels)``, ``(inputs, labels, extras)`` or a dict."""
        place = self._place(model, batch)
        if callable(place):
            return place(batch)
        try:
            return batch[place]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"labels={describe(place)} is not in the batch: {_contents(batch)}") from error

    def _place(self, model: nn.Module, batch: Batch) -> LabelsOf:
        if self._labels is not None:
            return self._labels
        if isinstance(batch, Mapping):
            name = next((key for key in LABELS if key in batch), None)
            if name is None:
                raise ValueError(
                    f"a dict batch must hold its labels under one of {', '.join(LABELS)}, got the keys {list(batch)}; "
                    "say where they are with labels=, or how to run the batch with forward="
                )
            return name
        if not isinstance(batch, list | tuple) or len(batch) < 2:
            raise TypeError(
                f"a batch must be (inputs, labels) or a dict with labels, got {_contents(batch)}; "
                "say where the labels are with labels=, or how to run the batch with forward="
            )
        return self._place_in_tuple(model, batch)

    def _place_in_tuple(self, model: nn.Module, batch: list[object] | tuple[object, ...]) -> int:
        """The last item, unless the model takes fewer inputs than come before it."""
        last = len(batch) - 1
        required, most = _positional(model)
        if last <= 1 or last <= required:
            return last
        if last > most:
            if _label_like(batch[most], batch[0]):
                self.notes[f"item {most} of {len(batch)} in a batch is taken as the labels"] = None
                return most
        elif not all(_label_like(item, batch[0], narrow=True) for item in batch[-2:]):
            return last
        raise ValueError(
            f"which part of a batch is the labels cannot be told from {_contents(batch)}; "
            "say so with labels= (a position or a function), or how to run the batch with forward="
        )

    # the inputs ---------------------------------------------------------------------------------------------

    def call(self, model: nn.Module, batch: Batch, **extra: object) -> object:
        """Run the model on the inputs of a batch, with further keywords; what it returns."""
        place = self._place(model, batch)
        if isinstance(batch, Mapping):
            return self._call_with_names(model, batch, place, extra)
        if not isinstance(batch, list | tuple):
            return model(batch, **extra)
        inputs = [item for number, item in enumerate(batch) if callable(place) or number != place % len(batch)]
        most = _positional(model)[1]
        if callable(place) and len(batch) > 1:
            inputs = inputs[: max(1, min(most, len(inputs) - 1))]
        inputs = inputs[:most] if most else inputs
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return self._call_with_names(model, inputs[0], None, extra)
        if len(inputs) == 1 and isinstance(inputs[0], list | tuple):
            return model(*inputs[0], **extra)
        try:
            return model(*inputs, **extra)
        except Exception as error:
            # Of two items there is one reading; of more, the error may come from a wrong one.
            if isinstance(error, TypeError) or len(batch) > 2:
                raise _with_hint(error) from error
            raise

    def _call_with_names(
        self, model: nn.Module, batch: Mapping[Any, object], place: LabelsOf | None, extra: dict[str, object]
    ) -> object:
        """Call with the keywords that ``forward`` takes; by position, or with the whole batch, if it knows none."""
        inner = unwrapped(model)
        parameters = inspect.signature(inner.forward).parameters
        inputs = {key: item for key, item in batch.items() if key != place or key not in (*LABELS, place)}
        if isinstance(place, str) and place not in LABELS and place in parameters:
            inputs[place] = batch[place]
        if isinstance(place, str) and _needs_labels(inner, batch):
            extra = {"labels": batch[place]} | extra
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
            return model(**inputs, **extra)
        accepted = {key: item for key, item in inputs.items() if key in parameters}
        if accepted:
            return model(**accepted, **extra)
        tensors = [item for item in inputs.values() if isinstance(item, Tensor)]
        if len(tensors) == 1 and not self._whole:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a tensor indexed by a key, where the model takes the whole batch
                    return model(tensors[0], **extra)
            except Exception as error:
                first = error
            try:
                output = model(batch, **extra)
            except Exception:
                raise _with_hint(first) from first
            self._whole = True
            return output
        try:
            return model(batch, **extra)
        except Exception as error:
            raise _with_hint(error) from error


def _needs_labels(model: nn.Module, batch: Mapping[Any, object]) -> bool:
    """Whether the model makes its decoder's inputs from the labels."""
    config = getattr(model, "config", None)
    return bool(getattr(config, "is_encoder_decoder", False)) and not (
        {"decoder_input_ids", "decoder_inputs_embeds"} & set(batch)
    )


def _positional(model: nn.Module) -> tuple[int, int]:
    """How many inputs ``forward`` needs and takes by position."""
    required = most = 0
    for parameter in inspect.signature(unwrapped(model).forward).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return required, 1 << 30
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            most += 1
            required += parameter.default is inspect.Parameter.empty
    return required, most


def _label_like(item: object, inputs: object, narrow: bool = False) -> bool:
    """Whether an item can be the labels of a batch: one number, truth value or name a sample (or one-hot rows)."""
    size = len(inputs) if isinstance(inputs, Tensor) and inputs.ndim else None
    if isinstance(item, Tensor):
        if item.ndim == 0 or (size is not None and item.shape[0] != size):
            return False
        if item.ndim > 1:
            return not narrow and (item.ndim == 2 or not item.is_floating_point())
        return not item.is_floating_point() or bool((item == item.round()).all())
    if isinstance(item, np.ndarray):
        return item.ndim >= 1 and item.dtype.kind in "iubU"
    return isinstance(item, list | tuple) and (size is None or len(item) == size)


def _contents(batch: object) -> str:
    if isinstance(batch, Mapping):
        return f"the keys {list(batch)}"
    if isinstance(batch, list | tuple):
        return f"({', '.join(describe(item) for item in batch)})"
    return describe(batch)


def _with_hint(error: Exception) -> Exception:
    hint = f"{error} (in the model's forward; forward= says how to run a batch, labels= which part of it is the labels)"
    try:
        return type(error)(hint)
    except Exception:  # an exception of the user's own that takes other arguments
        return error
