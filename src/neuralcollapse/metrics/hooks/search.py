"""Which layer of a model is the classifier, decided by the model's own output in the first batch.

It is the layer whose output is the model's output (or a choice of its positions, their mean, or an increasing function
of it). In the first batch only the last candidate's input is kept: where that one proves to be the wrong layer, the
batch runs again for each of the others that could be it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from .functional import FunctionalHead, find_functional_head
from .heads import read_classifier, rows_of
from .observer import Call, LayerReached, Observer
from .relations import FEWEST, Relation, relation_of, relation_of_turned, widened

__all__ = ["FEW", "HeadSearch", "mean_call"]

LISTED = 12
"""Candidates that an error names."""
FEW = " (or the first batch has too few rows to tell; give it at least 5)"
OTHER = "returns something else than any of its layers passes on"
UNPROVEN = "layer {!r} is taken as the classifier by the number of its outputs: the model {}"


class HeadSearch:
    """Looks for the classifier among ``candidates``, some of a model's ``modules``, or only at ``layer``."""

    def __init__(
        self,
        model: nn.Module,
        modules: Mapping[str, nn.Module],
        candidates: Mapping[str, nn.Module],
        layer: str | None,
        num_classes: int | None,
        scattered: bool,
    ):
        self._model, self._modules, self._candidates = model, modules, candidates
        self._layer, self._num_classes, self._scattered = layer, num_classes, scattered
        self._observer = Observer({}, [])
        self._functional: FunctionalHead | None = None
        self.key: str | None = None
        """Which of the model's outputs the classifier's is, where there are several heads."""
        self.note: str | None = None
        """What a reader should know of the choice."""

    def remove(self) -> None:
        """Remove all hooks."""
        self._observer.remove()

    def _observe(self, keep: Iterable[str], most: int | None) -> None:
        self._observer.remove()
        self._observer = Observer(self._modules, keep, most, self._scattered)

    def chosen(
        self,
        reached: dict[str, LayerReached],
        latest: Call | None,
        outputs: dict[str, Tensor],
        runs: int,
        rerun: Callable[[], object] | None,
        seen: int | None,
    ) -> str | None:
        """The candidate whose output is the model's; ``None`` where the classifier is no layer that was called.

        ``reached``, ``latest`` (the last call of a candidate), ``outputs`` and ``runs`` (of the model) are those of the
        first batch, ``rerun`` runs it once more, and ``seen`` is the number of classes that its labels show.
        """
        mine = [name for name in reached if name in self._candidates]
        if self._layer is not None:
            return mine[-1] if mine else None
        logits = {key: tensor for key, tensor in outputs.items() if key.rpartition(".")[2] == "logits"}
        wanted = logits if len(logits) == 1 else outputs
        found: list[LayerMatch] = []
        if runs > 1:
            raise self.undecided(mine, reached, f"runs {runs} times in a pass, with unlike outputs")
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
        if rerun is not None and self.functional_head(wanted, rerun) is not None:
            return None
        sizes = {tensor.numel() for tensor in wanted.values()}
        compared = mine if rerun is not None else [latest.name] if latest is not None else []
        left = [name for name in mine if name not in compared or math.prod(reached[name].passed) not in sizes]
        try:
            return self._by_width(left, reached, seen, OTHER)
        except ValueError:
            rows = max((tensor.shape[:-1].numel() for tensor in wanted.values()), default=0)
            raise self.undecided(mine, reached, OTHER + (FEW if rows < FEWEST else "")) from None

    def _tried(
        self, names: list[str], reached: dict[str, LayerReached], wanted: dict[str, Tensor], rerun: Callable[[], object]
    ) -> list["LayerMatch"]:
        """Run the batch again for each of the layers whose output could be the model's by its shape."""
        found: list[LayerMatch] = []
        for name in reversed(names):
            width = _output_width(self._candidates[name], reached[name])
            if width is None or not any(_can_come_from(tensor, width) for tensor in wanted.values()):
                continue
            self._observe([name], None)
            rerun()
            # What this run returned: a model that is random in evaluation, too, returns something else every time.
            outputs = self._returned(wanted)
            calls = list(self._observer.calls)
            for call in calls:
                found += _matches(call, self._candidates[name], outputs)
            for mean in mean_call(calls) if len(calls) > 1 else ():
                found += _matches(mean, self._candidates[name], outputs, averaged=True)
        return found

    def _returned(self, wanted: dict[str, Tensor]) -> dict[str, Tensor]:
        return {key: tensor for key, tensor in self._observer.outputs().items() if key in wanted}

    def _composite(
        self, reached: dict[str, LayerReached], wanted: dict[str, Tensor], rerun: Callable[[], object]
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
            self._observe([name], 1)
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

    def _only(
        self, matching: list["LayerMatch"], mine: list[str], reached: dict[str, LayerReached], seen: int | None
    ) -> str:
        """The layer of the matches; of heads for several outputs, the one with as many outputs as classes."""
        by_key = {match.key: match for match in matching}
        names = list(dict.fromkeys(match.name for match in by_key.values()))
        rising = list(dict.fromkeys(match.name for match in matching if not match.strong))
        if len(rising) > 1:
            # An output that rises with several layers, as the mean of like members of an ensemble, comes from neither.
            raise self.undecided(rising, reached, "returns something that several layers agree with")
        if len(names) > 1:
            names = self._of_width(names, reached, seen)
        if len(names) == 1:
            keys = [key for key, match in by_key.items() if match.name == names[0]]
            self.key = keys[0] if len(keys) == 1 else None
            return names[0]
        raise self.undecided(names, reached, "returns the outputs of several layers")

    def _of_width(self, names: list[str], reached: dict[str, LayerReached], seen: int | None) -> list[str]:
        for classes in (self._num_classes, seen):
            fitting = [name for name in names if _output_width(self._candidates[name], reached[name]) == classes]
            if len(fitting) == 1:
                return fitting
        return names

    def _by_width(self, names: list[str], reached: dict[str, LayerReached], seen: int | None, why: str) -> str:
        """The only layer with as many outputs as classes, where the model's output tells no more; noted."""
        fitting = self._of_width(names, reached, seen)
        widths = [_output_width(self._candidates[name], reached[name]) for name in fitting]
        if len(fitting) == 1 and (len(names) > 1 or (self._num_classes or seen) in (None, *widths)):
            self.note = UNPROVEN.format(fitting[0], why)
            return fitting[0]
        raise self.undecided(names, reached, why)

    def undecided(self, names: list[str], reached: dict[str, LayerReached], why: str) -> ValueError:
        """The error that lists the layers it could be."""
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

    def functional_head(self, outputs: dict[str, Tensor], rerun: Callable[[], object]) -> FunctionalHead | None:
        """The product whose result is the model's output, where the classifier is no layer that is called."""
        if self._functional is None:
            module = None if self._layer is None else next(iter(self._candidates.values()))
            self._functional = find_functional_head(
                self._model, module, lambda: list(self._returned(outputs).values()), self._afresh(rerun)
            )
        return self._functional

    def _afresh(self, rerun: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            self._observe([], 1)
            rerun()

        return run


@dataclass(frozen=True)
class LayerMatch:
    """A layer whose output is one of the model's."""

    name: str
    key: str
    relation: Relation

    @property
    def strong(self) -> bool:
        return self.relation != "monotone"


def mean_call(calls: list[Call]) -> list[Call]:
    """The mean of a layer's calls, as one: what it passes on when a model averages views. None of unlike calls."""
    made = [call.outputs for call in calls if call.outputs is not None]
    if len(made) < len(calls) or len({call.features.shape for call in calls}) > 1:
        return []
    features, outputs = ([widened(part) for part in parts] for parts in ([call.features for call in calls], made))
    mean = torch.stack(features).mean(0).to(calls[-1].features.dtype)
    return [replace(calls[-1], features=mean, outputs=torch.stack(outputs).mean(0).to(made[-1].dtype))]


def _matches(call: Call, module: nn.Module, wanted: dict[str, Tensor], averaged: bool = False) -> list[LayerMatch]:
    if call.outputs is None:
        return []
    rows = rows_of(call.outputs, isinstance(module, _ConvNd))
    found: list[LayerMatch] = []
    for key, tensor in wanted.items():
        relation = relation_of(rows, tensor, averaged) or relation_of_turned(rows, tensor)
        if relation is not None:
            found.append(LayerMatch(call.name, key, relation))
    return found


def _is_diagonal(weight: Tensor) -> bool:
    """Whether a square weight mixes no classes, as a normalisation of logits does: no classifier of its own."""
    return weight.shape[0] == weight.shape[1] and torch.equal(weight, weight.diagonal().diag())


def _can_come_from(output: Tensor, width: int) -> bool:
    """Whether an output can come from a layer of that width, perhaps without its last classes."""
    return width in output.shape or (output.ndim > 1 and 2 <= output.shape[-1] < width)


def _output_width(module: nn.Module, shapes: LayerReached) -> int | None:
    if not shapes.passed:
        return None
    return shapes.passed[1 if isinstance(module, _ConvNd) and len(shapes.passed) > 2 else -1]
