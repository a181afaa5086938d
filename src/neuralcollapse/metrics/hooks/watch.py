"""What a model's classifier takes in and passes on while the model runs, and what the model makes of that.

Which layer it is, the first batch decides (:class:`~neuralcollapse.metrics.hooks.search.HeadSearch`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..precision import coarser
from .functional import FunctionalHead
from .heads import (
    LastLayer,
    candidates_of,
    is_scattered,
    module_of,
    plain_name,
    read_classifier,
    rows_of,
    unwrapped,
)
from .observer import Call, Observer
from .relations import (
    FEWEST,
    OutputMap,
    Relation,
    is_turned,
    output_map,
    relation_of,
    relation_of_turned,
    samples_first,
)
from .search import FEW, HeadSearch, mean_call

__all__ = ["Caught", "HeadWatch"]

MAPPED = "the model scales or shifts what layer {!r} passes on: weight and bias are those of both together"
RISING = (
    "the model's output rises with what layer {!r} passes on and is no function of it that is known: a shift of the "
    "classes in between would not be seen"
)
UNLIKE = (
    "the model's output is not what layer {!r} passes on{}: weight and bias, and the decisions by them, are those of "
    "the layer alone"
)
LATER = (
    "in some batches the model makes something else of what layer {!r} passes on than in the first: weight and bias "
    "are those of the first"
)


@dataclass(frozen=True, eq=False)
class Caught:
    """One pass through the classifier: its input and output with channels last, and what the model returned."""

    features: Tensor
    outputs: Tensor | None
    model_output: Tensor | None
    precision: torch.dtype
    """The coarsest dtype on the way to the features: what they were rounded to before they became their own."""


class HeadWatch:
    """Catches the input of the classifier: ``layer``, else the layer whose output is the model's output."""

    def __init__(self, model: nn.Module, layer: str | None = None, num_classes: int | None = None):
        model = unwrapped(model)
        self._modules = {plain_name(name): module for name, module in model.named_modules()}
        self._layer, self._num_classes = layer, num_classes
        if layer is None:
            self._candidates = candidates_of(model)
        else:
            module = module_of(model, layer)
            self._candidates = {name: known for name, known in self._modules.items() if known is module}
        self._model = model
        self._scattered = is_scattered(model)
        self._observer = Observer(self._modules, self._candidates, scattered=self._scattered)
        self._functional: FunctionalHead | None = None
        self._key: str | None = None
        self._classifier: LastLayer | None = None
        self._map: OutputMap | None = None
        self._turned, self._products = False, 0
        self._relation: Relation | None = None
        self.later: str | None = None
        """What a reader should know of batches after the first."""
        self._precision = torch.float64
        self._note: str | None = None

    @property
    def name(self) -> str:
        """The classifier's name, once a pass has been made."""
        return self.classifier.name

    @property
    def classifier(self) -> LastLayer:
        """The classifier, once a pass has been made."""
        assert self._classifier is not None
        return self._classifier

    def start(self) -> None:
        """Make ready for a forward pass."""
        self._observer.clear()
        if self._functional is not None:
            self._functional.start()

    def remove(self) -> None:
        """Remove all hooks."""
        self._observer.remove()
        if self._functional is not None:
            self._functional.stop()

    def caught(self, rerun: Callable[[], object] | None, seen: int | None = None) -> Caught:
        """What the classifier took in and passed on in the latest pass; the first time, which layer it is.

        ``rerun`` runs the latest batch once more, for models whose classifier is not the last layer they call;
        ``seen`` is the number of classes that the labels show.
        """
        if self._classifier is None:
            self._decide(rerun, seen)
        if self._functional is not None:
            self._functional.stop()
            features, made = self._functional.call()
            self._check_product(self._functional, made)
            return self._caught(features, made, coarser(self._precision, features.dtype))
        calls, name, first = self._observer.calls, self.name, self.classifier.channels_first
        if not calls:
            raise ValueError(f"layer {name!r} was not reached in a forward pass, or takes no tensor")
        outputs = self._outputs_to_compare()
        if len(calls) == 1:
            call = calls[0]
        else:
            call = self._one_of(list(calls), outputs)
        z = None if call.outputs is None else rows_of(call.outputs, first)
        return self._caught(rows_of(call.features, first), z, coarser(self._precision, call.precision))

    def _caught(self, features: Tensor, z: Tensor | None, precision: torch.dtype) -> Caught:
        final = self._output(z)
        if self._turned and z is not None and final is not None:
            features, z = (samples_first(part, final, z.shape[-1]) for part in (features, z))
        z = self._mapped(z)
        if z is not None and final is not None and z.numel() == final.numel():
            self._compare(z, final)
        return Caught(features, z, final, precision)

    def _compare(self, z: Tensor, final: Tensor) -> None:
        """Note a batch in which the model's output comes otherwise from the layer's, as with a bias for each domain."""
        if self.later is not None or self._relation not in ("same", "affine"):
            return
        relation = relation_of(z, final)
        found = output_map(z, final) if relation == "affine" else None
        shifted = found is not None and found.scale is not None
        if shifted or (relation is None and self._relation == "same"):
            self.later = LATER.format(self.name)

    def _check_product(self, head: FunctionalHead, made: Tensor) -> None:
        """Raise where the product may not be the one that it was in the first batch, by what the model returned."""
        if not head.made_anew or head.products == self._products:
            return
        final = self._output(made)
        if final is None or not (relation_of(made, final) or relation_of_turned(made, final)):
            raise ValueError(
                f"the classifier is {self.name!r}, and which one it is changes from batch to batch: make it a layer of "
                "its own, or run the model with forward= on batches of one length"
            )

    # which call, which output -------------------------------------------------------------------------------

    def _outputs_to_compare(self) -> dict[str, Tensor]:
        found = self._observer.outputs()
        return {self._key: found[self._key]} if self._key is not None and self._key in found else found

    def _output(self, outputs: Tensor | None) -> Tensor | None:
        """The tensor among the model's outputs that goes with the classifier's."""
        found = self._outputs_to_compare()
        if len(found) == 1:
            return next(iter(found.values()))
        if outputs is None:
            return None
        for relation in (relation_of, relation_of_turned):
            matching = [tensor for tensor in found.values() if relation(outputs, tensor) is not None]
            if matching:
                return matching[0]
        return None

    def _mapped(self, z: Tensor | None) -> Tensor | None:
        """What the measured classifier passes on, from the layer's own output."""
        if z is None or self._map is None:
            return z
        z = z[..., : self._map.outputs]
        if self._map.scale is not None and self._map.shift is not None:
            z = z * self._map.scale.to(z) + self._map.shift.to(z)
        return z

    def _with_map(self, classifier: LastLayer, z: Tensor | None) -> LastLayer:
        """The classifier together with what the model does to its outputs, class by class."""
        final = self._output(z)
        relation = None if z is None or final is None else relation_of(z, final)
        if z is not None and final is not None and (relation is None or is_turned(z, final)):
            relation = relation_of_turned(z, final)
            self._turned = relation is not None
            z = samples_first(z, final, z.shape[-1]) if self._turned else z
        self._relation = relation
        note = self._note
        if note is None and z is not None and final is not None and classifier.note is None:
            if relation == "monotone":
                note = RISING.format(classifier.name)
            elif relation is None and z.numel() == final.numel() and len(self._observer.calls) <= 1:
                note = UNLIKE.format(classifier.name, FEW if z.shape[:-1].numel() < FEWEST else "")
        if note is not None:
            classifier = replace(classifier, note=note)
        if z is None or final is None or classifier.weight is None or relation != "affine":
            return classifier
        self._map = found = output_map(z, final)
        assert found is not None
        return classifier.mapped(found, MAPPED.format(classifier.name))

    def _one_of(self, calls: list[Call], outputs: dict[str, Tensor]) -> Call:
        """The call of several whose output the model returned; their mean where it returned the mean."""
        first = self.classifier.channels_first
        made = [rows_of(call.outputs, first) for call in calls if call.outputs is not None]
        if len(made) == len(calls) and self._observer.runs() == 1:
            found = [{relation_of(z, tensor) for tensor in outputs.values()} for z in made]
            for relations in ({"same", "pick", "mean"}, {"affine"}, {"monotone"}):
                fitting = [number for number, relation in enumerate(found) if relation & relations]
                alike = [torch.equal(calls[number].features, calls[fitting[0]].features) for number in fitting]
                if fitting and all(alike):  # once, or again with the same features
                    return calls[fitting[0]]
            for mean in mean_call(calls):
                assert mean.outputs is not None
                rows = rows_of(mean.outputs, first)
                if any(relation_of(rows, tensor, averaged=True) == "same" for tensor in outputs.values()):
                    return mean
        raise ValueError(
            f"layer {self.name!r} is called {len(calls)} times in a forward pass and which call is the classifier's "
            "cannot be told from the model's output; run the model so that it is called once, with forward="
        )

    # the first batch ----------------------------------------------------------------------------------------

    def _decide(self, rerun: Callable[[], object] | None, seen: int | None) -> None:
        """Find the classifier; afterwards only it and the model's own output are watched."""
        first = self._observer
        reached, outputs = dict(first.reached), first.outputs()
        latest = first.calls[-1] if first.calls else None
        # Only the first pass sees all layers: a head in single precision after layers in half has their rounding.
        self._precision = first.precision if latest is None else latest.precision
        watched = {"": self._model} if "" in reached else self._modules
        runs = first.runs()
        first.remove()
        search = HeadSearch(
            self._model, self._modules, self._candidates, self._layer, self._num_classes, self._scattered
        )
        try:
            name = search.chosen(reached, latest, outputs, runs, rerun, seen)
            head = search.functional_head(outputs, rerun) if name is None and rerun is not None else None
        finally:
            search.remove()
        self._key, self._note = search.key, search.note
        if name is None:
            if head is None or rerun is None:
                if self._layer is not None:
                    raise ValueError(f"layer {self._layer!r} was not reached in a forward pass, or takes no tensor")
                raise search.undecided([], reached, "")
            self._watch_function(head, watched, rerun)
            return
        call = latest if latest is not None and latest.name == name and reached[name].calls == 1 else None
        self._observe({**watched, name: self._modules[name]}, [name], None)
        if call is not None:
            self._observer.calls.append(call)
            self._observer.outermost.append(outputs)
        elif rerun is not None:
            rerun()
        if not self._observer.calls:
            raise ValueError(
                f"the classifier is layer {name!r}, not the last that a forward pass calls, or called more than once; "
                f"name it with layer={name!r} or run the model with forward="
            )
        call = self._observer.calls[-1]
        classifier = read_classifier(name, self._modules[name], call.features, call.outputs, call.own)
        made = None if call.outputs is None else rows_of(call.outputs, classifier.channels_first)
        self._classifier = self._with_map(classifier, made)
        self._observer.scattered = False  # they are known

    def _observe(self, modules: Mapping[str, nn.Module], keep: Iterable[str], most: int | None) -> None:
        self._observer.remove()
        self._observer = Observer(modules, keep, most, self._scattered)

    def _watch_function(
        self, head: FunctionalHead, watched: Mapping[str, nn.Module], rerun: Callable[[], object]
    ) -> None:
        """Catch a product instead of a layer."""
        self._functional = head
        self._observe(watched, [], 1)
        head.start()
        rerun()
        head.stop()
        self._products = head.products
        self._classifier = self._with_map(head.classifier(), head.call()[1])
