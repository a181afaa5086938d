"""``measure_model``: neural collapse of a network as it is, from a loader.

The classifier's input is caught by a hook while the model runs in evaluation mode. Features stay in memory
while they fit, so that the model sees the data once; beyond that they stream into class statistics, and a
second run is made only for metrics that need one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .._support.checks import describe, flag, integer
from ._batches import flat_samples, run_batch, to_device
from ._inputs import IGNORED
from ._measure import MEMORY_LIMIT
from ._recorder import Recorder, Settings
from ._report import CollapseReport
from ._watch import ClassifierWatch, Watch, caught_output, module_of

__all__ = ["measure_layers", "measure_model"]


def measure_model(
    model: Any,
    loader: Any,
    layer: Any = None,
    num_classes: Any = None,
    *,
    forward: Any = None,
    metrics: Any = None,
    passes: Any = None,
    global_mean: Any = "samples",
    ignore_label: Any = IGNORED,
    memory_limit: Any = MEMORY_LIMIT,
    progress: Any = False,
) -> CollapseReport:
    """Measure neural collapse of ``model`` on the batches of ``loader``.

    Args:
        model: any module; it runs in evaluation mode without gradients and is left as it was.
        loader: batches ``(inputs, labels)``, ``(input, ..., labels)`` or dicts with labels. Labels of token
            models have the shape of the tokens.
        layer: the classifier's name; by default the last ``nn.Linear`` reached in a forward pass. Its input
            is what is measured, its weight and bias are the classifier.
        num_classes: K; by default the number of the classifier's outputs.
        forward: for other batches, a function ``(model, batch)`` that runs the model and returns the labels.
        metrics: a name or names of metrics; ``None`` for all.
        passes: 1 or 2, see :func:`measure`.
        global_mean: ``"samples"`` or ``"classes"``, see :func:`measure`.
        ignore_label: the label of samples or tokens to leave out.
        memory_limit: bytes of features to keep. Within it the model runs over the loader once; beyond it
            twice, if ``metrics`` need that.
        progress: show a progress bar.

    """
    _check_model(model)
    settings = Settings(metrics, passes, global_mean, ignore_label, integer("memory_limit", memory_limit, minimum=0))
    if num_classes is not None:
        integer("num_classes", num_classes, minimum=2)
    run = _Run(model, loader, forward, flag("progress", progress))
    watch = ClassifierWatch(model, layer)
    recorder: Recorder | None = None
    with run.evaluating(watch):
        for labels in run.batches(watch.start):
            features = watch.features()
            if recorder is None:
                classifier = watch.classifier
                recorder = Recorder(settings, num_classes, classifier.weight, classifier.bias)
            recorder.add(*flat_samples(features, labels, watch.name))
        if recorder is None:
            raise ValueError("loader holds no batches")
        if recorder.finish_first_pass() and run.repeatable:
            for labels in run.batches(watch.start):
                recorder.add_again(*flat_samples(watch.features(), labels, watch.name))
    return recorder.report()


def measure_layers(
    model: Any,
    loader: Any,
    layers: Any = None,
    num_classes: Any = None,
    *,
    pool: Any = "flatten",
    forward: Any = None,
    metrics: Any = None,
    passes: Any = None,
    global_mean: Any = "samples",
    ignore_label: Any = IGNORED,
    memory_limit: Any = MEMORY_LIMIT,
    progress: Any = False,
) -> dict[str, CollapseReport]:
    """Measure the outputs of several layers in the same run: reports by layer name.

    ``layers`` are names of modules as in ``model.named_modules()``, by default the model's children. ``pool``
    says what becomes of an output with more than two dimensions: ``"flatten"`` keeps every entry,
    ``"average"`` averages over positions (the trailing dimensions of a convolution's output, the tokens of a
    sequence); outputs whose labels have one entry a token are not pooled. The other arguments are those of
    :func:`measure_model`; ``memory_limit`` is shared by the layers.
    """
    _check_model(model)
    if pool not in ("flatten", "average"):
        raise ValueError(f"pool must be 'flatten' or 'average', got {pool!r}")
    if layers is None:
        layers = [name for name, _ in model.named_children()]
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise ValueError(f"layers must be a list of names of the model's layers, got {layers!r}")
    modules = {name: module_of(model, name) for name in layers}
    share = integer("memory_limit", memory_limit, minimum=0) // len(modules)
    settings = Settings(metrics, passes, global_mean, ignore_label, share)
    if num_classes is not None:
        integer("num_classes", num_classes, minimum=2)
    run = _Run(model, loader, forward, flag("progress", progress))
    watch = Watch(modules, caught_output)
    recorders: dict[str, Recorder] = {}
    with run.evaluating(watch):
        for labels in run.batches(watch.caught.clear):
            for name in modules:
                recorder = recorders.setdefault(name, Recorder(settings, num_classes, None, None))
                recorder.add(*_pooled(watch.caught, labels, name, pool))
        if not recorders:
            raise ValueError("loader holds no batches")
        again = [name for name, recorder in recorders.items() if recorder.finish_first_pass()]
        if again and run.repeatable:
            watch.keep(again)
            for labels in run.batches(watch.caught.clear):
                for name in again:
                    recorders[name].add_again(*_pooled(watch.caught, labels, name, pool))
    return {name: recorder.report() for name, recorder in recorders.items()}


def _check_model(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {describe(model)}")


def _pooled(caught: dict[str, Tensor], labels: Any, name: str, pool: str) -> tuple[Tensor, Tensor]:
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
    """Runs a model over a loader; leaves the model and the random state as found."""

    def __init__(self, model: nn.Module, loader: Any, forward: Any, progress: bool):
        if not isinstance(loader, Iterable):
            raise TypeError(f"loader must be iterable, got {describe(loader)}")
        if forward is not None and not callable(forward):
            raise TypeError(f"forward must be a function (model, batch) -> labels, got {describe(forward)}")
        self._model, self._loader = model, loader
        self._forward = forward or run_batch
        self._progress = progress
        tensor = next(iter(model.parameters()), None)
        tensor = next(iter(model.buffers()), None) if tensor is None else tensor
        self._device = torch.device("cpu") if tensor is None else tensor.device
        self.repeatable = not isinstance(loader, Iterator)

    @contextmanager
    def evaluating(self, watch: Watch | ClassifierWatch) -> Iterator[None]:
        """Evaluation mode without gradients; afterwards no hook is left and every module has its own mode."""
        modes = {module: module.training for module in self._model.modules()}
        try:
            self._model.eval()
            # A loader draws from the global random state; what is trained afterwards must not depend on
            # measuring.
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                yield
        finally:
            watch.remove()
            for module, mode in modes.items():
                module.training = mode

    def batches(self, before: Callable[[], None]) -> Iterator[Any]:
        """Run every batch, after a call of ``before``, and hand out its labels."""
        for batch in self._tracked():
            before()
            yield self._forward(self._model, to_device(batch, self._device))

    def _tracked(self) -> Iterator[Any]:
        if not self._progress:
            yield from self._loader
            return
        from rich.console import Console
        from rich.progress import track

        total = float(len(self._loader)) if isinstance(self._loader, Sized) else None
        yield from track(self._loader, "measuring", total=total, console=Console(stderr=True), transient=True)
