"""The second look at the samples as a stream: sums that can be merged, reduced, saved, and end in a report."""

import math
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..._support.checks import describe, integer
from ..._support.machine import has_float64
from ..._support.tensors import read_tensors, write_tensors
from ..definitions._geometry import Geometry, SampleResults, geometry_of
from ..definitions._registry import select
from ..inputs import (
    Array,
    FeatureRows,
    GlobalMean,
    Labels,
    all_finite,
    as_classifier,
    as_labels,
    as_rows,
    check_labels,
    nonfinite_error,
)
from ..processes import Group
from ..report.report import CollapseReport, evaluate, select_classes
from ..selection import Selection
from ..settings import needs_again, needs_of
from . import Chunk, Decisions, Look, Margins, Projection, Ranks, Scatter, Spread
from .moments import chunk_rows
from .ranks import gram_bytes
from .scatter import enough_for_nc1, well_conditioned
from .statistics import ClassStatistics

__all__ = ["SecondPass", "Task", "begin_second_pass"]

FORMAT = "neuralcollapse.SecondPass/1"
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, eq=False)
class Task:
    """What a second look is for: the geometry of the first, and the metrics that wait for it."""

    geometry: Geometry
    metrics: tuple[str, ...]
    needs: frozenset[str]
    num_classes: int
    """Of all classes, measured or not: what labels may be."""
    ignore_label: int | None = None
    missing: dict[str, str] = field(default_factory=dict)
    decision_rows: int | None = None
    """How many samples are decided; ``None`` for all."""
    faster: frozenset[str] | None = None
    """Needs that give the same metrics in less time, where float32 products are exact enough for them."""

    @property
    def metric_needs(self) -> frozenset[str]:
        """What the metrics read, whichever way it is collected."""
        return needs_of(select(self.metrics)) if self.metrics else self.needs

    @cached_property
    def numbers(self) -> Int[Tensor, " K"] | None:
        """For each label, the number of its class among those that are measured, or -1; ``None`` for all."""
        if self.geometry.classes is None:
            return None
        numbers = torch.full((self.num_classes,), -1)
        numbers[self.geometry.classes] = torch.arange(self.geometry.num_classes)
        return numbers

    @cached_property
    def fingerprint(self) -> Float[Tensor, " 6"]:
        """Numbers that tell one set of class means from another."""
        geometry = self.geometry
        classes = torch.arange(geometry.num_classes, dtype=torch.float64)
        columns = torch.arange(geometry.dim, dtype=torch.float64)
        sizes = geometry.counts.to(torch.float64)
        found = [sizes.sum(), sizes @ torch.cos(1 + classes)]
        for speed in (0.7, 1.3):
            found.append((torch.cos(speed * classes) @ geometry.centred) @ torch.cos(columns + speed))
        found += [geometry.global_mean @ torch.cos(columns), torch.linalg.vector_norm(geometry.centred)]
        return torch.stack(found)


