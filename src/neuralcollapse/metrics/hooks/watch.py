"""Which layer of a model is the classifier, and what it takes in and passes on while the model runs.

The classifier is the layer whose output is the model's output (or a choice of its positions, their mean, or an
increasing function of it). In the first batch only the last candidate's input is kept: where that one proves
to be the wrong layer, the batch runs again for each of the others that could be it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..precision import coarser
from .functional import FunctionalHead, find_functional_head
from .heads import (
    Classifier,
    candidates_of,
    is_scattered,
    module_of,
    plain_name,
    read_classifier,
    rows_of,
    unwrapped,
)
from .observer import Call, Observer, Reached
from .relations import (
    FEWEST,
    OutputMap,
    Relation,
    is_turned,
    output_map,
    relation_of,
    relation_of_turned,
    turned,
    widened,
)

__all__ = ["Caught", "HeadWatch"]

LISTED = 12
"""Candidates that an error names."""
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
FEW = " (or the first batch has too few rows to tell; give it at least 5)"
OTHER = "returns something else than any of its layers passes on"
UNPROVEN = "layer {!r} is taken as the classifier by the number of its outputs: the model {}"


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
        self._classifier: Classifier | None = None
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
    def classifier(self) -> Classifier:
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

    def caught(self, rerun: Callable[[], Any] | None, seen: int | None = None) -> Caught:
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
            features, z = (turned(part, final, z.shape[-1]) for part in (features, z))
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

    def _with_map(self, classifier: Classifier, z: Tensor | None) -> Classifier:
        """The classifier together with what the model does to its outputs, class by class."""
        final = self._output(z)
        relation = None if z is None or final is None else relation_of(z, final)
        if z is not None and final is not None and (relation is None or is_turned(z, final)):
            relation = relation_of_turned(z, final)
            self._turned = relation is not None
            z = turned(z, final, z.shape[-1]) if self._turned else z
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
            for mean in _mean_of(calls):
                assert mean.outputs is not None
                rows = rows_of(mean.outputs, first)
                if any(relation_of(rows, tensor, averaged=True) == "same" for tensor in outputs.values()):
                    return mean
        raise ValueError(
            f"layer {self.name!r} is called {len(calls)} times in a forward pass and which call is the classifier's "
            "cannot be told from the model's output; run the model so that it is called once, with forward="
        )

    # the first batch ----------------------------------------------------------------------------------------

    def _decide(self, rerun: Callable[[], Any] | None, seen: int | None) -> None:
        """Find the classifier; afterwards only it and the model's own output are watched."""
        first = self._observer
        reached, outputs = dict(first.reached), first.outputs()
        latest = first.calls[-1] if first.calls else None
        # Only the first pass sees all layers: a head in single precision after layers in half has their rounding.
        self._precision = first.precision if latest is None else latest.precision
        watched = {"": self._model} if "" in reached else self._modules
        name = self._chosen(reached, latest, outputs, rerun, seen)
        if name is None:
            self._watch_functions(watched, outputs, rerun, reached)
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

    def _chosen(
        self,
        reached: dict[str, Reached],
        latest: Call | None,
        outputs: dict[str, Tensor],
        rerun: Callable[[], Any] | None,
        seen: int | None,
    ) -> str | None:
        """The candidate whose output is the model's; ``None`` where the classifier is no layer that was called."""
        mine = [name for name in reached if name in self._candidates]
        if self._layer is not None:
            return mine[-1] if mine else None
        logits = {key: tensor for key, tensor in outputs.items() if key.rpartition(".")[2] == "logits"}
        wanted = logits if len(logits) == 1 else outputs
        found: list[_Match] = []
        runs = self._observer.runs()
        if runs > 1:
            raise self._undecided(mine, reached, f"runs {runs} times in a pass, with unlike outputs")
        if latest is not None:
            found = _matches(latest, self._candidates[latest.name], wanted)
            if any(match.strong for match in found) and (len(wanted) == 1 or len(mine) == 1):
                return latest.name
        if not wanted:
            return self._by_width(mine, reached, seen, "returns no logits")
        # A layer that was called more than once may be the classifier by an earlier call.
        others = [name for name in mine if latest is None or name != latest.name or reached[name].calls > 1]
        if rerun is not None:
            found += self._tried(others, reached, wanted, rerun)
        for strong in (True, False):
            matching = [match for match in found if match.strong is strong]
            if matching:
                return self._only(matching, mine, reached, seen)
            if strong and rerun is not None and (composite := self._composite(reached, wanted, rerun)) is not None:
                return composite
        if rerun is not None and self._functional_head(wanted, rerun) is not None:
            return None
        sizes = {tensor.numel() for tensor in wanted.values()}
        compared = mine if rerun is not None else [latest.name] if latest is not None else []
        left = [name for name in mine if name not in compared or math.prod(reached[name].passed) not in sizes]
        try:
            return self._by_width(left, reached, seen, OTHER)
        except ValueError:
            rows = max((tensor.shape[:-1].numel() for tensor in wanted.values()), default=0)
            raise self._undecided(mine, reached, OTHER + (FEW if rows < FEWEST else "")) from None

    def _tried(
        self, names: list[str], reached: dict[str, Reached], wanted: dict[str, Tensor], rerun: Callable[[], Any]
    ) -> list["_Match"]:
        """Run the batch again for each of the layers whose output could be the model's by its shape."""
        found: list[_Match] = []
        for name in reversed(names):
            width = _width(self._candidates[name], reached[name])
            if width is None or not any(_as_wide(tensor, width) for tensor in wanted.values()):
                continue
            self._observe(self._modules, [name], None)
            rerun()
            # What this run returned: a model that is random in evaluation, too, returns something else every time.
            outputs = self._returned(wanted)
            calls = list(self._observer.calls)
            for call in calls:
                found += _matches(call, self._candidates[name], outputs)
            for mean in _mean_of(calls) if len(calls) > 1 else ():
                found += _matches(mean, self._candidates[name], outputs, averaged=True)
        return found

    def _returned(self, wanted: dict[str, Tensor]) -> dict[str, Tensor]:
        return {key: tensor for key, tensor in self._observer.outputs().items() if key in wanted}

    def _composite(
        self, reached: dict[str, Reached], wanted: dict[str, Tensor], rerun: Callable[[], Any]
    ) -> str | None:
        """A module around several layers that is affine as a whole, as an adapted classifier is; the innermost."""
        for name in sorted(reached, key=lambda name: -name.count(".")):
            module, shapes = self._modules[name], reached[name]
            if not name or name in self._candidates or not shapes.taken or not shapes.passed:
                continue
            dim, width = shapes.taken[-1], shapes.passed[-1]
            size = sum(tensor.numel() for tensor in module.parameters())
            small = 0 < size <= 2 * dim * width + 1024 * (dim + width)
            if not small or not any(tensor.shape[-1] == width for tensor in wanted.values()):
                continue
            self._observe(self._modules, [name], 1)
            rerun()
            outputs = self._returned(wanted)
            for call in self._observer.calls:
                if any(match.strong for match in _matches(call, module, outputs)):
                    classifier = read_classifier(name, module, call.features, call.outputs, call.own)
                    if (
                        classifier.weight is not None
                        and classifier.note is None
                        and not _is_diagonal(classifier.weight)
                    ):
                        return name
        return None

    def _only(self, matching: list["_Match"], mine: list[str], reached: dict[str, Reached], seen: int | None) -> str:
        """The layer of the matches; of heads for several outputs, the one with as many outputs as classes."""
        by_key = {match.key: match for match in matching}
        names = list(dict.fromkeys(match.name for match in by_key.values()))
        rising = list(dict.fromkeys(match.name for match in matching if not match.strong))
        if len(rising) > 1:
            # An output that rises with several layers, as the mean of like members of an ensemble, comes from neither.
            raise self._undecided(rising, reached, "returns something that several layers agree with")
        if len(names) > 1:
            names = self._of_width(names, reached, seen)
        if len(names) == 1:
            keys = [key for key, match in by_key.items() if match.name == names[0]]
            self._key = keys[0] if len(keys) == 1 else None
            return names[0]
        raise self._undecided(names, reached, "returns the outputs of several layers")

    def _of_width(self, names: list[str], reached: dict[str, Reached], seen: int | None) -> list[str]:
        for classes in (self._num_classes, seen):
            fitting = [name for name in names if _width(self._candidates[name], reached[name]) == classes]
            if len(fitting) == 1:
                return fitting
        return names

    def _by_width(self, names: list[str], reached: dict[str, Reached], seen: int | None, why: str) -> str:
        """The only layer with as many outputs as classes, where the model's output tells no more; noted."""
        fitting = self._of_width(names, reached, seen)
        widths = [_width(self._candidates[name], reached[name]) for name in fitting]
        if len(fitting) == 1 and (len(names) > 1 or (self._num_classes or seen) in (None, *widths)):
            self._note = UNPROVEN.format(fitting[0], why)
            return fitting[0]
        raise self._undecided(names, reached, why)

    def _undecided(self, names: list[str], reached: dict[str, Reached], why: str) -> ValueError:
        if not names:
            known = [name for name in self._candidates if name]
            if not self._candidates:
                return ValueError("the model has no nn.Linear; name its classifier with layer=")
            return ValueError(
                f"none of the layers {', '.join(known[-LISTED:])} was reached in a forward pass; "
                "name the classifier with layer="
            )
        listed = ", ".join(f"{name!r} {reached[name].taken} -> {reached[name].passed}" for name in names[-LISTED:])
        more = f" (the last {LISTED} of {len(names)})" if len(names) > LISTED else ""
        return ValueError(
            f"the classifier cannot be told: the model {why}. Name it with layer=; candidates{more}: {listed}"
        )

    # classifiers that are no layer of their own -------------------------------------------------------------

    def _functional_head(self, outputs: dict[str, Tensor], rerun: Callable[[], Any]) -> FunctionalHead | None:
        if self._functional is None:
            module = None if self._layer is None else next(iter(self._candidates.values()))
            self._functional = find_functional_head(
                self._model, module, lambda: list(self._returned(outputs).values()), self._afresh(rerun)
            )
        return self._functional

    def _afresh(self, rerun: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            self._observe(self._modules, [], 1)
            rerun()

        return run

    def _watch_functions(
        self,
        watched: Mapping[str, nn.Module],
        outputs: dict[str, Tensor],
        rerun: Callable[[], Any] | None,
        reached: dict[str, Reached],
    ) -> None:
        head = None if rerun is None else self._functional_head(outputs, rerun)
        if head is None or rerun is None:
            if self._layer is not None:
                raise ValueError(f"layer {self._layer!r} was not reached in a forward pass, or takes no tensor")
            raise self._undecided([], reached, "")
        self._observe(watched, [], 1)
        head.start()
        rerun()
        head.stop()
        self._products = head.products
        self._classifier = self._with_map(head.classifier(), head.call()[1])


@dataclass(frozen=True)
class _Match:
    """A layer whose output is one of the model's."""

    name: str
    key: str
    relation: Relation

    @property
    def strong(self) -> bool:
        return self.relation != "monotone"


def _mean_of(calls: list[Call]) -> list[Call]:
    """The mean of a layer's calls, as one: what it passes on when a model averages views. None of unlike calls."""
    made = [call.outputs for call in calls if call.outputs is not None]
    if len(made) < len(calls) or len({call.features.shape for call in calls}) > 1:
        return []
    features, outputs = ([widened(part) for part in parts] for parts in ([call.features for call in calls], made))
    mean = torch.stack(features).mean(0).to(calls[-1].features.dtype)
    return [replace(calls[-1], features=mean, outputs=torch.stack(outputs).mean(0).to(made[-1].dtype))]


def _matches(call: Call, module: nn.Module, wanted: dict[str, Tensor], averaged: bool = False) -> list[_Match]:
    if call.outputs is None:
        return []
    rows = rows_of(call.outputs, isinstance(module, _ConvNd))
    found: list[_Match] = []
    for key, tensor in wanted.items():
        relation = relation_of(rows, tensor, averaged) or relation_of_turned(rows, tensor)
        if relation is not None:
            found.append(_Match(call.name, key, relation))
    return found


def _is_diagonal(weight: Tensor) -> bool:
    """Whether a square weight mixes no classes, as a normalisation of logits does: no classifier of its own."""
    return weight.shape[0] == weight.shape[1] and torch.equal(weight, weight.diagonal().diag())


def _as_wide(output: Tensor, width: int) -> bool:
    """Whether an output can come from a layer of that width, perhaps without its last classes."""
    return width in output.shape or (output.ndim > 1 and 2 <= output.shape[-1] < width)


def _width(module: nn.Module, shapes: Reached) -> int | None:
    if not shapes.passed:
        return None
    return shapes.passed[1 if isinstance(module, _ConvNd) and len(shapes.passed) > 2 else -1]
