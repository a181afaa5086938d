"""``measure_model``: neural collapse of a network as it is, from a loader.

The classifier's input is caught by a hook while the model runs in evaluation mode. Features stay in memory while they
fit, so that the model sees the data once; beyond that they stream into class statistics, and a second run is made
only for metrics that need one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._support.checks import describe, flag, integer
from .._support.registry import unknown_name
from ._batches import Forward, first_tensor, flat_samples, run_batch, to_device
from ._inputs import IGNORED
from ._measure import MEMORY_LIMIT
from ._recorder import Recorder, Settings
from ._report import CollapseReport

__all__ = ["Classifier", "classifier_of", "measure_layers", "measure_model"]

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
    usable = isinstance(bias, Tensor) and bias.shape == weight.shape[:1]
    return Classifier(name, module, weight.detach(), bias.detach() if usable else None)


def classifier_of(model: nn.Module, layer: str | None = None) -> Classifier:
    """The classifier of ``model``: the layer of that name, else the last ``nn.Linear`` in the order of definition.

    :func:`measure_model` goes by the order of execution, which it sees while the model runs.
    """
    _check_model(model)
    if layer is not None:
        return _describe_classifier(layer, _module(model, layer))
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    found = found or [(name, module) for name, module in model.named_modules() if _is_classifier(module)]
    if not found:
        raise ValueError("the model has no nn.Linear; name its classifier with layer=")
    return _describe_classifier(*found[-1])


def measure_model(
    model: nn.Module,
    loader: Iterable[Any],
    layer: str | None = None,
    num_classes: int | None = None,
    *,
    forward: Forward | None = None,
    metrics: object = None,
    passes: int | None = None,
    global_mean: str = "samples",
    ignore_label: int | None = IGNORED,
    memory_limit: int = MEMORY_LIMIT,
    progress: bool = False,
) -> CollapseReport:
    """Measure neural collapse of ``model`` on the batches of ``loader``.

    Args:
        model: any module; it runs in evaluation mode without gradients and is left as it was.
        loader: batches ``(inputs, labels)``, ``(input, ..., labels)`` or dicts with labels. Labels of token models
            have the shape of the tokens.
        layer: the classifier's name; by default the last ``nn.Linear`` reached in a forward pass. Its input is what
            is measured, its weight and bias are the classifier.
        num_classes: K; by default the number of the classifier's outputs.
        forward: for other batches, a function ``(model, batch)`` that runs the model and returns the labels.
        metrics: a name or names of metrics; ``None`` for all.
        passes: 1 or 2, see :func:`measure`.
        global_mean: ``"samples"`` or ``"classes"``, see :func:`measure`.
        ignore_label: the label of samples or tokens to leave out.
        memory_limit: bytes of features to keep. Within it the model runs over the loader once; beyond it twice, if
            ``metrics`` need that.
        progress: show a progress bar.

    """
    _check_model(model)
    settings = Settings(
        metrics, passes, global_mean, ignore_label, integer("memory_limit", memory_limit, minimum=0)
    )
    if num_classes is not None:
        integer("num_classes", num_classes, minimum=2)
    if layer is None:
        candidates = {name: module for name, module in model.named_modules() if _is_classifier(module)}
        if not candidates:
            raise ValueError("the model has no nn.Linear; name its classifier with layer=")
    else:
        candidates = {layer: _module(model, layer)}
    run = _Run(model, loader, forward, flag("progress", progress))
    recorder: Recorder | None = None
    with run.evaluating(candidates, _caught_input):
        for caught, labels in run.batches():
            if recorder is None:
                name = _last_classifier(caught, candidates)
                run.keep([name])
                classifier = _describe_classifier(name, candidates[name])
                recorder = Recorder(settings, num_classes, classifier.weight, classifier.bias)
            recorder.add(*_samples(caught, labels, name))
        if recorder is None:
            raise ValueError("loader holds no batches")
        if recorder.finish_first_pass() and run.repeatable:
            for caught, labels in run.batches():
                recorder.add_again(*_samples(caught, labels, name))
    return recorder.report()


def measure_layers(
    model: nn.Module,
    loader: Iterable[Any],
    layers: Sequence[str] | None = None,
    num_classes: int | None = None,
    *,
    pool: str = "flatten",
    forward: Forward | None = None,
    metrics: object = None,
    passes: int | None = None,
    global_mean: str = "samples",
    ignore_label: int | None = IGNORED,
    memory_limit: int = MEMORY_LIMIT,
    progress: bool = False,
) -> dict[str, CollapseReport]:
    """Measure the outputs of several layers in the same run: reports by layer name.

    Args:
        layers: names of modules as in ``model.named_modules()``; by default the model's children.
        pool: what becomes of an output with more than two dimensions: ``"flatten"`` keeps every entry, ``"average"``
            averages over positions (the trailing dimensions of a convolution's output, the tokens of a sequence).
            Outputs whose labels have one entry a token are not pooled.

    The other arguments are those of :func:`measure_model`; ``memory_limit`` is shared by the layers.

    """
    _check_model(model)
    if pool not in ("flatten", "average"):
        raise ValueError(f"pool must be 'flatten' or 'average', got {pool!r}")
    if layers is None:
        layers = [name for name, _ in model.named_children()]
    if isinstance(layers, str) or not layers:
        raise ValueError(f"layers must be a list of names of the model's layers, got {layers!r}")
    modules = {name: _module(model, name) for name in layers}
    share = integer("memory_limit", memory_limit, minimum=0) // len(modules)
    settings = Settings(metrics, passes, global_mean, ignore_label, share)
    run = _Run(model, loader, forward, flag("progress", progress))
    recorders: dict[str, Recorder] = {}
    with run.evaluating(modules, _caught_output):
        for caught, labels in run.batches():
            for name in modules:
                recorder = recorders.setdefault(name, Recorder(settings, num_classes, None, None))
                recorder.add(*_pooled(caught, labels, name, pool))
        if not recorders:
            raise ValueError("loader holds no batches")
        again = [name for name, recorder in recorders.items() if recorder.finish_first_pass()]
        if again and run.repeatable:
            run.keep(again)
            for caught, labels in run.batches():
                for name in again:
                    recorders[name].add_again(*_pooled(caught, labels, name, pool))
    return {name: recorder.report() for name, recorder in recorders.items()}


def _check_model(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {describe(model)}")


def _module(model: nn.Module, name: object) -> nn.Module:
    modules = dict(model.named_modules())
    if not isinstance(name, str) or name not in modules:
        raise unknown_name("layer", name, [known for known in modules if known])
    return modules[name]


def _caught_input(arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Tensor | None:
    return first_tensor(arguments) if arguments else first_tensor(keywords)


def _caught_output(arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Tensor | None:
    return first_tensor(output)


def _last_classifier(caught: dict[str, Tensor], candidates: dict[str, nn.Module]) -> str:
    linear = [name for name in caught if isinstance(candidates[name], nn.Linear)]
    reached = linear or list(caught)
    if not reached:
        raise ValueError(
            f"none of the layers {', '.join(candidates)} was reached in a forward pass; name the classifier with layer="
        )
    return reached[-1]


def _samples(caught: dict[str, Tensor], labels: Tensor, name: str) -> tuple[Tensor, Tensor]:
    if name not in caught:
        raise ValueError(f"layer {name!r} was not reached in a forward pass, or passes no tensor")
    return flat_samples(caught[name], labels, name)


def _pooled(caught: dict[str, Tensor], labels: Tensor, name: str, pool: str) -> tuple[Tensor, Tensor]:
    features, targets = caught.get(name), torch.as_tensor(labels)
    if features is None:
        raise ValueError(f"layer {name!r} was not reached in a forward pass, or passes no tensor")
    if features.ndim > 2 and targets.ndim == 1:
        if pool == "flatten":
            features = features.flatten(1)
        else:
            features = features.mean(1) if features.ndim == 3 else features.flatten(2).mean(2)
    return flat_samples(features, targets, name)


class _Run:
    """Runs a model over a loader and hands out what hooks caught; leaves the model and the random state as found."""

    def __init__(self, model: nn.Module, loader: Iterable[Any], forward: Forward | None, progress: bool):
        if not isinstance(loader, Iterable):
            raise TypeError(f"loader must be iterable, got {describe(loader)}")
        if forward is not None and not callable(forward):
            raise TypeError(f"forward must be a function (model, batch) -> labels, got {describe(forward)}")
        self._model, self._loader = model, loader
        self._forward = forward or run_batch
        self._progress = progress
        self._caught: dict[str, Tensor] = {}
        self._hooks: dict[str, Any] = {}
        tensor = next(iter(model.parameters()), None)
        tensor = next(iter(model.buffers()), None) if tensor is None else tensor
        self._device = torch.device("cpu") if tensor is None else tensor.device
        self.repeatable = not isinstance(loader, Iterator)

    @contextmanager
    def evaluating(self, modules: dict[str, nn.Module], catch: Catch) -> Iterator[None]:
        modes = {module: module.training for module in self._model.modules()}

        def hook(name: str) -> Callable[..., None]:
            def keep(module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
                tensor = catch(arguments, keywords, output)
                self._caught.pop(name, None)
                if tensor is not None:
                    self._caught[name] = tensor.detach()

            return keep

        try:
            for name, module in modules.items():
                self._hooks[name] = module.register_forward_hook(hook(name), with_kwargs=True)
            self._model.eval()
            # A loader draws from the global random state; what is trained afterwards must not depend on measuring.
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                yield
        finally:
            self.keep([])
            for module, mode in modes.items():
                module.training = mode

    def keep(self, names: Sequence[str]) -> None:
        """Remove the hooks of all other layers."""
        for name in [name for name in self._hooks if name not in names]:
            self._hooks.pop(name).remove()

    def batches(self) -> Iterator[tuple[dict[str, Tensor], Any]]:
        """What the hooks caught in each batch, and its labels."""
        for batch in self._tracked():
            self._caught.clear()
            labels = self._forward(self._model, to_device(batch, self._device))
            yield dict(self._caught), labels

    def _tracked(self) -> Iterator[Any]:
        if not self._progress:
            yield from self._loader
            return
        from rich.console import Console
        from rich.progress import track

        size = getattr(self._loader, "__len__", None)
        total = float(size()) if callable(size) else None
        yield from track(self._loader, "measuring", total=total, console=Console(stderr=True), transient=True)