class SecondPass:
    """Sums over a second stream of the samples; made by :meth:`ClassStatistics.second_pass`.

    A pass that has seen samples is small when pickled or saved: it takes its sums along and leaves the class means
    behind. What comes back is merged into a pass that was made from the statistics.
    """

    def __init__(self, task: Task, dtype: torch.dtype = torch.float64, look: Look | None = None):
        self._task: Task | None = task
        self._dtype = dtype
        self._parts: list[dict[str, Tensor]] = []
        self._row = 0
        self._sums: dict[str, Any] = {}
        self._look = look
        if look is not None:
            self._sums = _empty_sums(task, look)

    def sibling(self, device: torch.device) -> "SecondPass":
        """An empty pass of the same kind, that shares the constants."""
        look = self._ready(device)
        return SecondPass(self._attached(), self._dtype, look)

    @cached_property
    def _fingerprint(self) -> Float[Tensor, " 6"]:
        """That of the task, which stays when the task is left behind."""
        return self._attached().fingerprint

    @property
    def task(self) -> Task:
        """What the look is for."""
        return self._attached()

    def _attached(self) -> Task:
        if self._task is None:
            raise ValueError(
                "this second pass came from a file or another process and holds sums only: merge it into "
                "statistics.second_pass(...)"
            )
        return self._task

    def _place(self, device: torch.device) -> torch.device:
        """Where to look at features from ``device``: there, or on the CPU for products that need float64."""
        products = self._attached().needs & {"scatter", "ranks"}
        return device if has_float64(device) or not products else torch.device("cpu")

    def _ready(self, device: torch.device) -> Look:
        """The constants of the look and the sums, made where the first features are."""
        if self._look is None:
            task = self._attached()
            if not has_float64(device):
                self._dtype = torch.float32
            self._look = Look(task.geometry, task.needs, self._dtype, device)
            self._sums = _empty_sums(task, self._look)
        return self._look

    # filling ------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def update(self, features: Array | FeatureRows, labels: Labels) -> None:
        """Add a batch of the same samples as in the first pass, in any order and split."""
        task = self._attached()
        source = as_rows("features", features)
        if source.dim != task.geometry.dim:
            raise ValueError(f"features must have {task.geometry.dim} columns, got {source.dim}")
        device = self._place(source.device) if self._look is None else self._look.centre.device
        targets = as_labels(labels, source.rows, source.device)
        kept = check_labels(targets, task.num_classes, task.ignore_label)
        if kept is not None:
            source, targets = source.where(kept), targets[kept]
        if task.numbers is not None:
            targets = task.numbers.to(targets.device)[targets]
            kept = (targets >= 0).nonzero().squeeze(1)
            source, targets = source.where(kept), targets[kept]
        self._ready(device)
        step = chunk_rows(source.dim)
        for start in range(0, source.rows, step):
            stop = min(start + step, source.rows)
            part = source.slice(start, stop)
            if not all_finite(part):
                raise nonfinite_error(source)
            self.add(part.to(device), targets[start:stop].to(device))

    def add(self, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], row: int | None = None) -> None:
        """Add a chunk of finite rows with valid labels, where the sums are; ``row`` is the number of its first."""
        self._row = self._row if row is None else row
        look = self._ready(features.device)
        scatter = self._sums.get("scatter")
        room = None if scatter is None else scatter.room(labels.shape[0], look.dtype)
        chunk = Chunk(look, features, labels, room)
        for name in ("spread", "projection", "ranks"):
            if name in self._sums:
                self._sums[name].add(chunk)
        if scatter is not None and chunk.difference is not room:
            scatter.add(chunk.difference)
        if "decisions" in self._sums or "margins" in self._sums:
            few = self._sampled(chunk, features, labels)
            for name in ("decisions", "margins"):
                if name in self._sums and few is not None:
                    self._sums[name].add(few)
        self._row += labels.shape[0]

    def _sampled(self, chunk: Chunk, features: Tensor, labels: Tensor) -> Chunk | None:
        """The samples to decide, spread evenly over the stream whatever its order."""
        task = self._attached()
        if task.decision_rows is None or task.decision_rows >= task.geometry.total:
            return chunk
        rows = torch.arange(self._row, self._row + labels.shape[0], dtype=torch.float64) * GOLDEN
        kept = ((rows - rows.floor()) < task.decision_rows / task.geometry.total).nonzero().squeeze(1).to(labels.device)
        if not kept.shape[0]:
            return None
        look = self._ready(features.device)
        return Chunk(look, features.index_select(0, kept), labels.index_select(0, kept))

    def merge(self, other: "SecondPass") -> "SecondPass":
        """Add what another second pass over other samples, from the same statistics, has seen."""
        if not isinstance(other, SecondPass):
            raise TypeError(f"other must be a SecondPass, got {describe(other)}")
        if other is self:
            raise ValueError("a second pass cannot be merged into itself: every sample would count twice")
        size = float(self._fingerprint[2:].abs().max())
        if not torch.allclose(self._fingerprint, other._fingerprint, rtol=1e-8, atol=1e-8 * size):
            raise ValueError("second passes that start from different class means cannot be merged")
        if self._task is None:
            self._parts += other._all_parts()
            return self
        if other._look is not None:
            self._take_in(other)
        for part in other._parts:
            sibling = self.sibling(torch.device("cpu"))
            sibling._set_part(part)
            self._take_in(sibling)
        return self

    def _take_in(self, other: "SecondPass") -> None:
        assert other._look is not None
        self._ready(other._look.centre.device)
        for name, sums in self._sums.items():
            if name not in other._sums:
                raise ValueError("second passes that collect different things cannot be merged")
            sums.merge(other._sums[name])
        self._row += other._row

    def all_reduce(self, group: Group = None) -> None:
        """Merge over all ranks of torch.distributed; all must have started from the same statistics.

        Sums are reduced, the margins (one number a sample) are gathered for their sorted curve, and the classes
        are brought together in turn for their numerical ranks.
        """
        look = self._ready(torch.device("cpu"))
        for name, sums in self._sums.items():
            if name != "ranks":
                sums.all_reduce(group)
        if "ranks" in self._sums:
            self._sums["ranks"].all_reduce(look, self._sums["spread"].seen, group)

    # results ------------------------------------------------------------------------------------------------

    @property
    def seen(self) -> Int[Tensor, " K"]:
        """Samples seen of each class that is measured."""
        if self._task is None:
            parts = [part["spread.seen"] for part in self._parts]
            return torch.stack(parts).sum(0) if parts else torch.zeros(0, dtype=torch.int64)
        self._ready(torch.device("cpu"))
        return self._sums["spread"].seen.to("cpu")

    def class_squares(self) -> Float[Tensor, " K"]:
        """Sums of squared distances to the class means, from this look or from the first."""
        geometry = self._attached().geometry
        if "within" in self._attached().needs:
            return self._sums["spread"].result(self._ready(torch.device("cpu"))).to("cpu")
        return geometry.class_variances * geometry.counts

    def results(self) -> SampleResults:
        """What was asked for, from the sums."""
        look, sums = self._ready(torch.device("cpu")), self._sums
        seen, total = self._sums["spread"].seen, max(int(self._sums["spread"].seen.sum()), 1)
        spread = float(self.class_squares().sum())
        found: dict[str, Any] = {}
        if "projection" in sums:
            along = sums["projection"].result(look, seen, spread)
            found["along"] = None if along is None else along.to("cpu")
        if "decisions" in sums:
            decided, mismatches, right, nearest_right = sums["decisions"].result()
            found |= {"decided": decided, "mismatches": int(mismatches.sum())}
            found |= {"right": right, "nearest_right": nearest_right}
        if "margins" in sums:
            found["margins"], found["at_global_mean"] = sums["margins"].result()
        if "ranks" in sums:
            found["ranks"] = sums["ranks"].result(look, seen)
        if "scatter" in sums:
            found["scatter"] = look.exact_scatter(sums["scatter"].result(), seen, spread).to("cpu") / total
        return SampleResults(**found)

    def finite(self) -> bool:
        """Whether no sum overflowed the working precision."""
        sums = [value for name in ("spread", "projection", "scatter") if name in self._sums
                for value in self._sums[name].state().values()]  # fmt: skip
        margins = "margins" not in self._sums or self._sums["margins"].finite()
        return margins and all(bool(torch.isfinite(value).all()) for value in sums)

    def precise(self) -> bool:
        """Whether products in float32 are enough for what was collected."""
        if "scatter" not in self._sums:
            return True
        task = self._attached()
        if "projection" in task.needs or "projection" not in task.metric_needs:
            look, seen = self._ready(torch.device("cpu")), self._sums["spread"].seen
            upper = self._sums["scatter"].state()["scatter"]
            return well_conditioned(look.exact_scatter(upper, seen, float(self.class_squares().sum())))
        scatter, spectrum = self.results().scatter, task.geometry.spectrum
        return scatter is not None and enough_for_nc1(scatter, spectrum.directions, spectrum.values)

    def report(
        self,
        *,
        missing: dict[str, str] | None = None,
        ranks: Float[Tensor, " K"] | None = None,
        out_of_distribution_mean: Float[Tensor, " d"] | None = None,
    ) -> CollapseReport:
        """All measures; the second pass must have seen exactly the samples of the first.

        ``missing`` adds reasons for parts that the first pass left out; ``ranks`` and ``out_of_distribution_mean``
        are what was measured elsewhere.
        """
        task = self._attached()
        geometry, seen = task.geometry, self.seen
        if not torch.equal(seen, geometry.counts):
            raise ValueError(
                f"the second pass saw {int(seen.sum())} samples and the first {geometry.total}, or other labels: "
                "both must stream the same samples"
            )
        results = self.results()
        results = results if ranks is None else replace(results, ranks=ranks)
        variances = self.class_squares() / geometry.counts.clamp(min=1)
        geometry = geometry.with_samples(results, variances, out_of_distribution_mean, task.missing | (missing or {}))
        return evaluate(geometry, select(task.metrics))

    # elsewhere ----------------------------------------------------------------------------------------------

    def _all_parts(self) -> list[dict[str, Tensor]]:
        """The sums as named tensors."""
        if self._look is None:
            return list(self._parts)
        named = {f"{name}.{key}": value for name, sums in self._sums.items() for key, value in sums.state().items()}
        return [*self._parts, {key: value.to("cpu") for key, value in named.items()}]

    def _set_part(self, part: dict[str, Tensor]) -> None:
        for name, sums in self._sums.items():
            state = {key.removeprefix(f"{name}."): value for key, value in part.items() if key.startswith(f"{name}.")}
            if not state:
                raise ValueError("second passes that collect different things cannot be merged")
            sums.set_state(state)

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__ | {"_look": None, "_sums": {}, "_fingerprint": self._fingerprint}
        if self._parts or (self._look is not None and int(self.seen.sum())):
            # The class means stay where they are; the sums go.
            state |= {"_task": None, "_parts": self._all_parts()}
        return state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sums to a safetensors file, atomically and with a checksum: not the class means."""
        parts = self._all_parts()
        tensors = {f"{n}/{key}": value for n, part in enumerate(parts) for key, value in part.items()}
        tensors["fingerprint"] = self._fingerprint
        metadata = {"format": FORMAT, "parts": str(len(parts))}
        write_tensors(path, tensors, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SecondPass":
        """Read sums written by :meth:`save`, to be merged into a pass made from the same statistics."""
        tensors, metadata = read_tensors(path)
        if metadata.get("format") != FORMAT or "fingerprint" not in tensors:
            raise ValueError(f"{os.fspath(path)} does not hold a second pass (expected format {FORMAT!r})")
        result = cls.__new__(cls)
        result._task, result._look, result._sums, result._row = None, None, {}, 0
        result._dtype, result._fingerprint = torch.float64, tensors.pop("fingerprint")
        result._parts = [
            {key.partition("/")[2]: value for key, value in tensors.items() if key.startswith(f"{number}/")}
            for number in range(int(metadata.get("parts", "0")))
        ]
        return result


def _empty_sums(task: Task, look: Look) -> dict[str, Any]:
    """Empty sums for the needs of the metrics."""
    sums: dict[str, Any] = {"spread": Spread(look, "within" in task.needs)}
    if "projection" in task.needs:
        sums["projection"] = Projection(look)
    if look.decides:
        sums["decisions"] = Decisions(look)
    if look.has_margins:
        sums["margins"] = Margins(look)
    if "ranks" in task.needs:
        sums["ranks"] = Ranks(task.geometry.counts, task.geometry.dim)
    if "scatter" in task.needs:
        sums["scatter"] = Scatter(task.geometry.dim, look.centre.device)
    return sums


def begin_second_pass(
    statistics: ClassStatistics,
    weight: object,
    bias: object,
    *,
    metrics: object,
    global_mean: GlobalMean,
    memory_limit: int,
    selection: Selection,
    decision_rows: int | None = None,
) -> SecondPass:
    """See :meth:`ClassStatistics.second_pass`."""
    integer("memory_limit", memory_limit, minimum=0)
    rows = None if decision_rows is None else integer("decision_rows", decision_rows, minimum=1)
    matrix, vector = as_classifier(weight, bias, statistics.num_classes, statistics.dim)
    chosen = select(metrics)
    part = select_classes(statistics, matrix, vector, selection)
    needs = needs_again(needs_of(chosen), classifier=matrix is not None, scatter=part.statistics.passes == 1)
    geometry = geometry_of(
        part.statistics,
        part.weight,
        part.bias,
        SampleResults(),
        global_mean=global_mean,
        classes=part.classes,
        notes=part.notes,
    )
    missing, names = dict(part.missing), tuple(metric.name for metric in chosen)
    if "ranks" in needs:
        bytes_needed = gram_bytes(geometry.counts, statistics.dim)
        if bytes_needed > memory_limit:
            needs -= {"ranks"}
            missing["ranks"] = (
                f"the class Gram matrices need {bytes_needed / 1e9:.2g} GB, more than memory_limit = "
                f"{memory_limit / 1e9:.2g} GB"
            )
    return SecondPass(Task(geometry, names, needs, statistics.num_classes, statistics.ignore_label, missing, rows))
