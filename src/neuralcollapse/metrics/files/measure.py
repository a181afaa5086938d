"""``measure_files``: features in many files, one shard at a time, by several processes or a Ray cluster.

Every shard becomes class statistics, which are merged; where metrics need the samples again, every shard is read
once more against the merged statistics. No shard leaves the process that reads it.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ..._support.checks import describe, integer
from ..._support.files import locked
from ..accumulators.second_pass import SecondPass
from ..accumulators.statistics import ClassStatistics
from ..inputs import IGNORED, Array, as_classifier, as_labels, as_rows, classes_shown
from ..intervals import GroupedSecondPass, GroupedStatistics, first_statistics, intervals_from, second_pass_of
from ..measure import out_of_distribution_mean, report_on
from ..precision import coarser
from ..report.report import CollapseReport, build_report
from ..selection import Selection
from ..settings import MEMORY_LIMIT, GlobalMean, Metrics, Settings
from .engines import EngineName, ShardProgress, in_order, reported, worker_count
from .finished import asked_of, finished_passes, keep, key_of
from .shards import Collection, Shard, all_label_names, collect, encode, find_files, named_errors

__all__ = ["measure_files", "measure_shard"]


@dataclass(frozen=True)
class ShardJob:
    """What a worker has to know of the whole."""

    num_classes: int
    dim: int
    passes: int
    settings: Settings
    names: tuple[str, ...] | None = None
    threads: int = 1

    def statistics(self) -> ClassStatistics | GroupedStatistics:
        """Empty statistics, in groups where intervals are asked for."""
        return first_statistics(self.settings, self.num_classes, self.dim, self.passes)[0]

    @property
    def count(self) -> int:
        """How many statistics a shard gives: one, or one for each group."""
        return self.settings.interval_groups or 1

    @property
    def facts(self) -> str:
        """What the statistics of a shard depend on besides the shard."""
        settings = self.settings
        sizes = (self.num_classes, self.dim, self.passes, settings.interval_groups)
        return repr((*sizes, self.names, settings.ignore_label, settings.precision))


def measure_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    engine: EngineName = "local",
    workers: int | None = None,
    num_classes: int | None = None,
    metrics: Metrics = "core",
    passes: int | None = None,
    global_mean: GlobalMean = "samples",
    present_only: bool = False,
    min_samples: int = 1,
    ignore_label: int | None = IGNORED,
    intervals: float | None = None,
    groups: int = 20,
    memory_limit: int = MEMORY_LIMIT,
    precision: torch.dtype | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | ShardProgress = False,
) -> CollapseReport:
    """Measure neural collapse of features in files.

    Args:
        paths: files, folders and patterns such as ``"shards/*.npz"``: ``.npz``, ``.npy``, ``.safetensors``,
            ``.parquet``, ``.pt`` (tensors only) with arrays ``features`` and ``labels`` (also ``X`` and ``y``,
            ``embeddings`` and ``targets``), or saved :class:`ClassStatistics`, which are what they were made with:
            options that would change them are refused. Labels are integers or text.
        weight: the classifier, (K, d); by default the array ``weight`` of the files, if one has it.
        bias: its bias, (K,); by default the array ``bias``.
        engine: ``"local"`` for processes of this machine, ``"ray"`` for a Ray cluster that sees the same files.
        workers: processes; by default one per processor, and none besides this one for a single shard.
        num_classes: K; by default the rows of ``weight``, the names that occur, or the highest label and one.
        metrics: ``"core"``, ``"all"``, or names.
        passes: 1 or 2, see :func:`measure`.
        global_mean: ``"samples"`` or ``"classes"``, see :func:`measure`.
        present_only: measure the classes that have samples, as if there were no others.
        min_samples: measure the classes that have at least so many samples, as if there were no others.
        ignore_label: the label of samples to leave out; ``None`` for none.
        intervals: the level of confidence intervals, such as 0.95; see :func:`measure`.
        groups: groups of the jackknife.
        memory_limit: bytes that intermediate matrices may take.
        precision: the dtype whose rounding the features carry, where that is coarser than their own, see
            :func:`measure`; shards of :func:`extract` say it themselves.
        out: a folder for the statistics of finished shards: a later call goes on from it.
        progress: show a progress bar with the time left, or a function of (finished, all) shards.

    """
    if engine not in ("local", "ray"):
        raise ValueError(f"engine must be 'local' or 'ray', got {describe(engine)}")
    selection = Selection(present_only, min_samples)
    settings = Settings(
        metrics, passes, global_mean, ignore_label, memory_limit, selection, intervals, groups, precision
    )
    found = collect(find_files(paths))
    if weight is None:
        weight, bias = found.array("weight"), found.array("bias") if bias is None else bias
    other = found.array("out_of_distribution")
    if len(found.shards) == 1 and not found.statistics and out is None:
        return measure_shard(found.shards[0], weight, bias, settings, num_classes, other)
    names = all_label_names(found.shards)
    job, notes = _planned_job(found, weight, num_classes, names, settings)
    matrix, vector = as_classifier(weight, bias, job.num_classes, job.dim)
    mean = None if other is None else out_of_distribution_mean(other, job.dim)
    scatter = job.passes == 1 and min_samples == 1
    again = not found.statistics and bool(settings.again(classifier=matrix is not None, scatter=scatter))
    count = worker_count(workers, len(found.shards), engine)
    job = replace(job, threads=1 if count > 1 or engine == "ray" else torch.get_num_threads())
    folder = None if out is None else Path(out)
    second = None
    with nullcontext() if folder is None else locked(folder), reported(
        progress, len(found.shards) * (2 if again else 1)
    ) as tick:  # fmt: skip
        parts = _first_pass(found, job, engine, count, folder, tick)
        total = parts.total if isinstance(parts, GroupedStatistics) else parts
        if again:
            second = _second_pass(found, job, engine, count, total, matrix, vector, folder, tick)
            report = second.parts[0].report(out_of_distribution_mean=mean)
        else:
            report = build_report(
                total, matrix, vector, metrics=metrics, global_mean=global_mean, selection=selection,
                out_of_distribution_mean=mean,
            )  # fmt: skip
    report = intervals_from(report, parts, second, matrix, vector, settings, mean)
    return _with_names(replace(report, notes=(*report.notes, *notes)), names)


def measure_shard(
    shard: Shard,
    weight: Array | None,
    bias: Array | None,
    settings: Settings,
    num_classes: int | None = None,
    other: Array | None = None,
) -> CollapseReport:
    """A single shard, as :func:`measure` has it; labels may be text, and the file may say what it was rounded to."""
    names = all_label_names([shard])
    features, labels = shard.read()
    if names is not None and num_classes is None and weight is None:
        num_classes = len(names)
    with named_errors(shard.name), torch.no_grad():
        source = as_rows("features", features)
        targets = as_labels(encode(labels, names), source.rows)
        mean = None if other is None else out_of_distribution_mean(other, source.dim)
        settings = replace(settings, precision=_precision_of(shard, settings.precision))
        return _with_names(report_on(source, targets, weight, bias, settings, num_classes, mean), names)


def _with_names(report: CollapseReport, names: Sequence[str] | None) -> CollapseReport:
    if names is None or report.per_class is None:
        return report
    called = tuple(names[int(number)] if int(number) < len(names) else number for number in report.per_class.names)
    return replace(report, per_class=replace(report.per_class, names=called))


def _planned_job(
    found: Collection,
    weight: Array | None,
    num_classes: int | None,
    names: tuple[str, ...] | None,
    settings: Settings,
) -> tuple[ShardJob, tuple[str, ...]]:
    """The sizes and the way to go, and notes on what it leaves out."""
    if found.statistics:
        first = ClassStatistics.load(found.statistics[0])
        _check_options(first, num_classes, settings)
        settings = replace(settings, ignore_label=first.ignore_label)
        return ShardJob(first.num_classes, first.dim, first.passes, settings, names), ()
    dim = as_rows("features", found.shards[0].read()[0]).dim
    if num_classes is not None:
        classes = integer("num_classes", num_classes, minimum=2)
    elif weight is not None:
        classes = weight.shape[0]
    elif names is not None:
        classes = max(2, len(names))
    else:
        classes = _classes_in(found.shards, settings)
    anyway = settings.needs & {"ranks"} or settings.selection.min_samples > 1
    anyway = anyway or (weight is not None and settings.needs & {"decisions", "margins"})
    passes, _ = settings.first_look(classes, dim, "free" if anyway else "cheap")
    statistics, notes = first_statistics(settings, classes, dim, passes)
    number = statistics.parts[0].passes if isinstance(statistics, GroupedStatistics) else passes
    return ShardJob(classes, dim, number, settings, names), notes


def _check_options(made: ClassStatistics, num_classes: int | None, settings: Settings) -> None:
    """Raise for options that saved statistics cannot follow; the default ``ignore_label`` takes theirs."""
    if settings.intervals is not None:
        raise ValueError("saved statistics have no groups: intervals need the features themselves")
    if settings.precision is not None:
        raise ValueError("precision is for features: saved statistics have that of the features they were made from")
    for name, given, default, own in (
        ("num_classes", num_classes, None, made.num_classes),
        ("passes", settings.passes, None, made.passes),
        ("ignore_label", settings.ignore_label, IGNORED, made.ignore_label),
    ):
        if given not in (default, own):
            raise ValueError(f"{name} is {describe(given)}, but the saved statistics were made with {own}")


def _classes_in(shards: Sequence[Shard], settings: Settings) -> int:
    """The highest label of all shards and one; any, where classes that do not occur are left out."""
    highest, samples = -1, 0
    for shard in shards:
        labels = encode(shard.read_labels(), None)
        kept = labels if settings.ignore_label is None else labels[labels != settings.ignore_label]
        samples += kept.shape[0]
        highest = max(highest, int(kept.max()) if kept.shape[0] else -1)
    return max(2, highest + 1) if settings.selection != Selection() else classes_shown(highest, samples)


# one shard ----------------------------------------------------------------------------------------------------


def _precision_of(shard: Shard, given: torch.dtype | None) -> torch.dtype | None:
    """The coarser of what the caller and the file say of the features' rounding."""
    return coarser(given, shard.precision())


