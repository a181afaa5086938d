"""From batches that pass through a model to a report: what ``measure_model``, the callbacks and training feed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from .._support.checks import integer
from .hooks.align import SHIFTED, align, is_causal, shifts_labels
from .hooks.batches import Again, RawLabels
from .hooks.heads import LastLayer
from .hooks.layers import LayerRows, LayersWatch
from .hooks.run import ModelRun
from .hooks.targets import Ignored, Targets, ignored_labels
from .hooks.watch import HeadWatch
from .inputs import IGNORED, NonFiniteError
from .processes import MeasuringTeam, Shares
from .recorder import Recorder
from .report.report import CollapseReport
from .selection import Selection
from .settings import MEMORY_LIMIT, GlobalMean, Metrics, Settings

__all__ = ["LayersMeasurement", "Measurement", "Options", "SharedHead"]

ONE_OUTPUT = "the head has one output z: measured as two classes with logits -z/2 and z/2"
ITSELF = "the model itself"
NOT_SHIFTED = "labels are paired as forward= returned them, not shifted by a token"


@dataclass(frozen=True)
class Options:
    """What to measure of a model, as in :func:`measure_model`; checked when it is made."""

    layer: str | None = None
    num_classes: int | None = None
    class_names: Sequence[str] | None = None
    metrics: Metrics = None
    passes: int | None = None
    global_mean: GlobalMean = "samples"
    ignore_label: Ignored = IGNORED
    present_only: bool = False
    min_samples: int = 1
    memory_limit: int = MEMORY_LIMIT
    precision: torch.dtype | None = None
    intervals: float | None = None
    groups: int = 20

    def __post_init__(self) -> None:
        if self.num_classes is not None:
            integer("num_classes", self.num_classes, minimum=2)
        _ = self.settings

    def targets(self) -> Targets:
        """A reader of labels."""
        return Targets(ignored_labels(self.ignore_label), self.class_names)

    @cached_property
    def settings(self) -> Settings:
        """What the recorder of features takes."""
        targets = self.targets()
        mark = targets.mark if targets.ignored else None
        return Settings(
            self.metrics,
            self.passes,
            self.global_mean,
            mark,
            self.memory_limit,
            Selection(self.present_only, self.min_samples),
            self.intervals,
            self.groups,
            self.precision,
        )

    def named(self, report: CollapseReport) -> CollapseReport:
        """The report with the classes' names, where there are any: outputs that pad a head keep their numbers."""
        rows = report.per_class
        if self.class_names is None or rows is None or not all(name.isdecimal() for name in rows.names):
            return report
        known = dict(enumerate(self.class_names))
        names = tuple(known.get(int(name), name) for name in rows.names)
        return replace(report, per_class=replace(rows, names=names))


@dataclass(frozen=True)
class SharedHead:
    """What processes tell each other of the classifier."""

    name: str
    weight: Tensor | None
    bias: Tensor | None
    dim: int


