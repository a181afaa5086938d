"""Cells on a Ray cluster: the one that RAY_ADDRESS names, else one started here."""

import io
import os
import tarfile
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...._support.checks import kind_and_line
from ...._support.files import write_bytes
from ...._support.machine import running_ray
from ..._cells import Cell
from ..cell_folder import FINISHED, run_cell
from ..store import Store
from .engine import Engine, Event, Failure, Running, engines

__all__ = ["Ray"]

POLL_SECONDS = 0.5


@engines.add("ray")
class Ray(Engine):
    """One task a cell. A task works in a folder of its own node and sends the files back: nothing needs to be shared.

    Data sets must be found on each node, under the same ``root``.
    """

    @property
    def parallel(self) -> int:
        return self.workers or os.cpu_count() or 1

    def run(self, cells: Sequence[Cell], store: Store, root: str | None) -> Iterator[Event]:
        with running_ray("--engine ray", self.workers) as ray:
            task = ray.remote(_run_there)
            if ray.cluster_resources().get("GPU"):
                task = task.options(num_gpus=1)
            queue = deque(cells)
            waiting: dict[Any, Cell] = {}
            window = 4 * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while queue or waiting:
                while queue and len(waiting) < window:
                    cell = queue.popleft()
                    waiting[task.remote(cell, root)] = cell
                done, _ = ray.wait(list(waiting), timeout=POLL_SECONDS)
                if not done:
                    yield Running(())  # they are on other machines, and say nothing until they are done
                for reference in done:
                    cell = waiting.pop(reference)
                    try:
                        _unpack(ray.get(reference), store.cell(cell))
                    except Exception as error:
                        yield Failure(cell, kind_and_line(getattr(error, "cause", None) or error))
                    else:
                        yield cell


def _run_there(cell: Cell, root: str | None) -> bytes:
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="neuralcollapse-") as name:
        run_cell(cell, Path(name), root)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(name, arcname=".")
        return packed.getvalue()


def _unpack(content: bytes, folder: Path) -> None:
    """Write the files of a cell; the one that marks it as finished comes last."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        members.sort(key=lambda member: Path(member.name) == Path(FINISHED))
        for member in members:
            file = archive.extractfile(member)
            assert file is not None
            write_bytes(folder / tarfile.data_filter(member, str(folder)).name, file.read())
