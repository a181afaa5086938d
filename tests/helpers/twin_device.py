"""A second device made of the first: tensors over CPU data that say they are elsewhere.

Inside :class:`TwinDevice` everything made for, or moved to, the device ``meta`` holds real numbers; operations that
mix it with CPU tensors fail as they would on an accelerator, and every transfer is counted. ``meta`` and not
``cuda``, because torch built for the CPU guards the former only.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

__all__ = ["DEVICE", "Twin", "TwinDevice"]

DEVICE = torch.device("meta")


class Twin(Tensor):
    """A tensor on the twin device; ``inner`` holds its numbers."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Twin":
        result = Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=DEVICE,
        )  # fmt: skip
        result.inner = inner
        return result

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} on the twin device outside of it")

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Twin({tuple(self.shape)}, {self.dtype})"


class TwinDevice(TorchDispatchMode):
    """Runs the twin device; ``transfers`` lists the entries of every tensor that moved, ``syncs`` counts scalars.

    ``double=False`` makes it one that has no float64: nothing of that type is made there, or on leaving.
    """

    def __init__(self, double: bool = True) -> None:
        super().__init__()
        self.double = double
        self.transfers: list[int] = []
        self.syncs = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        twins = [value for value in tensors if isinstance(value, Twin)]
        others = [value for value in tensors if not isinstance(value, Twin) and value.ndim]
        name = func.overloadpacket.__name__
        target = kwargs.get("device")
        moves = name in ("_to_copy", "copy_")
        if twins and others and not moves:
            shapes = [tuple(value.shape) for value in others]
            raise RuntimeError(f"{name}: tensors on the twin device meet tensors on the CPU of shapes {shapes}")
        there = isinstance(args[0], Twin) if name == "copy_" else bool(twins)
        if target is not None:
            there = torch.device(target) == DEVICE
            kwargs["device"] = torch.device("cpu")
        if moves and any(isinstance(value, Twin) != there for value in tensors if value.ndim):
            self.transfers.append(max(value.numel() for value in tensors))
        if name == "_local_scalar_dense" and twins:
            self.syncs += 1
        if (
            not self.double
            and torch.float64 in (kwargs.get("dtype"), *(value.dtype for value in twins))
            and (there or twins)
        ):
            raise TypeError(f"{name}: the twin device has no float64")
        known = {id(value.inner): value for value in twins}
        plain = tree_map(lambda value: value.inner if isinstance(value, Twin) else value, (args, kwargs))
        result = func(*plain[0], **plain[1])
        if not there:
            return result

        def wrap(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if not self.double and value.dtype == torch.float64:
                raise TypeError(f"{name}: the twin device has no float64")
            return known[id(value)] if id(value) in known else Twin(value)

        return tree_map(wrap, result)