def _statistics_of(shard: Shard, job: ShardJob) -> list[ClassStatistics]:
    """The statistics of a shard, one for each group."""
    with named_errors(shard.name), torch.no_grad():
        torch.set_num_threads(job.threads)
        features, labels = shard.read()
        statistics, precision = job.statistics(), _precision_of(shard, job.settings.precision)
        statistics.update(features, encode(labels, job.names), precision=precision)
        return list(statistics.parts) if isinstance(statistics, GroupedStatistics) else [statistics]


def _second_pass_of(shard: Shard, job: ShardJob, second: "SecondPass | Path") -> list[SecondPass]:
    """A second pass over a shard, and its groups; ``second`` is an empty one, or the file that holds it."""
    with named_errors(shard.name):
        torch.set_num_threads(job.threads)
        fresh = GroupedSecondPass(
            _unpacked(second) if isinstance(second, Path) else second, job.settings.interval_groups
        )
        features, labels = shard.read()
        fresh.update(features, encode(labels, job.names))
        return list(fresh.parts)


def _unpacked(file: Path) -> SecondPass:
    import pickle

    # A file of our own, in a folder that only this user can read, for as long as the call lasts.
    return pickle.loads(file.read_bytes())


# all shards ---------------------------------------------------------------------------------------------------


def _first_pass(
    found: Collection, job: ShardJob, engine: EngineName, workers: int, out: Path | None, tick: Callable[[], None]
) -> "ClassStatistics | GroupedStatistics":
    total = job.statistics()
    for file in found.statistics:
        with named_errors(str(file)):
            _merge(total, [ClassStatistics.load(file)])
    places = [None if out is None else out / key_of(shard, job.facts) for shard in found.shards]
    kept = finished_passes(ClassStatistics, places, job.count)
    missing = [shard for number, shard in enumerate(found.shards) if number not in kept]
    results = in_order(_statistics_of, missing, (job,), engine, workers)
    for number in range(len(found.shards)):
        parts = kept.pop(number, None)
        if parts is None:
            parts = next(results)
            keep(places[number], parts)
        with named_errors(found.shards[number].name):
            _merge(total, parts)
        tick()
    return total


