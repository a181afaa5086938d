"""Passes over features in memory or in a file: chunks shared by worker threads, one BLAS thread in each.

As many workers as torch has threads. One thread per worker inside beats threads inside every product: a chunk
stays in the cache of one core from the subtraction to the last sum, and no product waits for another core.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from ..._support.machine import has_float64, torch_threads
from ..definitions._geometry import Geometry
from ..inputs import FeatureRows, all_finite, nonfinite_error
from .moments import chunk_rows
from .ranks import rank_of_class
from .second_pass import SecondPass, Task
from .statistics import ClassStatistics

__all__ = ["class_ranks", "first_means", "one_pass", "second_pass"]

Result = TypeVar("Result")
LARGEST_SHARED_STATE = 1 << 26
"""Bytes of state per worker above which one worker does it all."""


def _shared_out(
    tasks: int, work: Callable[[range], Result], device: torch.device, state_bytes: int = 0
) -> list[Result]:
    """Split tasks 0..tasks-1 over workers: ``work`` gets every w-th number; the results in a fixed order."""
    workers = max(1, min(torch.get_num_threads(), tasks))
    if state_bytes > LARGEST_SHARED_STATE or device.type != "cpu":
        workers = 1
    # A caller's autocast would take the products in half precision.
    with torch_threads(1), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        if workers == 1:
            return [work(range(tasks))]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(work, [range(worker, tasks, workers) for worker in range(workers)]))


def _chunk_count(source: FeatureRows, step: int) -> int:
    return -(-source.rows // step)


def one_pass(
    source: FeatureRows, labels: Int[Tensor, " N"], num_classes: int, passes: int, precision: torch.dtype
) -> ClassStatistics:
    """Exact class statistics in one read; with ``passes=1`` including the d x d scatter."""
    step = chunk_rows(source.dim) if passes == 2 else min(4096, max(1024, chunk_rows(source.dim)))
    place = source.device if has_float64(source.device) else None

    def work(numbers: range) -> ClassStatistics:
        statistics = ClassStatistics(num_classes, source.dim, passes=passes, device=place)
        for number in numbers:
            start, stop = number * step, min((number + 1) * step, source.rows)
            statistics.add(source.slice(start, stop), labels[start:stop], precision)
        return statistics

    first, *others = _shared_out(_chunk_count(source, step), work, source.device, 16 * num_classes * source.dim)
    for other in others:
        first.merge(other)
    if not bool(torch.isfinite(first.means).all()) or not bool(torch.isfinite(first.class_variances).all()):
        raise nonfinite_error(source)
    return first


def first_means(
    source: FeatureRows, labels: Int[Tensor, " N"], num_classes: int, precision: torch.dtype
) -> ClassStatistics:
    """Counts and means only (``passes=2``, without variances), summed in float64.

    For features of single or lower precision: their own rounding is far above that of these sums.
    """
    if not has_float64(source.device):
        return one_pass(source, labels, num_classes, 2, precision)
    step = max(16, chunk_rows(source.dim))

    def work(numbers: range) -> Tensor:
        sums = torch.zeros(num_classes, source.dim, dtype=torch.float64, device=source.device)
        for number in numbers:
            start, stop = number * step, min((number + 1) * step, source.rows)
            sums.index_add_(0, labels[start:stop], source.slice(start, stop).to(torch.float64))
        return sums

    first, *others = _shared_out(_chunk_count(source, step), work, source.device, 8 * num_classes * source.dim)
    for other in others:
        first += other
    if not all_finite(first):
        raise nonfinite_error(source)
    counts = torch.bincount(labels, minlength=num_classes)
    first /= counts.clamp(min=1)[:, None]
    return ClassStatistics.from_moments(counts, first, precision=precision)


def second_pass(source: FeatureRows, labels: Int[Tensor, " N"], task: Task) -> SecondPass:
    """The second pass, in float32 for features that are no finer and of ordinary size, else in float64."""
    geometry = task.geometry
    size = max(geometry.largest, float(geometry.global_mean.abs().max()))
    single = source.dtype != torch.float64 and geometry.largest > 1e-10 and size < 1e10
    step = chunk_rows(source.dim)
    ways = [(torch.float32, task.needs), (torch.float64, task.needs)] if single else [(torch.float64, task.needs)]
    if single and task.faster is not None and has_float64(source.device):
        ways.insert(0, (torch.float32, task.faster))
    for dtype, needs in ways:
        whole = SecondPass(replace(task, needs=needs), dtype)
        if not has_float64(source.device) and (dtype == torch.float64 or "scatter" in needs):
            source, labels = source.on_cpu(), labels.to("cpu")
        parts = _shared_out(
            _chunk_count(source, step),
            partial(_look_at_chunks, source, labels, step, whole),
            source.device,
        )
        for part in parts:
            whole.merge(part)
        if whole.finite() and (dtype == torch.float64 or whole.precise()):
            return whole
    raise nonfinite_error(source)


def _look_at_chunks(source: FeatureRows, labels: Tensor, step: int, first: SecondPass, numbers: range) -> SecondPass:
    state = first.sibling(source.device)
    for number in numbers:
        start, stop = number * step, min((number + 1) * step, source.rows)
        state.add(source.slice(start, stop), labels[start:stop], start)
    return state


def class_ranks(source: FeatureRows, labels: Int[Tensor, " N"], geometry: Geometry) -> Tensor:
    """The numerical rank of every class, one class at a time; 0 for a class without samples."""
    order = torch.argsort(labels, stable=True)
    members = order.split(geometry.counts.tolist())
    place = source.device if has_float64(source.device) else torch.device("cpu")
    centre, means = geometry.global_mean.to(place), geometry.centred.to(place)

    def work(numbers: range) -> list[tuple[int, float]]:
        found = []
        for label in numbers:
            if members[label].shape[0]:
                rows, mean = source.take(members[label]).to(place), means[label] + centre
                rank = None
                if rows.dtype != torch.float64:
                    near = mean.to(torch.float32)
                    rank = rank_of_class(rows.to(torch.float32) - near, near.to(torch.float64))
                if rank is None:
                    rank = rank_of_class((rows.to(torch.float64) - centre) - means[label], mean)
                assert rank is not None
                found.append((label, rank))
        return found

    ranks = torch.zeros(len(members), dtype=torch.float64)
    for part in _shared_out(len(members), work, source.device):
        for label, value in part:
            ranks[label] = value
    return ranks
