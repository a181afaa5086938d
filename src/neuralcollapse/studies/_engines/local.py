"""Cells on the cores of this machine."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool

from ..._support.processes import worker_pool
from .._cells import Cell
from .._store import Store, run_cell
from ._engine import Engine, Failure, engines, one_line

__all__ = ["Local"]

POLL_SECONDS = 0.5


@engines.add("local")
class Local(Engine):
    """A pool of processes with one torch thread each; as many as there are cores unless told otherwise."""

    def run(self, cells: Sequence[Cell], store: Store, root: str | None) -> Iterator[Cell | Failure | None]:
        count = self.workers or os.cpu_count() or 1
        yield from self._pool(list(cells), store, root, min(count, len(cells)))

    def _pool(self, cells: list[Cell], store: Store, root: str | None, count: int) -> Iterator[Cell | Failure | None]:
        left = {cell.key: cell for cell in cells}
        with worker_pool(count) as pool:
            waiting: dict[Future[None], Cell] = {
                pool.submit(run_cell, cell, store.cell(cell), root): cell for cell in cells
            }
            while waiting:
                done, _ = wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                if not done:
                    yield None
                for future in done:
                    cell = waiting.pop(future)
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        break
                    del left[cell.key]
                    yield cell if error is None else Failure(cell, one_line(error))
                else:
                    continue
                break
        if left:
            yield from self._alone(list(left.values()), store, root)

    def _alone(self, cells: list[Cell], store: Store, root: str | None) -> Iterator[Cell | Failure | None]:
        """One process a cell: a worker was killed, and this tells which cell does that."""
        for cell in cells:
            with worker_pool(1) as pool:
                future = pool.submit(run_cell, cell, store.cell(cell), root)
                while not wait([future], timeout=POLL_SECONDS).done:
                    yield None
                error = future.exception()
            if isinstance(error, BrokenProcessPool):
                yield Failure(cell, "its process was killed (out of memory?)")
            else:
                yield cell if error is None else Failure(cell, one_line(error))
