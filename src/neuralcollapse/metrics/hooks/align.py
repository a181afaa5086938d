"""Which rows of features go with which labels: samples, tokens, positions, and labels shifted by a token."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from .batches import LABELS, Again
from .heads import unwrapped
from .relations import picked_positions, relation_of, widened
from .watch import Caught

__all__ = ["AVERAGED", "PICKED", "SHIFTED", "align", "is_causal", "shifts_labels"]

SHIFTED = "labels were shifted by one token, as in the model's own loss"
PICKED = "of each sequence the position that the model itself picks is measured"
TWICE = (
    "labels were shifted by one token, as in the model's own loss, though they are the next tokens already: "
    "labels that equal the inputs, or forward=, pair each token with its next"
)
UNSHIFTED = (
    "labels equal the model's input tokens and were not shifted: for the prediction of the next token give the labels "
    "of the next tokens"
)
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
        return *_one_a_sample(caught, one, layer), _position_note(caught)
    if features.ndim == 2 and labels.ndim > 1 and labels.numel() == features.shape[0]:
        return features, labels.reshape(-1), None
    raise _mismatch_error(features, labels, layer)


def _position_note(caught: Caught) -> str | None:
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
    raise _mismatch_error(caught.features, labels, layer)


def _mismatch_error(features: Tensor, labels: Tensor, layer: str) -> ValueError:
    return ValueError(
        f"the features of layer {layer!r} have shape {tuple(features.shape)} (the last are its {features.shape[-1]} "
        f"dimensions), the labels {tuple(labels.shape)}: they must agree in all but the last dimension; "
        "forward= may return labels to suit, layer= name another"
    )


# causal language models -------------------------------------------------------------------------------------


def is_causal(model: nn.Module, layer: str = "") -> bool:
    """Whether a model, or the part of it that holds its classifier ``layer``, says that it is a causal language model.

    The outermost part that says what it is decides: a wrapper of one's own says nothing.
    """
    part: object = unwrapped(model)
    for name in (*layer.split("."), ""):
        get_base = getattr(part, "get_base_model", None)
        part = get_base() if callable(get_base) else part
        kind = _says_causal(part)
        if kind is not None:
            return kind
        part = getattr(part, name, None) if name else None
    return False


def _says_causal(part: object) -> bool | None:
    """Whether a module is a causal language model by its own word; ``None`` where it gives none."""
    config = getattr(part, "config", None)
    if config is None:
        return None
    if getattr(config, "is_encoder_decoder", False):
        return False
    kind = getattr(part, "loss_type", None)
    if isinstance(kind, str):
        return kind in ("ForCausalLM", "ForConditionalGeneration")
    if re.search(r"(ForCausalLM|LMHeadModel|DoubleHeadsModel)$", type(part).__name__) is not None:
        return True
    return False if hasattr(config, "model_type") else None


def shifts_labels(
    model: nn.Module, layer: str, call: Again, labels: Tensor, ignored: tuple[int, ...]
) -> tuple[bool, str | None]:
    """Whether the model's loss compares the output at a token with the label of the next, and a note.

    Decided by the loss itself, where the model gives one for labels (``call`` runs it with them): it is the
    cross entropy of pairs that are shifted or of pairs that are not. Else by the kind of the model that ``layer``
    belongs to, unless the labels are the next tokens already.
    """
    stated = is_causal(model, layer)
    inner = unwrapped(model)
    place = next((name for name in LABELS if name in inspect.signature(inner.forward).parameters), None)
    usable = place is not None and all(label == -100 for label in ignored)
    taken: list[Tensor] = []
    hook = inner.register_forward_pre_hook(_tokens_into(taken, labels), with_kwargs=True)
    try:
        output = call(**{place: labels}) if place is not None and usable else call()
        shift = _by_loss(output, labels) if usable else None
    except Exception:  # a loss that does not take these labels says nothing
        shift = None
    finally:
        hook.remove()
    kept = ~torch.isin(labels, torch.tensor(ignored, dtype=labels.dtype, device=labels.device))
    copied = _agree_with_inputs(labels, taken, kept)
    ahead = not copied and _agree_with_inputs(labels[..., :-1], [tokens[..., 1:] for tokens in taken], kept[..., :-1])
    told = shift is not None
    shift = shift if told else stated and not ahead
    if shift:
        return True, TWICE if ahead else SHIFTED
    return False, UNSHIFTED if copied and not told else None


def _tokens_into(taken: list[Tensor], labels: Tensor) -> Callable[..., None]:
    """A hook that keeps the integer inputs of a model that are of the labels' shape, and not the labels."""

    def keep(module: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
        inputs = [*arguments, *(value for name, value in keywords.items() if "label" not in name and name != "targets")]
        taken.extend(
            value
            for value in inputs
            if isinstance(value, Tensor) and value.shape == labels.shape and value.dtype in (torch.int32, torch.int64)
        )

    return keep


def _agree_with_inputs(labels: Tensor, inputs: list[Tensor], kept: Tensor) -> bool:
    """Whether some of the inputs have the labels in all places that are kept, and these are more than one class."""
    wanted = labels[kept]
    various = wanted.numel() > 1 and bool((wanted != wanted[0]).any())
    return various and any(torch.equal(tokens[kept].to(wanted), wanted) for tokens in inputs)


def _by_loss(output: object, labels: Tensor) -> bool | None:
    """What the loss that a model returned with its outputs tells; ``None`` where it tells nothing."""
    parts = list(_returned_tensors(output))
    losses = [part for part in parts if part.ndim == 0]
    logits = [part for part in parts if part.ndim == labels.ndim + 1 and part.shape[:-1] == labels.shape]
    if not losses or not logits:
        return None
    loss, rows = float(losses[0]), logits[0]
    far = [abs(loss - _cross_entropy(*pair)) for pair in ((rows[..., :-1, :], labels[..., 1:]), (rows, labels))]
    limit = 32 * torch.finfo(rows.dtype).eps * max(1.0, abs(loss))
    return far[0] < far[1] if min(far) <= limit < max(far) else None


def _returned_tensors(output: object) -> Iterator[Tensor]:
    """The floating tensors at the top of what a model returned, the loss among them."""
    values: Iterable[object] = ()
    if isinstance(output, Mapping):
        values = output.values()
    elif isinstance(output, list | tuple):
        values = output
    elif output is not None and hasattr(output, "__dict__"):
        values = vars(output).values()
    return (value for value in values if isinstance(value, Tensor) and value.is_floating_point())


def _cross_entropy(outputs: Tensor, labels: Tensor) -> float:
    rows = widened(outputs.reshape(-1, outputs.shape[-1]))
    return float(nn.functional.cross_entropy(rows, labels.reshape(-1).long()))