class Measurement:
    """The classifier of a model, watched from the first batch to the report.

    Call :meth:`start` before and :meth:`take` after each forward pass, :meth:`finish` at the end of the data;
    where that says so, pass the same batches again to :meth:`take_again`; then :meth:`report`. ``shown`` is called
    with features and labels of each batch of the first run.
    """

    def __init__(
        self,
        model: nn.Module,
        options: Options,
        *,
        team: MeasuringTeam | None = None,
        shares: Shares | None = None,
        custom: bool = False,
        repeatable: bool = False,
        shown: Callable[[Tensor, Tensor], None] | None = None,
    ):
        self._options, self._shown = options, shown
        self._model, self._settings, self._targets = model, options.settings, options.targets()
        self._num_classes, self._custom, self._repeatable = options.num_classes, custom, repeatable
        self._team = team or MeasuringTeam()
        self._shares = shares if self._team.together else None
        self._watch = HeadWatch(model, options.layer, options.num_classes)
        self._recorder: Recorder | None = None
        self._head: SharedHead | None = None
        self._shift: bool | None = None
        self._shown_classes = 2
        self.precision = torch.float64
        """The coarsest dtype on the way to the latest features."""
        self.notes: dict[str, None] = {}

    def start(self) -> None:
        """A forward pass begins."""
        self._watch.start()

    def remove(self) -> None:
        """Take all hooks away."""
        self._watch.remove()

    def take(self, labels: RawLabels, again: Again | None = None) -> None:
        """Take the batch that has just passed; ``again`` runs it once more, should the classifier need to be found."""
        rows = self.rows(labels, again)
        if rows is None:
            return
        if self._recorder is None:
            self._meet(self.head(rows[0].shape[1]))
        assert self._recorder is not None
        with self._telling_sizes():
            self._recorder.add(*rows, self.precision)
        if self._shown is not None:
            self._shown(*rows)

    def take_again(self, labels: RawLabels) -> None:
        """Take a batch of the second run."""
        assert self._recorder is not None
        rows = self.rows(labels, None)
        if rows is not None:
            with self._telling_sizes():
                self._recorder.add_again(*rows)

    def finish(self) -> bool:
        """End the first run; whether this process is to run the same batches again."""
        if self._team.together:
            heads = self._team.gather(None if self._head is None else (self._head.name, self._head.dim))
            known = next((rank for rank, head in enumerate(heads) if head is not None), None)
            if known is None:
                raise ValueError("loader holds no batches")
            if None in heads:
                # A process without data learns from the first that has some what is measured.
                told = self._team.gather(self._head if self._team.rank == known else None)[known]
                assert told is not None
                if self._head is None:
                    self._meet(told)
        if self._recorder is None:
            raise ValueError("loader holds no batches")
        if self._shares is not None:
            self._shares.restart()
        with self._telling_sizes():
            return self._recorder.finish_first_pass()

    def report(self) -> CollapseReport:
        """The report, with the layer and what was done to labels and features."""
        assert self._recorder is not None
        assert self._head is not None
        with self._telling_sizes():
            report = self._options.named(self._recorder.report())
        notes = [*report.notes, *self._targets.notes, *self.notes]
        if self._team.note is not None:
            notes.append(self._team.note)
        return replace(report, layer=self._head.name or ITSELF, notes=tuple(dict.fromkeys(notes)))

    @property
    def weight(self) -> Tensor | None:
        """The classifier's weight as it was measured, if it has one."""
        return None if self._head is None else self._head.weight

    @contextmanager
    def _telling_sizes(self) -> Iterator[None]:
        """Features or weights that are not finite still have their sizes."""
        try:
            yield
        except NonFiniteError as error:
            assert self._head is not None
            rows = None if self._head.weight is None else self._head.weight.shape[0]
            error.sizes = rows or self._num_classes or self._shown_classes, self._head.dim
            raise

    # one batch ----------------------------------------------------------------------------------------------

    def rows(self, labels: RawLabels, again: Again | None) -> tuple[Tensor, Tensor] | None:
        """Features (n, d) and integer labels (n,) of the latest batch.

        ``None`` of a batch without samples: it tells nothing, and nothing is decided by it.
        """
        raw = self._targets.tensor(labels)
        if not raw.numel():
            return None
        kept = None if self._shares is None or not raw.ndim else self._shares.own(raw.shape[0])
        seen = self._targets.seen(raw)
        self._shown_classes = max(self._shown_classes, seen or 0)
        caught = self._watch.caught(again, seen)
        self.precision = caught.precision
        if self._watch.later is not None:
            self.notes[self._watch.later] = None
        width = None if caught.outputs is None else caught.outputs.shape[-1]
        hard = self._targets.integers(raw, caught.features.shape[:-1], width)
        features, targets, note = align(caught, hard, self._watch.name)
        if note is not None:
            self.notes[note] = None
        if self._shift is None:
            self._shift = self._shifted(features, targets, again)
        if kept is not None and features.shape[0] == kept.shape[0]:
            features, targets = features[kept.to(features.device)], targets[kept.to(targets.device)]
        if self._shift:
            features, targets = features[..., :-1, :], targets[..., 1:]
        return (
            features.reshape(-1, features.shape[-1]),
            self._targets.checked(targets.reshape(-1), self._classes(width)),
        )

    def _classes(self, width: int | None) -> int | None:
        if self._watch.classifier.weight is None:
            return self._num_classes
        return 2 if width == 1 else self._watch.classifier.outputs

    def _shifted(self, features: Tensor, labels: Tensor, again: Again | None) -> bool:
        if features.ndim < 3 or labels.shape != features.shape[:-1] or labels.shape[-1] < 2:
            return False
        layer, note = self._watch.name, SHIFTED
        shift = is_causal(self._model, layer)
        if self._custom:
            shift, note = False, NOT_SHIFTED if shift else None
        elif again is not None:
            # The model runs once more, with labels: what was caught must not be lost by it.
            shift, note = shifts_labels(self._model, layer, again, labels, self._targets.ignored)
        elif not shift:
            note = None
        if note is not None:
            self.notes[note] = None
        return shift

    # the head -----------------------------------------------------------------------------------------------

    def head(self, dim: int) -> SharedHead:
        """The classifier as it is now, on the CPU; a head of one output as two classes."""
        classifier: LastLayer = self._watch.classifier
        weight, bias = classifier.weight, classifier.bias
        if classifier.note is not None:
            self.notes[classifier.note] = None
        if weight is not None and weight.shape[0] == 1:
            self.notes[ONE_OUTPUT] = None
            weight = torch.cat([-weight / 2, weight / 2])
            bias = None if bias is None else torch.cat([-bias / 2, bias / 2])
        weight = None if weight is None else weight.detach().to("cpu")
        return SharedHead(classifier.name, weight, None if bias is None else bias.detach().to("cpu"), dim)

    def _meet(self, head: SharedHead) -> None:
        self._head = head
        self._recorder = Recorder(
            self._settings,
            self._num_classes,
            head.weight,
            head.bias,
            dim=head.dim,
            team=self._team,
            repeatable=self._repeatable,
        )


