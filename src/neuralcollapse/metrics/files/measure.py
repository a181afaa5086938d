"""``measure_files``: features in many files, one shard at a time, by several processes or a Ray cluster.

Every shard becomes class statistics, which are merged; where metrics need the samples again, every shard is read
once more against the merged statistics. No shard leaves the process that reads it.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from ..._support.checks import integer
from ..._support.locks import locked
from ..._support.processes import worker_pool
from ..accumulators.second_pass import SecondPass
from ..accumulators.statistics import ClassStatistics
from ..definitions._registry import METRICS, select
from ..inputs import IGNORED, as_classifier, as_source, class_count
from ..intervals import GroupedStatistics, check_level
from ..measure import MEMORY_LIMIT, choose_passes, mean_of, measure
from ..precision import as_precision, coarser
from ..report.report import CollapseReport, build_report
from ..selection import Selection
from .arrays import Array
from .shards import Collection, Shard, collect, encode, find_files, label_names

__all__ = ["measure_files"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Job:
    """What a worker has to know of the whole."""

    num_classes: int
    dim: int
    passes: int
    groups: int | None
    names: tuple[str, ...] | None
    ignore_label: int | None
    precision: torch.dtype | None
    threads: int


def measure_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    num_classes: int | None = None,
    metrics: str | Sequence[str] = "core",
    passes: int | None = None,
    global_mean: Literal["samples", "classes"] = "samples",
    present_only: bool = False,
    min_samples: int = 1,
    ignore_label: int | None = IGNORED,
    intervals: float | None = None,
    groups: int = 20,
    memory_limit: int = MEMORY_LIMIT,
    precision: torch.dtype | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | Progress = False,
) -> CollapseReport:
    """Measure neural collapse of features in files.

    Args:
        paths: files, folders and patterns such as ``"shards/*.npz"``: ``.npz``, ``.npy``, ``.safetensors``,
            ``.parquet``, ``.pt`` (tensors only) with arrays ``features`` and ``labels`` (also ``X`` and ``y``,
            ``embeddings`` and ``targets``), or saved :class:`ClassStatistics`. Labels are integers or text.
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
        raise ValueError(f"engine must be 'local' or 'ray', got {engine!r}")
    check_level(intervals, groups)
    as_precision(precision, torch.float64)
    selection = Selection(present_only, min_samples)
    chosen = select(metrics)
    found = collect(find_files(paths))
    if weight is None:
        weight, bias = found.array("weight"), found.array("bias") if bias is None else bias
    other = found.array("out_of_distribution")
    names = _all_names(found.shards)
    options: dict[str, Any] = {
        "metrics": metrics,
        "global_mean": global_mean,
        "present_only": present_only,
        "min_samples": min_samples,
    }
    if len(found.shards) == 1 and not found.statistics and out is None:
        (shard,) = found.shards
        features, labels = shard.read()
        if names is not None and num_classes is None and weight is None:
            num_classes = len(names)
        with _named_errors(shard.name):
            report = measure(
                features, encode(labels, names), weight, bias, num_classes=num_classes, passes=passes,
                ignore_label=ignore_label, out_of_distribution=other, memory_limit=memory_limit,
                intervals=intervals, groups=groups, precision=_precision_of(shard, precision), **options,
            )  # fmt: skip
        return _with_names(report, names)
    job = _job(found, weight, num_classes, names, passes, ignore_label, memory_limit, chosen, intervals, groups)
    job = replace(job, precision=precision)
    matrix, vector = as_classifier(weight, bias, job.num_classes, job.dim)
    mean = None if other is None else mean_of(other, job.dim)
    again = _needs_again(chosen, job, matrix) if not found.statistics else False
    count = _worker_count(workers, len(found.shards), engine)
    job = replace(job, threads=1 if count > 1 or engine == "ray" else torch.get_num_threads())
    folder = None if out is None else Path(out)
    kept = nullcontext() if folder is None else locked(folder)
    with kept, _reported(progress, len(found.shards) * (2 if again else 1)) as tick:
        parts = _first_look(found, job, engine, count, folder, tick)
        total = parts.total if isinstance(parts, GroupedStatistics) else parts
        if again:
            options |= {"weight": matrix, "bias": vector, "memory_limit": memory_limit}
            second = _second_look(found, job, engine, count, total, options, folder, tick)
            report = second.report(out_of_distribution_mean=mean)
        else:
            report = build_report(
                total, matrix, vector, metrics=metrics, global_mean=global_mean, selection=selection,
                out_of_distribution_mean=mean,
            )  # fmt: skip
    if isinstance(parts, GroupedStatistics) and intervals is not None:
        bounds = parts.intervals(
            report.values, intervals, matrix, vector, global_mean=global_mean, selection=selection,
            out_of_distribution_mean=mean,
        )  # fmt: skip
        report = replace(report, intervals=MappingProxyType(bounds))
    return _with_names(report, names)


