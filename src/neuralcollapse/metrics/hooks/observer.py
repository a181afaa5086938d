"""Hooks that catch what modules take in and pass on: order and shapes of their calls, and the tensors of some."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from ..precision import coarser, computed_in
from .heads import stated
from .relations import flat_outputs, relation_of

__all__ = ["Call", "LayerReached", "Observer", "first_tensor"]


@dataclass(frozen=True)
class LayerReached:
    """Shapes of what a layer took in and passed on in a forward pass, and how often it was called."""

    taken: tuple[int, ...]
    passed: tuple[int, ...]
    calls: int


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a layer."""

    name: str
    features: Tensor
    outputs: Tensor | None
    precision: torch.dtype
    own: tuple[Tensor | None, Tensor | None] | None = None
    """The layer's weight and bias, where it has them only while it runs."""


def first_tensor(value: object) -> Tensor | None:
    """The tensor that a layer passed on: itself, or the first in a tuple, list or output object."""
    if isinstance(value, Tensor):
        return value
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for item in items:
        found = first_tensor(item)
        if found is not None:
            return found
    return None


def _address(tensor: Tensor) -> int | None:
    """Where a tensor lies in memory; ``None`` for kinds that lie nowhere, such as sparse ones."""
    try:
        return tensor.data_ptr() or None
    except RuntimeError:
        return None


def input_of(module: nn.Module, arguments: tuple[object, ...], keywords: Mapping[str, object]) -> Tensor | None:
    """The tensor that a layer works on: of several, the first floating one that is as wide as the layer's weight.

    A mask may come before the features, by position or by name.
    """
    tensors = [value for value in (*arguments, *keywords.values()) if isinstance(value, Tensor)]
    floating = [tensor for tensor in tensors if tensor.is_floating_point()]
    if len(floating) > 1:
        weight = getattr(module, "weight", None)
        sizes = weight.shape[1:2] + weight.shape[:1] if isinstance(weight, Tensor) and weight.ndim > 1 else ()
        place = 1 if isinstance(module, _ConvNd) else -1
        for width in (getattr(module, "in_features", None), *sizes):
            fitting = [tensor for tensor in floating if tensor.ndim > 1 and tensor.shape[place] == width]
            if fitting:
                return fitting[0]
    return floating[0] if floating else first_tensor((*arguments, *keywords.values()))


class Observer:
    """Hooks on modules: the order of calls, the outermost outputs, and the last calls of those to keep."""

    def __init__(
        self, modules: Mapping[str, nn.Module], keep: Iterable[str], most: int | None = 1, scattered: bool = False
    ):
        self.calls: deque[Call] = deque(maxlen=most)
        self.reached: dict[str, LayerReached] = {}
        self.outermost: list[dict[str, Tensor]] = []
        self._into: list[frozenset[int]] = []
        self.precision = torch.float64
        self._keep, self.scattered = frozenset(keep), scattered
        self._depth = 0
        self._hooks: list[RemovableHandle] = []
        for name, module in modules.items():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # takes no hooks; what stands around it does
            self._hooks.append(module.register_forward_pre_hook(self._enter))
            self._hooks.append(module.register_forward_hook(self._leaving(name), with_kwargs=True))

    def _enter(self, module: nn.Module, arguments: object) -> None:
        self._depth += 1

    def _leaving(self, name: str) -> Callable[..., None]:
        def leave(
            module: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object], output: object
        ) -> None:
            self._depth = max(0, self._depth - 1)
            if self._depth == 0:
                self.outermost.append(flat_outputs(output))
                inputs = [value for value in (*arguments, *keywords.values()) if isinstance(value, Tensor)]
                self._into.append(frozenset(place for place in map(_address, inputs) if place is not None))
            taken, passed = input_of(module, arguments, keywords), first_tensor(output)
            if taken is None:
                return
            self._see(taken)
            before = self.reached.pop(name, None)
            self.reached[name] = LayerReached(
                tuple(taken.shape), () if passed is None else tuple(passed.shape), 1 + (before.calls if before else 0)
            )
            if name in self._keep:
                # Copies: what comes later in the forward pass may write over them (an inplace ReLU, logits += prior).
                made = None if passed is None else passed.detach().clone()
                weight, bias = stated(module) if self.scattered else (None, None)
                own = (weight if weight is None else weight.clone(), bias if bias is None else bias.clone())
                call = Call(name, taken.detach().clone(), made, self.precision, own if self.scattered else None)
                self.calls.append(call)
            self._see(passed)

        return leave

    def _see(self, tensor: Tensor | None) -> None:
        if tensor is not None and tensor.is_floating_point():
            self.precision = coarser(self.precision, computed_in(tensor))

    def clear(self) -> None:
        """Forget what earlier passes left."""
        self.calls.clear()
        self.reached.clear()
        self.outermost.clear()
        self._into.clear()
        self.precision = torch.float64
        self._depth = 0

    def outputs(self) -> dict[str, Tensor]:
        """The tensors that the model returned: of the last outermost call that returned any."""
        return next((tensors for tensors in reversed(self.outermost) if tensors), {})

    def runs(self) -> int:
        """How often the model ran with outputs that are like the last ones in shape, and of which neither is the other.

        More than once for a model that runs on several views, or beside another one: which run is meant is not known.
        """
        last = self.outputs()
        shapes = {tensor.shape for tensor in last.values()}
        count = 1
        for number, outputs in enumerate(self.outermost):
            later = frozenset().union(*self._into[number + 1 :])
            others = [t for t in outputs.values() if t.shape in shapes and _address(t) not in later]
            alike = any(relation_of(t, z) or relation_of(z, t) for t in others for z in last.values())
            count += bool(others) and outputs is not last and not alike
        return count

    def remove(self) -> None:
        """Remove all hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self.clear()
