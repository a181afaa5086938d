"""Work on shards by this process, by several, or by a Ray cluster, and how far it is."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Literal, TypeVar

from ..._support.checks import integer
from ..._support.machine import running_ray, worker_pool
from ..._support.theme import counting_bar
from .shards import Shard

__all__ = ["EngineName", "ShardProgress", "in_order", "reported", "worker_count"]

Result = TypeVar("Result")
EngineName = Literal["local", "ray"]
ShardProgress = Callable[[int, int], None]
"""A function of (finished, all) shards."""


def worker_count(workers: int | None, shards: int, engine: EngineName) -> int:
    """How many processes: as given, else one per processor and no more than there are shards; 0 leaves it to Ray.

    Saved statistics alone are no shards: this process merges them.
    """
    if workers is not None:
        integer("workers", workers, minimum=1)
    if not shards and (engine == "ray" or workers not in (None, 1)):
        option = "engine 'ray'" if engine == "ray" else f"workers = {workers}"
        raise ValueError(f"{option} is for shards of features: saved statistics are merged by this process")
    if workers is not None:
        return workers
    return max(1, min(os.cpu_count() or 1, shards)) if engine == "local" else 0


def in_order(
    work: Callable[..., Result], shards: Sequence[Shard], shared: tuple[object, ...], engine: str, workers: int
) -> Iterator[Result]:
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
            waiting: list[Future[Result]] = []
            for shard in shards:
                waiting.append(pool.submit(work, shard, *shared))
                if len(waiting) > 2 * workers:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()


def _by_ray(
    work: Callable[..., Result], shards: Sequence[Shard], shared: tuple[object, ...], workers: int
) -> Iterator[Result]:
    with running_ray("engine 'ray'", workers) as ray:
        task = ray.remote(work)
        held = [ray.put(value) for value in shared]
        ahead = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        waiting = []
        for shard in shards:
            waiting.append(task.remote(shard, *held))
            if len(waiting) > ahead:
                yield _from_ray(ray, waiting.pop(0))
        while waiting:
            yield _from_ray(ray, waiting.pop(0))


def _from_ray(ray: ModuleType, reference: object) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, ValueError | TypeError | OSError) else error) from None


@contextmanager
def reported(progress: bool | ShardProgress, total: int) -> Iterator[Callable[[], None]]:
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
        with counting_bar("measuring", total) as tick:
            yield tick
