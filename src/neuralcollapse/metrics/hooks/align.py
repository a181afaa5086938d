"""Which rows of features go with which labels: samples, tokens, positions, and labels shifted by a token."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .heads import unwrapped
from .relations import picked_positions, relation_of, widened
from .watch import Caught

__all__ = ["AVERAGED", "PICKED", "SHIFTED", "align", "is_causal", "shifts_labels"]

SHIFTED = "labels were shifted by one token, as in the model's own loss"
PICKED = "of each sequence the position that the model itself picks is measured"
AVERAGED = "features are averaged over positions, as the model's output is"


def align(caught: Caught, labels: Tensor, layer: str) -> tuple[Tensor, Tensor, str | None]:
    """Features (samples, ..., d) with labels of the same leading shape, and a note on what was done."""
    features = caught.features
    leading = features.shape[:-1]
    if labels.shape == leading:
        return features, labels, None
    if labels.shape == (*leading, 1):
        return features, labels.squeeze(-1), None
    if labels.ndim == features.ndim and labels.shape[1] == 1 and labels.squeeze(1).shape == leading:
        return features, labels.squeeze(1), None
    one = labels.squeeze(1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if features.ndim > 2 and one.ndim == 1 and one.shape[0] == features.shape[0]:
        return *_one_a_sample(caught, one, layer), _how(caught)
    if features.ndim == 2 and labels.ndim > 1 and labels.numel() == features.shape[0]:
        return features, labels.reshape(-1), None
    raise _mismatch(features, labels, layer)


def _how(caught: Caught) -> str | None:
    if caught.features[0].numel() == caught.features.shape[-1]:
        return None
    assert caught.outputs is not None
    assert caught.model_output is not None
    return PICKED if relation_of(caught.outputs, caught.model_output) == "pick" else AVERAGED


def _one_a_sample(caught: Caught, labels: Tensor, layer: str) -> tuple[Tensor, Tensor]:
    """Of features with positions, the one row a sample that the model's own output comes from."""
    flat = caught.features.flatten(1, -2)
    if flat.shape[1] == 1:
        return flat.squeeze(1), labels
    outputs, final = caught.outputs, caught.model_output
    if outputs is not None and final is not None:
        if final.ndim == 1 and outputs.shape[-1] == 1:
            final = final[:, None]
        relation = relation_of(outputs, final)
        if relation == "pick":
            positions = picked_positions(outputs, final)
            assert positions is not None
            return flat[torch.arange(flat.shape[0], device=flat.device), positions], labels
        if relation == "mean":
            return flat.mean(1), labels
    raise _mismatch(caught.features, labels, layer)


def _mismatch(features: Tensor, labels: Tensor, layer: str) -> ValueError:
    return ValueError(
        f"the features of layer {layer!r} have shape {tuple(features.shape)} (the last are its {features.shape[-1]} "
        f"dimensions), the labels {tuple(labels.shape)}: they must agree in all but the last dimension; "
        "forward= may return labels to suit, layer= name another"
    )


# causal language models -------------------------------------------------------------------------------------


def is_causal(model: nn.Module) -> bool:
    """Whether a model is a causal language model by what it says of itself."""
    inner = unwrapped(model)
    get_base = getattr(inner, "get_base_model", None)
    inner = get_base() if callable(get_base) else inner
    config = getattr(inner, "config", None)
    if config is None or getattr(config, "is_encoder_decoder", False):
        return False
    kind = getattr(inner, "loss_type", None)
    if isinstance(kind, str):
        return kind in ("ForCausalLM", "ForConditionalGeneration")
    return re.search(r"(ForCausalLM|LMHeadModel|DoubleHeadsModel)$", type(inner).__name__) is not None


def shifts_labels(model: nn.Module, call: Callable[..., Any], labels: Tensor, ignored: tuple[int, ...]) -> bool:
    """Whether the model's loss compares the output at a token with the label of the next.

    Decided by the loss itself, where the model gives one for labels (``call`` runs it with them): it is the
    cross entropy of pairs that are shifted or of pairs that are not. Else by the kind of the model.
    """
    stated = is_causal(model)
    forward = unwrapped(model).forward
    if "labels" not in inspect.signature(forward).parameters or any(label != -100 for label in ignored):
        return stated
    try:
        output = call(labels=labels)
    except Exception:  # a loss that does not take these labels says nothing
        return stated
    loss, logits = getattr(output, "loss", None), getattr(output, "logits", None)
    if not isinstance(loss, Tensor) or loss.ndim != 0 or not isinstance(logits, Tensor):
        return stated
    if logits.ndim != 3 or logits.shape[:-1] != labels.shape:
        return stated
    plain = _cross_entropy(logits, labels)
    shifted = _cross_entropy(logits[:, :-1], labels[:, 1:])
    far = [abs(float(loss) - value) for value in (shifted, plain)]
    limit = 32 * torch.finfo(logits.dtype).eps * max(1.0, abs(float(loss)))
    if min(far) <= limit < max(far):
        return far[0] < far[1]
    return stated


def _cross_entropy(outputs: Tensor, labels: Tensor) -> float:
    rows = widened(outputs.reshape(-1, outputs.shape[-1]))
    return float(nn.functional.cross_entropy(rows, labels.reshape(-1).long()))
