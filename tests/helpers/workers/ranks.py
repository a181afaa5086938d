"""Ranks of a gloo run, forked from one process that has imported everything, so that a run takes a second."""

import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path

import torch


def fork_ranks(work: Callable[[int, int, Path], None], world: int, folder: Path, seconds: float = 120) -> None:
    """``work(rank, world, folder)`` in each of ``world`` processes; exit with a line if one fails or hangs."""
    torch.set_num_threads(1)
    folder.mkdir(exist_ok=True)
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=work, args=(rank, world, folder)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(seconds)
    if any(process.exitcode != 0 for process in ranks):
        for process in ranks:
            process.kill()
        sys.exit(f"a rank of {world} failed or hung")
