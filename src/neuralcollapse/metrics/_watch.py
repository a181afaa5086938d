"""Hooks that catch what layers take in or pass on, and find the classifier by the order of execution."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .._support.checks import describe
from .._support.registry import unknown_name
from ._batches import first_tensor

__all__ = ["Classifier", "ClassifierWatch", "Watch", "classifier_of", "module_of"]

Catch = Callable[[Any, Any, Any], Tensor | None]


@dataclass(frozen=True, eq=False)
class Classifier:
    """The last linear layer of a model: its name, weight (K, d) and bias (K,) or ``None``."""

    name: str
    module: nn.Module
    weight: Tensor | None
    bias: Tensor | None


def _is_classifier(module: nn.Module) -> bool:
    if isinstance(module, nn.Linear):
        return True
    weight = getattr(module, "weight", None)
    leaf = next(module.children(), None) is None
    return leaf and isinstance(weight, Tensor) and weight.ndim == 2 and not isinstance(module, nn.Embedding)


def _describe_classifier(name: str, module: nn.Module) -> Classifier:
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return Classifier(name, module, None, None)
    usable = bias.detach() if isinstance(bias, Tensor) and bias.shape == weight.shape[:1] else None
    return Classifier(name, module, weight.detach(), usable)


def module_of(model: nn.Module, name: object) -> nn.Module:
    """The module of that name."""
    modules = dict(model.named_modules())
    if not isinstance(name, str) or name not in modules:
        raise unknown_name("layer", name, [known for known in modules if known])
    return modules[name]


def _candidates(model: nn.Module) -> dict[str, nn.Module]:
    found = {name: module for name, module in model.named_modules() if _is_classifier(module)}
    if not found:
        raise ValueError("the model has no nn.Linear; name its classifier with layer=")
    return found


def _last(names: Sequence[str], candidates: dict[str, nn.Module]) -> str | None:
    linear = [name for name in names if isinstance(candidates[name], nn.Linear)]
    return (linear or list(names) or [None])[-1]


def classifier_of(model: Any, layer: Any = None) -> Classifier:
    """The classifier of ``model``: the layer of that name, else the last ``nn.Linear`` that was defined.

    :func:`measure_model` goes by the order of execution, which it sees while the model runs.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {describe(model)}")
    if layer is not None:
        return _describe_classifier(layer, module_of(model, layer))
    found = _candidates(model)
    name = _last(list(found), found)
    assert name is not None
    return _describe_classifier(name, found[name])


class Watch:
    """Catches a tensor from each of some modules in every forward pass, in the order of execution."""

    def __init__(self, modules: dict[str, nn.Module], catch: Catch):
        self.caught: dict[str, Tensor] = {}
        self._hooks: dict[str, Any] = {}
        for name, module in modules.items():
            self._hooks[name] = module.register_forward_hook(self._hook(name, catch), with_kwargs=True)

    def _hook(self, name: str, catch: Catch) -> Callable[..., None]:
        def keep(module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
            tensor = catch(arguments, keywords, output)
            self.caught.pop(name, None)
            if tensor is not None:
                self.caught[name] = tensor.detach()

        return keep

    def keep(self, names: Sequence[str]) -> None:
        """Remove the hooks of all other modules."""
        for name in [name for name in self._hooks if name not in names]:
            self._hooks.pop(name).remove()

    def remove(self) -> None:
        """Remove all hooks."""
        self.keep([])


def _caught_input(arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Tensor | None:
    return first_tensor(arguments) if arguments else first_tensor(keywords)


def caught_output(arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Tensor | None:
    """What a module passed on."""
    return first_tensor(output)


class ClassifierWatch:
    """Catches the input of the classifier: ``layer``, else the last ``nn.Linear`` that a pass reached."""

    def __init__(self, model: nn.Module, layer: Any = None):
        self._modules = _candidates(model) if layer is None else {layer: module_of(model, layer)}
        self._watch = Watch(self._modules, _caught_input)
        self._name: str | None = None

    def start(self) -> None:
        """Forget what earlier passes left."""
        self._watch.caught.clear()

    def features(self) -> Tensor:
        """The classifier's input in the latest forward pass."""
        caught = self._watch.caught
        if self._name is None:
            self._name = _last(list(caught), self._modules)
            if self._name is None:
                raise ValueError(
                    f"none of the layers {', '.join(self._modules)} was reached in a forward pass; "
                    "name the classifier with layer="
                )
            self._watch.keep([self._name])
        if self._name not in caught:
            raise ValueError(f"layer {self._name!r} was not reached in a forward pass, or takes no tensor")
        return caught[self._name]

    @property
    def name(self) -> str:
        """The classifier's name, once a pass has been made."""
        assert self._name is not None
        return self._name

    @property
    def classifier(self) -> Classifier:
        """The classifier as it is now, once a pass has been made."""
        return _describe_classifier(self.name, self._modules[self.name])

    def remove(self) -> None:
        """Remove all hooks."""
        self._watch.remove()
