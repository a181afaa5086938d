"""The outputs of several layers at once, and where their channels are.

A convolution puts its channels into dimension 1, a linear layer last, and layers without weights leave them
where they were: the latest layer that says how many channels it made tells which dimension of an output they
are.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from ..precision import coarser, computed_in
from .align import shifts_labels
from .batches import Again, RawLabels
from .heads import plain_name
from .observer import first_tensor
from .targets import Targets

__all__ = ["LayerRows", "LayersWatch"]


AGAIN = "layer {!r} is called more than once in a forward pass: its last output is measured"


def _channels(module: nn.Module) -> tuple[int, bool] | None:
    """How many channels a layer makes, and whether they come first."""
    if isinstance(module, _ConvNd):
        return module.out_channels, True
    if isinstance(module, _NormBase):
        return module.num_features, True
    if isinstance(module, nn.GroupNorm):
        return module.num_channels, True
    if isinstance(module, nn.Linear):
        return module.out_features, False
    if isinstance(module, nn.LayerNorm):
        return module.normalized_shape[-1], False
    if isinstance(module, nn.Embedding):
        return module.embedding_dim, False
    return None


def _time_first(module: nn.Module) -> bool:
    """Whether a layer of sequences says that it has time before samples, as torch's do by default."""
    part: object = module
    if isinstance(part, nn.TransformerEncoder | nn.TransformerDecoder):
        part = part.layers[0]
    if isinstance(part, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        part = part.self_attn
    return isinstance(part, nn.RNNBase | nn.MultiheadAttention | nn.Transformer) and not part.batch_first


def _channels_last(output: Tensor, latest: tuple[int, bool] | None) -> Tensor:
    """``output`` with its channels last."""
    if output.ndim < 3:
        return output
    first = output.ndim > 3
    if latest is not None:
        count, convolved = latest
        leads, ends = output.shape[1] == count, output.shape[-1] == count
        first = convolved if leads == ends else leads
    return output.movedim(1, -1) if first else output


class LayersWatch:
    """Catches what each of some layers passes on, with channels last."""

    def __init__(self, model: nn.Module, layers: Mapping[str, nn.Module]):
        self.caught: dict[str, Tensor] = {}
        self.notes: dict[str, str] = {}
        """What a reader should know of a layer, by its name."""
        self._precisions: dict[str, torch.dtype] = {}
        self._coarsest = torch.float64
        self._layers = dict(layers)
        self._latest: tuple[int, bool] | None = None
        self._hooks: list[RemovableHandle] = []
        known = {plain_name(name): module for name, module in model.named_modules()}
        for module in known.values():
            if _channels(module) is not None:
                self._hooks.append(module.register_forward_hook(self._note))
        for name, module in layers.items():
            self._hooks.append(module.register_forward_hook(self._keeping(name)))

    def _note(self, module: nn.Module, arguments: object, output: object) -> None:
        self._latest = _channels(module)
        self._see(first_tensor(output))

    def _see(self, tensor: Tensor | None) -> None:
        if tensor is not None and tensor.is_floating_point():
            self._coarsest = coarser(self._coarsest, computed_in(tensor))

    def _keeping(self, name: str) -> Callable[[nn.Module, object, object], None]:
        def keep(module: nn.Module, arguments: object, output: object) -> None:
            tensor = first_tensor(output)
            again = self.caught.pop(name, None) is not None
            if again:
                self.notes[name] = AGAIN.format(name)
            if tensor is not None:
                self._see(tensor)
                self._precisions[name] = self._coarsest
                # A copy: the next layer may write over this one's output (an inplace ReLU).
                made = tensor.detach().clone()
                turned = made.ndim == 3 and _time_first(module)
                self.caught[name] = made.transpose(0, 1) if turned else _channels_last(made, self._latest)

        return keep

    def start(self) -> None:
        """Forget what earlier passes left."""
        self.caught.clear()
        self._latest, self._coarsest = None, torch.float64

    def features(self, name: str) -> Tensor:
        """What the layer passed on, with channels last."""
        if name not in self.caught:
            raise ValueError(f"layer {name!r} was not reached in a forward pass, or passes no tensor")
        return self.caught[name]

    def precision(self, name: str) -> torch.dtype:
        """The coarsest dtype on the way to the layer's output."""
        return self._precisions[name]

    def remove(self) -> None:
        """Remove all hooks."""
        for hook in self._hooks:
            hook.remove()
        self.caught.clear()


class LayerRows:
    """Features (n, d) and labels (n,) of a layer's output with channels last."""

    def __init__(self, targets: Targets, pool: str, num_classes: int | None):
        self._targets, self._pool, self._num_classes = targets, pool, num_classes
        self._shift = False
        self.notes: list[str] = []

    def look(self, model: nn.Module, labels: RawLabels, again: Again, caught: dict[str, Tensor]) -> None:
        """In the first batch: whether the model's loss shifts the labels."""
        raw = self._targets.tensor(labels)
        named = [name for name, x in caught.items() if raw.ndim > 1 and x.shape[:-1] == raw.shape]
        if not named or raw.shape[-1] < 2 or raw.is_floating_point():
            return
        self._shift, note = shifts_labels(model, named[-1], again, raw, self._targets.ignored)
        if note is not None:
            self.notes.append(note)

    def of(self, features: Tensor, labels: RawLabels, name: str, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The rows of one batch; ``own`` are the samples that no other process has, where some are repeated."""
        raw = self._targets.tensor(labels)
        if raw.ndim == 2 and raw.shape[1] == 1:
            raw = raw.squeeze(1)
        soft = raw.is_floating_point() and raw.ndim == 2 and raw.shape[0] == features.shape[0]
        raw = self._targets.integers(raw, raw.shape[:1] if soft else raw.shape, raw.shape[-1] if soft else None)
        if features.ndim > 2 and raw.ndim == 1:
            positions = features.flatten(1, -2)
            features = positions.mean(1) if self._pool == "average" else features.flatten(1)
        if features.shape[:-1] != raw.shape:
            raise ValueError(
                f"the output of layer {name!r} has shape {tuple(features.shape)} with its channels last, "
                f"the labels {tuple(raw.shape)}: they must agree in all but the last dimension; "
                "forward= may return labels to suit"
            )
        if own is not None and features.shape[0] == own.shape[0]:
            features, raw = features[own.to(features.device)], raw[own.to(raw.device)]
        if self._shift:
            features, raw = features[..., :-1, :], raw[..., 1:]
        flat = self._targets.checked(raw.reshape(-1), self._num_classes)
        return features.reshape(-1, features.shape[-1]), flat
