"""Cells on the cores of this machine."""

import os
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool

from ...._support.checks import kind_and_line
from ...._support.machine import worker_pool
from ..._cells import Cell
from ..cell_folder import run_cell
from ..store import Store
from .engine import Engine, Event, Failure, Running, engines

__all__ = ["Local"]

POLL_SECONDS = 0.5


@engines.add("local")
class Local(Engine):
    """A pool of processes with one torch thread each; as many as there are cores unless told otherwise."""

    @property
    def parallel(self) -> int:
        return self.workers or os.cpu_count() or 1

    def run(self, cells: Sequence[Cell], store: Store, root: str | None) -> Iterator[Event]:
        queue = deque(cells)
        while queue:
            suspects = yield from self._pool(queue, store, root)
            yield from self._alone(suspects, store, root)

    def _pool(self, queue: deque[Cell], store: Store, root: str | None) -> Generator[Event, None, list[Cell]]:
        """Run the queue; returns the cells that were under way when a worker was killed, if one was."""
        count = min(self.parallel, len(queue))
        waiting: dict[Future[None], Cell] = {}
        with worker_pool(count) as pool:
            while queue or waiting:
                try:
                    while queue and len(waiting) < 2 * count:  # one each in hand, so that no worker waits for us
                        waiting[pool.submit(run_cell, queue[0], store.cell(queue[0]), root)] = queue[0]
                        queue.popleft()
                except BrokenProcessPool:
                    return list(waiting.values())
                done, _ = wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                if not done:
                    yield Running(tuple(waiting.values()))
                for future in done:
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        return list(waiting.values())
                    cell = waiting.pop(future)
                    yield cell if error is None else Failure(cell, kind_and_line(error))
        return []

    def _alone(self, cells: Sequence[Cell], store: Store, root: str | None) -> Iterator[Event]:
        """One process a cell: a worker was killed, and this tells which cell does that."""
        for cell in cells:
            with worker_pool(1) as pool:
                future = pool.submit(run_cell, cell, store.cell(cell), root)
                while not wait([future], timeout=POLL_SECONDS).done:
                    yield Running((cell,))
                error = future.exception()
            if isinstance(error, BrokenProcessPool):
                yield Failure(cell, "its process was killed (out of memory?)")
            else:
                yield cell if error is None else Failure(cell, kind_and_line(error))
