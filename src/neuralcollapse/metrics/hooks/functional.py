"""Classifiers that are no layer of their own: ``F.linear(h, self.head.weight)``, ``h @ self.weight.T``.

While a model runs, products with a matrix are watched as functions; the classifier is the one whose result is
the model's output.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .heads import Classifier, plain_name
from .relations import Relation, relation_of, widened

__all__ = ["FunctionalHead", "find_functional_head"]

PRODUCTS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)


def _operands(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any, Any] | None:
    """Features, weight (K, d) and bias of a product, or ``None`` for other functions."""
    if function is nn.functional.linear:
        named = dict(zip(("input", "weight", "bias"), arguments, strict=False)) | keywords
        return named["input"], named["weight"], named.get("bias")
    if function in PRODUCTS and len(arguments) == 2 and isinstance(arguments[1], Tensor) and arguments[1].ndim == 2:
        return arguments[0], arguments[1].T, None
    return None


class FunctionalHead(TorchFunctionMode):
    """Keeps the operands of one product: the n-th with its weight, or of all where the weight is made anew."""

    def __init__(self, name: str, weight: Tensor | None, number: int, bias: Tensor | None):
        super().__init__()
        self._name, self._number = name, number
        self._storage = None if weight is None else weight.untyped_storage().data_ptr()
        self._bias = bias
        self._seen = 0
        self._running = False
        self._kept: tuple[Tensor, Tensor, Tensor | None, Tensor] | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function; keep it if it is the classifier's product."""
        result = func(*args, **(kwargs or {}))
        operands = _operands(func, args, kwargs or {})
        if operands is not None and isinstance(result, Tensor):
            features, weight, bias = operands
            mine = self._storage is None or weight.untyped_storage().data_ptr() == self._storage
            self._seen += mine
            if mine and self._seen == self._number + 1:
                self._kept = (
                    features.detach().clone(),  # what comes later may write over them
                    weight.detach(),
                    None if bias is None else bias.detach(),
                    result.detach(),
                )
        return result

    def start(self) -> None:
        """Watch what runs from now on."""
        self.stop()
        self._seen, self._kept = 0, None
        self._running = True
        self.__enter__()

    def stop(self) -> None:
        """Watch no longer."""
        if self._running:
            self._running = False
            self.__exit__(None, None, None)

    def call(self) -> tuple[Tensor, Tensor]:
        """What the classifier took in and passed on."""
        if self._kept is None:
            raise ValueError(f"the classifier {self._name!r} was not used in a forward pass")
        return self._kept[0], self._kept[3]

    def classifier(self) -> Classifier:
        """The classifier that was caught."""
        assert self._kept is not None
        bias = self._bias if self._kept[2] is None else self._kept[2]
        return Classifier(self._name, None, self._kept[1], bias)


class _Search(TorchFunctionMode):
    """Compares every product with the model's outputs as it is made."""

    def __init__(self, outputs: Iterable[Tensor], weight: Tensor | None):
        super().__init__()
        self._outputs = list(outputs)
        self._weight = weight
        self.storages: list[int] = []
        self.found: list[tuple[int, Tensor, Relation, Tensor | None]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        operands = _operands(func, args, kwargs or {})
        if operands is not None and isinstance(result, Tensor) and result.ndim >= 2:
            self._compare(operands[1], result.detach())
            self.storages.append(operands[1].untyped_storage().data_ptr())
        return result

    def _compare(self, weight: Tensor, result: Tensor) -> None:
        if self._weight is not None:
            if weight.untyped_storage().data_ptr() == self._weight.untyped_storage().data_ptr():
                self.found.append((len(self.storages), weight, "same", None))
            return
        for output in self._outputs:
            relation = relation_of(result, output)
            bias = None
            if relation in (None, "monotone") and output.shape == result.shape:
                bias = _constant(output.detach() - result)
            if bias is not None:
                self.found.append((len(self.storages), weight, "same", bias))
            elif relation is not None:
                self.found.append((len(self.storages), weight, relation, None))


def _constant(difference: Tensor) -> Tensor | None:
    """The row that all rows of a tensor are, to rounding; ``None`` where they differ."""
    rows = widened(difference.reshape(-1, difference.shape[-1]))
    if rows.shape[0] < 2 or not bool(rows.any()):
        return None
    limit = 1e3 * torch.finfo(difference.dtype).eps * float(rows.abs().max())
    return rows.mean(0) if bool(((rows - rows[0]).abs() <= limit).all()) else None


def find_functional_head(
    model: nn.Module, module: nn.Module | None, outputs: dict[str, Tensor], rerun: Callable[[], Any]
) -> FunctionalHead | None:
    """The product whose result is the model's output (with the weight of ``module``, where one is given)."""
    weight = None
    if module is not None:
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2:
            return None
    search = _Search(outputs.values(), weight)
    with search:
        rerun()
    strong = [found for found in search.found if found[2] != "monotone"] or search.found
    if not strong:
        return None
    number, matrix, _, bias = strong[-1]
    storage = matrix.untyped_storage().data_ptr()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.untyped_storage().data_ptr() == storage:
            use = search.storages[:number].count(storage)
            return FunctionalHead(plain_name(name).removesuffix(".weight"), parameter.detach(), use, bias)
    # The weight is made anew in every pass (normalised, say): its place in the order of products names it.
    return FunctionalHead("a product in the model's forward", None, number, bias)