def _all_names(shards: Sequence[Shard]) -> tuple[str, ...] | None:
    """The class names of all shards in alphabetical order; ``None`` where labels are numbers."""
    names: set[str] = set()
    kinds = set()
    for shard in shards:
        with _named_errors(str(shard.labels[0])):
            found = label_names(shard.read_labels())
        kinds.add(found is None)
        names |= found or set()
    if len(kinds) > 1:
        raise ValueError("labels must be text in all files or numbers in all files")
    return tuple(sorted(names)) if kinds == {False} else None


def _with_names(report: CollapseReport, names: Sequence[str] | None) -> CollapseReport:
    if names is None or report.per_class is None:
        return report
    called = tuple(names[int(number)] if int(number) < len(names) else number for number in report.per_class.names)
    return replace(report, per_class=replace(report.per_class, names=called))


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """Errors that say which file they are about."""
    try:
        yield
    except (ValueError, TypeError) as error:
        text = str(error)
        raise type(error)(text if text.startswith(name) else f"{name}: {text}") from error


def _job(
    found: Collection,
    weight: Any,
    num_classes: int | None,
    names: tuple[str, ...] | None,
    passes: int | None,
    ignore_label: int | None,
    memory_limit: int,
    chosen: tuple[Any, ...],
    intervals: float | None,
    groups: int,
) -> Job:
    needs = frozenset(need for metric in chosen for need in metric.needs)
    if found.statistics:
        first = ClassStatistics.load(found.statistics[0])
        return Job(
            first.num_classes, first.dim, first.passes, None, names, first.ignore_label, None, 1
        )  # fmt: skip
    dim = as_source("features", found.shards[0].read()[0]).dim
    if num_classes is not None:
        classes = integer("num_classes", num_classes, minimum=2)
    elif weight is not None:
        classes = weight.shape[0]
    elif names is not None:
        classes = max(2, len(names))
    else:
        highest = [torch.cat([encode(shard.read_labels(), None).unique() for shard in found.shards]).unique()]
        classes = class_count(None, highest[0], None, ignore_label)
    number, _ = choose_passes(passes, needs, classes, dim, memory_limit, True)
    if passes is None and weight is not None and not needs & {"scatter"}:
        # The samples are read again for the classifier's decisions anyway: the projections come with it.
        number = 2
    if intervals is not None and needs & {"projection", "scatter"}:
        number = 1 if 8 * dim**2 * (groups + 5) <= memory_limit else number
    return Job(classes, dim, number, groups if intervals is not None else None, names, ignore_label, None, 1)


def _needs_again(chosen: tuple[Any, ...], job: Job, weight: Tensor | None) -> bool:
    needs = {need for metric in chosen for need in METRICS[metric.name].needs}
    wanted = needs & {"ranks"}
    if weight is not None:
        wanted |= needs & {"decisions", "margins"}
    if job.passes == 2:
        wanted |= needs & {"projection"}
    return bool(wanted)


def _worker_count(workers: int | None, shards: int, engine: str) -> int:
    if workers is not None:
        return integer("workers", workers, minimum=1)
    return max(1, min(os.cpu_count() or 1, shards)) if engine == "local" else 0


# one shard ----------------------------------------------------------------------------------------------------


