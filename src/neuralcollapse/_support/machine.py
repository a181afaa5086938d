"""The machine: how much memory there is, asked before it is taken, how many threads, which devices have float64, and
pools of processes, here and on a cluster.
"""

import logging
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

try:
    import resource
except ImportError:  # on Windows
    resource = None

__all__ = [
    "available_memory",
    "check_room",
    "has_float64",
    "in_float64",
    "keep_freed_blocks",
    "running_ray",
    "sum_in_float64",
    "torch_threads",
    "worker_pool",
]

LARGEST = 32 << 20
CERTAIN = 16 << 20
"""Bytes that are there without asking: asking the system takes longer than drawing a small point."""


def available_memory() -> int:
    """Bytes that can be had without swapping and within this process's limit; 8 GB where the system does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        free = 1024 * int(re.search(r"MemAvailable:\s+(\d+)", text)[1])  # pyright: ignore[reportOptionalSubscript]
    except (OSError, TypeError, ValueError):
        free = 8 << 30
    if resource is None:
        return free
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return free if limit == resource.RLIM_INFINITY else max(0, min(free, limit - _taken(resource.getpagesize())))


def _taken(page: int) -> int:
    """Bytes of address space that this process has, in pages of so many bytes."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * page
    except (OSError, ValueError):
        return 0


def check_room(what: str, size: int) -> None:
    """ValueError if ``what`` takes more bytes than there are, before they are asked for."""
    if size > CERTAIN and size > available_memory():
        raise ValueError(f"{what} would take {size / 1e9:.3g} GB of memory, more than is free")


def keep_freed_blocks() -> None:
    """Let blocks of up to 32 MB be reused without a trip to the operating system.

    The C library hands large freed blocks back at once and has their pages cleared again at the next request:
    for arrays of a few MB that costs as much as the arithmetic on them. It stops doing so for sizes that it
    has seen freed, up to 32 MB (glibc's dynamic mmap threshold); so one block of that size, never touched, is
    made and freed.
    """
    torch.empty(LARGEST - (1 << 16), dtype=torch.uint8)


WITHOUT_FLOAT64 = {"mps"}
"""Kinds of devices whose numbers have single precision at most."""


def has_float64(device: torch.device) -> bool:
    """Whether tensors on the device can have double precision."""
    return device.type not in WITHOUT_FLOAT64


def in_float64(tensor: Tensor) -> Tensor:
    """The tensor in double precision: where it is, or on the CPU where its device has none.

    In two steps, because such a device would convert before it hands over.
    """
    return (tensor if has_float64(tensor.device) else tensor.to("cpu")).to(torch.float64)


def sum_in_float64(rows: Tensor) -> Tensor:
    """The sums over the first dimension in double precision, as :func:`in_float64` has it."""
    if has_float64(rows.device):
        return rows.sum(0, dtype=torch.float64)
    return in_float64(rows.sum(0))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run the body with ``count`` intra-op threads.

    A small solve that takes 0.7 s on one thread takes 6 to 26 s on two of a busy machine.
    """
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh one-thread processes that an interrupt or an error ends at once instead of after the last task.

    Forked ones would inherit the threads' locks of this one in whatever state they are.
    """
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_prepare_worker)
    try:
        yield pool
    except BaseException:
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        raise
    pool.shutdown()


def _prepare_worker() -> None:
    """One torch thread; the interrupt key is left to the parent, which ends the workers; without it they end too."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def running_ray(asked_by: str, workers: int | None) -> Iterator[ModuleType]:
    """The module ``ray``, on the caller's cluster, that of ``RAY_ADDRESS``, or one of ``workers`` that ends here."""
    try:
        import ray
    except ImportError:
        raise ValueError(f"{asked_by} needs Ray: pip install 'neuralcollapse[ray]'") from None
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do anyway, without its warning
    started = not ray.is_initialized()
    if started:
        there = "RAY_ADDRESS" in os.environ
        if there and workers:
            raise ValueError("workers are for a Ray that is started here; the cluster of RAY_ADDRESS has its own")
        count = None if there else workers or os.cpu_count() or 1
        ray.init(num_cpus=count, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()
