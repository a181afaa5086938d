"""Classifiers that are no layer of their own: ``F.linear(h, self.head.weight)``, ``h @ self.weight.T``.

While a model runs, products with a matrix are watched as functions; the classifier is the one whose result is
the model's output.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .heads import LastLayer, plain_name
from .relations import Relation, relation_of, relation_of_turned

__all__ = ["FunctionalHead", "find_functional_head"]

PRODUCTS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)
KEPT = 32
"""Results of products that wait for the model's output: the classifier's is among the last."""
SUMS = (torch.addmm, Tensor.addmm)


class Product(NamedTuple):
    """A product of features (..., d) with a weight (K, d), perhaps with a bias (K,), and its result (..., K)."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None
    result: Tensor


def _readings(function: object, arguments: tuple[Any, ...], keywords: dict[str, Any], result: object) -> list[Product]:
    """The ways to read a function's call as a product with a classifier; none for other functions."""
    if not isinstance(result, Tensor):
        return []
    if function is nn.functional.linear:
        named = dict(zip(("input", "weight", "bias"), arguments, strict=False)) | keywords
        return [Product(named["input"], named["weight"], named.get("bias"), result)]
    if function in PRODUCTS and len(arguments) == 2 and all(isinstance(part, Tensor) for part in arguments):
        left, right = arguments
        found = [Product(left, right.T, None, result)] if right.ndim == 2 else []
        # The weight may stand in front of features that are columns.
        return [*found, Product(right.T, left, None, result.T)] if left.ndim == right.ndim == 2 else found
    if function in SUMS and len(arguments) == 3 and not keywords and arguments[0].ndim == 1:
        return [Product(arguments[1], arguments[2].T, arguments[0], result)]
    if function is torch.einsum:
        return _of_equation(arguments, result)
    return []


def _of_equation(arguments: tuple[Any, ...], result: Tensor) -> list[Product]:
    """The readings of ``einsum("bd,kd->bk", h, W)``: W has two letters, one of them summed over."""
    equation, operands = arguments[0], arguments[1:]
    operands = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    if not isinstance(equation, str) or len(operands) != 2 or not all(isinstance(part, Tensor) for part in operands):
        return []
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    words = inputs.split(",")
    if not arrow or len(words) != 2 or "." in equation:
        return []
    found = []
    for first, second in ((0, 1), (1, 0)):
        word, tensor, letters, weight = words[first], operands[first], words[second], operands[second]
        summed, kept = set(letters) & set(word) - set(out), set(letters) & set(out) - set(word)
        if len(letters) == 2 and len(summed) == len(kept) == 1:
            (over,), (to,) = summed, kept
            matrix = weight if letters == to + over else weight.T
            features, made = tensor.movedim(word.index(over), -1), result.movedim(out.index(to), -1)
            if word.replace(over, "") == out.replace(to, ""):
                found.append(Product(features, matrix, None, made))
    return found


class FunctionalHead(TorchFunctionMode):
    """Keeps the operands of one product: the n-th last with its weight, or of all where the weight is made anew.

    It is counted from the end, since a classifier stands there and what comes before it may be as long as the data:
    steps of a sequence, say.
    """

    def __init__(self, name: str, weight: Tensor | None, after: int):
        super().__init__()
        self._name = name
        self._storage = None if weight is None else _storage_address(weight)
        self._running = False
        self._latest: deque[Product] = deque(maxlen=after + 1)
        self.made_anew = weight is None
        self.products = 0
        """Products so far that it could be."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function; keep it if it is the classifier's product."""
        result = func(*args, **(kwargs or {}))
        for product in _readings(func, args, kwargs or {}, result):
            if self._storage is None or _storage_address(product.weight) == self._storage:
                features, weight, bias, made = (None if part is None else part.detach() for part in product)
                assert features is not None
                assert weight is not None
                assert made is not None
                self.products += 1
                # Copies: what comes later may write over them.
                self._latest.append(Product(features.clone(), weight, bias, made.clone()))
        return result

    def start(self) -> None:
        """Watch what runs from now on."""
        self.stop()
        self._latest.clear()
        self.products = 0
        self._running = True
        self.__enter__()

    def stop(self) -> None:
        """Watch no longer."""
        if self._running:
            self._running = False
            self.__exit__(None, None, None)

    def _kept(self) -> Product:
        if len(self._latest) != self._latest.maxlen:
            raise ValueError(f"the classifier {self._name!r} was not used in a forward pass")
        return self._latest[0]

    def call(self) -> tuple[Tensor, Tensor]:
        """What the classifier took in and passed on."""
        kept = self._kept()
        return kept.features, kept.result

    def classifier(self) -> LastLayer:
        """The classifier that was caught."""
        kept = self._kept()
        return LastLayer(self._name, None, kept.weight, kept.bias)


class ProductSearch(TorchFunctionMode):
    """Keeps the last products until the model's output is there to compare them with."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: list[int] = []
        self._latest: deque[tuple[int, Tensor]] = deque(maxlen=KEPT)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for product in _readings(func, args, kwargs or {}, result):
            if product.result.ndim >= 2:
                self._latest.append((len(self.storages), product.result.detach().clone()))
            self.storages.append(_storage_address(product.weight))
        return result

    def matches(self, outputs: Sequence[Tensor]) -> list[tuple[int, Relation]]:
        """The numbers of the products whose results are among the outputs, and how."""
        found: list[tuple[int, Relation]] = []
        for number, made in self._latest:
            for output in outputs:
                relation = relation_of(made, output) or relation_of_turned(made, output)
                if relation is not None:
                    found.append((number, relation))
        return found


def _storage_address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def find_functional_head(
    model: nn.Module,
    module: nn.Module | None,
    outputs: Callable[[], Sequence[Tensor]],
    rerun: Callable[[], object],
) -> FunctionalHead | None:
    """The product whose result is the model's output (with the weight of ``module``, where one is given).

    ``outputs`` gives what the model returned when ``rerun`` ran it.
    """
    weight = None if module is None else getattr(module, "weight", None)
    if module is not None and (not isinstance(weight, Tensor) or weight.ndim != 2):
        return None
    search = ProductSearch()
    with search:
        rerun()
    storages = search.storages
    if isinstance(weight, Tensor):
        numbers = [number for number, storage in enumerate(storages) if storage == _storage_address(weight)]
    else:
        found = search.matches(outputs())
        numbers = [n for n, how in found if how != "monotone"] or [n for n, _ in found]
    if not numbers:
        return None
    number = numbers[-1]
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if _storage_address(parameter) == storages[number]:
            after = storages[number + 1 :].count(storages[number])
            return FunctionalHead(plain_name(name).removesuffix(".weight"), parameter.detach(), after)
    # The weight is made anew in every pass (normalised, say): its place in the order of products names it.
    return FunctionalHead("a product in the model's forward", None, len(storages) - 1 - number)