def _merge(total: "ClassStatistics | GroupedStatistics", parts: list[ClassStatistics]) -> None:
    if isinstance(total, ClassStatistics):
        total.merge(parts[0])
        return
    if len(parts) != len(total.parts):
        raise ValueError("saved statistics have no groups: intervals need the features themselves")
    total.merge_parts(parts)


def _second_pass(
    found: Collection,
    job: ShardJob,
    engine: EngineName,
    workers: int,
    total: ClassStatistics,
    weight: Tensor | None,
    bias: Tensor | None,
    out: Path | None,
    tick: Callable[[], None],
) -> GroupedSecondPass:
    import pickle

    settings = job.settings

    def empty() -> SecondPass:
        return second_pass_of(total, weight, bias, settings)

    result = GroupedSecondPass(empty(), settings.interval_groups)
    about = "" if out is None else asked_of(total, weight, bias, settings)
    places = [None if out is None else out / f"{key_of(shard, job.facts)}-{about}" for shard in found.shards]
    kept = finished_passes(SecondPass, places, len(result.parts))
    missing = [shard for number, shard in enumerate(found.shards) if number not in kept]
    with tempfile.TemporaryDirectory(prefix="neuralcollapse-") as folder:
        file = Path(folder) / "second"
        # One file for all local workers; Ray carries the object itself.
        file.write_bytes(pickle.dumps(empty()))
        results = in_order(_second_pass_of, missing, (job, file if engine == "local" else empty()), engine, workers)
        for number, place in enumerate(places):
            parts = kept.pop(number, None)
            if parts is None:
                parts = next(results)
                keep(place, parts)
            with named_errors(found.shards[number].name):
                result.merge(parts)
            tick()
    return result