def _precision_of(shard: Shard, given: torch.dtype | None) -> torch.dtype | None:
    """The coarser of what the caller and the file say of the features' rounding."""
    return coarser(given, shard.precision())


def _statistics_of(shard: Shard, job: Job) -> list[ClassStatistics]:
    """The statistics of a shard, one for each group."""
    with _named_errors(shard.name), torch.no_grad():
        torch.set_num_threads(job.threads)
        features, labels = shard.read()
        targets, precision = encode(labels, job.names), _precision_of(shard, job.precision)
        if job.groups is not None:
            grouped = GroupedStatistics(
                job.num_classes, job.dim, groups=job.groups, passes=job.passes, ignore_label=job.ignore_label
            )
            grouped.update(features, targets, precision=precision)
            return list(grouped.parts)
        statistics = ClassStatistics(job.num_classes, job.dim, passes=job.passes, ignore_label=job.ignore_label)
        statistics.update(features, targets, precision=precision)
        return [statistics]


def _look_again(shard: Shard, job: Job, second: "SecondPass | Path") -> SecondPass:
    """A second pass over a shard; ``second`` is an empty one, or the file that holds it."""
    with _named_errors(shard.name):
        torch.set_num_threads(job.threads)
        fresh = _unpacked(second) if isinstance(second, Path) else second
        features, labels = shard.read()
        fresh.update(features, encode(labels, job.names))
        return fresh


def _unpacked(file: Path) -> SecondPass:
    import pickle

    # A file of our own, in a folder that only this user can read, for as long as the call lasts.
    return pickle.loads(file.read_bytes())


# all shards ---------------------------------------------------------------------------------------------------


def _first_look(
    found: Collection, job: Job, engine: str, workers: int, out: Path | None, tick: Callable[[], None]
) -> "ClassStatistics | GroupedStatistics":
    total: ClassStatistics | GroupedStatistics
    if job.groups is None:
        total = ClassStatistics(job.num_classes, job.dim, passes=job.passes, ignore_label=job.ignore_label)
    else:
        total = GroupedStatistics(
            job.num_classes, job.dim, groups=job.groups, passes=job.passes, ignore_label=job.ignore_label
        )
    for file in found.statistics:
        with _named_errors(str(file)):
            _merge(total, [ClassStatistics.load(file)])
    places = [None if out is None else out / _key(shard, job) for shard in found.shards]
    kept = {number: parts for number, place in enumerate(places) if (parts := _finished(place, job)) is not None}
    missing = [shard for number, shard in enumerate(found.shards) if number not in kept]
    results = _in_order(_statistics_of, missing, (job,), engine, workers)
    for number in range(len(found.shards)):
        parts = kept.pop(number, None)
        if parts is None:
            parts = next(results)
            _keep(places[number], parts)
        with _named_errors(found.shards[number].name):
            _merge(total, parts)
        tick()
    return total


def _merge(total: "ClassStatistics | GroupedStatistics", parts: list[ClassStatistics]) -> None:
    if isinstance(total, ClassStatistics):
        total.merge(parts[0])
        return
    if len(parts) != len(total.parts):
        raise ValueError("saved statistics have no groups: intervals need the features themselves")
    for mine, theirs in zip(total.parts, parts, strict=True):
        mine.merge(theirs)


def _second_look(
    found: Collection,
    job: Job,
    engine: str,
    workers: int,
    total: ClassStatistics,
    options: dict[str, Any],
    out: Path | None,
    tick: Callable[[], None],
) -> SecondPass:
    import pickle

    result = total.second_pass(**options)
    about = "" if out is None else _digest(total, options)
    places = [None if out is None else out / f"{_key(shard, job)}-{about}.safetensors" for shard in found.shards]
    kept = {number: part for number, place in enumerate(places) if (part := _looked_at(place)) is not None}
    missing = [shard for number, shard in enumerate(found.shards) if number not in kept]
    with tempfile.TemporaryDirectory(prefix="neuralcollapse-") as folder:
        file = Path(folder) / "second"
        # One file for all local workers; Ray carries the object itself.
        file.write_bytes(pickle.dumps(total.second_pass(**options)))
        empty = file if engine == "local" else total.second_pass(**options)
        results = _in_order(_look_again, missing, (job, empty), engine, workers)
        for number, place in enumerate(places):
            part = kept.pop(number, None)
            if part is None:
                part = next(results)
                if place is not None:
                    part.save(place)
            with _named_errors(found.shards[number].name):
                result.merge(part)
            tick()
    return result