class LayersMeasurement:
    """The outputs of several layers of a model, watched from the first batch to a report on each.

    Called as a :class:`Measurement` is.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Mapping[str, nn.Module],
        pool: str,
        options: Options,
        team: MeasuringTeam,
        shares: Shares,
        run: ModelRun,
    ):
        self._model, self._options, self._team, self._run = model, options, team, run
        self._shares = shares if team.together else None
        self._targets = options.targets()
        self._rows = LayerRows(self._targets, pool, options.num_classes)
        self._watch = LayersWatch(model, layers)
        self._layers = tuple(layers)
        self._recorders: dict[str, Recorder] = {}
        self._repeated: list[str] = []

    def start(self) -> None:
        """A forward pass begins."""
        self._watch.start()

    def remove(self) -> None:
        """Take all hooks away."""
        self._watch.remove()

    def take(self, labels: RawLabels, again: Again) -> None:
        """Take the batch that has just passed; ``again`` runs it once more."""
        caught = {name: self._watch.features(name) for name in self._layers}
        self._watch.start()  # what runs again is a pass of its own
        if not self._recorders and not self._run.reader.custom:
            self._rows.look(self._model, labels, again, caught)
        own = self._own(labels)
        for name, tensor in caught.items():
            features, targets = self._rows.of(tensor, labels, name, own)
            if name not in self._recorders:
                self._meet(name, features.shape[1])
            self._recorders[name].add(features, targets, self._watch.precision(name))

    def take_again(self, labels: RawLabels) -> None:
        """Take a batch of the second run."""
        own = self._own(labels)
        for name in self._repeated:
            self._recorders[name].add_again(*self._rows.of(self._watch.features(name), labels, name, own))

    def finish(self) -> bool:
        """End the first run; whether this process is to run the same batches again."""
        widths = self._team.gather({name: recorder.dim for name, recorder in self._recorders.items()})
        known = next((found for found in widths if found), None)
        if known is None:
            raise ValueError("loader holds no batches")
        for name in self._layers:
            if name not in self._recorders:
                dim = known[name]
                assert dim is not None
                self._meet(name, dim)
        if self._shares is not None:
            self._shares.restart()
        self._repeated = [name for name in self._layers if self._recorders[name].finish_first_pass()]
        return bool(self._repeated)

    def reports(self) -> dict[str, CollapseReport]:
        """The reports by layer."""
        found = {}
        for name in self._layers:
            report = self._options.named(self._recorders[name].report())
            notes = [*report.notes, *self._targets.notes, *self._rows.notes]
            notes += [self._watch.notes[name]] if name in self._watch.notes else []
            notes += [] if self._team.note is None else [self._team.note]
            found[name] = replace(report, layer=name, notes=tuple(dict.fromkeys(notes)))
        return found

    def _own(self, labels: RawLabels) -> Tensor | None:
        raw = self._targets.tensor(labels)
        return None if self._shares is None or not raw.ndim else self._shares.own(raw.shape[0])

    def _meet(self, name: str, dim: int) -> None:
        options = self._options
        self._recorders[name] = Recorder(
            options.settings, options.num_classes, dim=dim, team=self._team, repeatable=self._run.repeatable
        )