def _in_order(
    work: Callable[..., Any], shards: Sequence[Shard], shared: tuple[Any, ...], engine: str, workers: int
) -> Iterator[Any]:
    """What ``work`` gives for each shard, in order; only a few shards ahead, so that memory is bounded."""
    if not shards:
        return
    if engine == "ray":
        yield from _by_ray(work, shards, shared, workers)
    elif workers == 1:
        for shard in shards:
            yield work(shard, *shared)
    else:
        with worker_pool(workers) as pool:
            waiting: list[Future[Any]] = []
            for shard in shards:
                waiting.append(pool.submit(work, shard, *shared))
                if len(waiting) > 2 * workers:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()


def _by_ray(work: Callable[..., Any], shards: Sequence[Shard], shared: tuple[Any, ...], workers: int) -> Iterator[Any]:
    try:
        import ray
    except ImportError:
        raise ValueError("engine 'ray' needs Ray: pip install 'neuralcollapse[ray]'") from None
    import logging

    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do anyway, without its warning
    started = not ray.is_initialized()
    if started:
        count = None if "RAY_ADDRESS" in os.environ else workers or os.cpu_count() or 1
        ray.init(num_cpus=count, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        task: Any = ray.remote(work)
        held = [ray.put(value) for value in shared]
        ahead = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = []
        for shard in shards:
            waiting.append(task.remote(shard, *held))
            if len(waiting) > ahead:
                yield _from_ray(ray, waiting.pop(0))
        while waiting:
            yield _from_ray(ray, waiting.pop(0))
    finally:
        if started:
            ray.shutdown()


def _from_ray(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, ValueError | TypeError | OSError) else error) from None


# finished shards ----------------------------------------------------------------------------------------------


def _key(shard: Shard, job: Job) -> str:
    """A name that changes with the files and with what is asked of them."""
    digest = hashlib.sha256(repr(replace(job, threads=1)).encode())
    for file, name in (shard.features, shard.labels):
        about = file.stat()
        digest.update(f"{file.resolve()}\0{name}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
    return f"{Path(shard.name).stem}-{digest.hexdigest()[:16]}"


def _digest(total: ClassStatistics, options: dict[str, Any]) -> str:
    """A name that changes with the class means and with what is asked of the samples."""
    digest = hashlib.sha256()
    for tensor in (total.counts, total.means, options["weight"], options["bias"]):
        digest.update(b"" if tensor is None else tensor.numpy().tobytes())
    digest.update(repr({name: value for name, value in options.items() if name not in ("weight", "bias")}).encode())
    return digest.hexdigest()[:16]


def _looked_at(place: Path | None) -> SecondPass | None:
    """What an earlier call saw of a shard in its second pass, if it is there and whole."""
    if place is None or not place.is_file():
        return None
    try:
        return SecondPass.load(place)
    except ValueError:
        return None


def _keep(place: Path | None, parts: Sequence[ClassStatistics]) -> None:
    if place is not None:
        for number, part in enumerate(parts):
            part.save(place.with_name(f"{place.name}-{number}.safetensors"))


def _finished(place: Path | None, job: Job) -> list[ClassStatistics] | None:
    """The statistics that an earlier call left for a shard, if they are all there and whole."""
    if place is None:
        return None
    files = [place.with_name(f"{place.name}-{number}.safetensors") for number in range(job.groups or 1)]
    try:
        return [ClassStatistics.load(file) for file in files]
    except (ValueError, OSError):
        return None


@contextmanager
def _reported(progress: bool | Progress, total: int) -> Iterator[Callable[[], None]]:
    """A function to call after each shard."""
    if callable(progress):
        done = 0

        def count() -> None:
            nonlocal done
            done += 1
            progress(done, total)

        yield count
    elif not progress:
        yield lambda: None
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda: bar.advance(task)
