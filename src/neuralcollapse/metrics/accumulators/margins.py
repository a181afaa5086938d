"""Cosine margins of single samples: one number each, for their sorted curve."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..processes import Group, gather_rows, rank_of, sum_over, world_of
from .look import Chunk, Look

__all__ = ["Margins"]


class Margins:
    """All cosine margins, and how many samples had none because they lie at the global mean."""

    def __init__(self, look: Look):
        self._dtype, self._device = look.dtype, look.centre.device
        self._parts: list[Tensor] = []
        self._usable: list[Tensor] = []

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        margins, usable = chunk.margins()
        self._parts.append(margins)
        self._usable.append(usable)

    def merge(self, other: "Margins") -> None:
        """Add another's margins."""
        self._parts += [part.to(self._device) for part in other._parts]
        self._usable += [part.to(self._device) for part in other._usable]

    def all_reduce(self, group: Group = None) -> None:
        """Gather the margins of all processes."""
        mine = self.state()
        sizes = torch.zeros(2, world_of(group), dtype=torch.int64)
        sizes[:, rank_of(group)] = torch.tensor([mine["margins"].shape[0], int(mine["left_out"])])
        (sizes,) = sum_over([sizes], group)
        everyones = gather_rows(mine["margins"], group, sizes[0].tolist())
        self.set_state({"margins": everyones, "left_out": sizes[1].sum()})

    def result(self) -> tuple[Float[Tensor, " N"], int]:
        """The margins on the CPU, and the number of samples without."""
        state = self.state()
        return state["margins"].to("cpu"), int(state["left_out"])

    def finite(self) -> bool:
        """Whether no margin overflowed."""
        return bool(torch.isfinite(self.state()["margins"]).all())

    def state(self) -> dict[str, Tensor]:
        """The margins, and the number of samples without."""
        if not self._parts:
            empty = torch.zeros(0, dtype=self._dtype, device=self._device)
            return {"margins": empty, "left_out": torch.zeros((), dtype=torch.int64)}
        margins, usable = torch.cat(self._parts), torch.cat(self._usable)
        kept = margins[usable]
        return {"margins": kept, "left_out": torch.tensor(margins.shape[0] - kept.shape[0])}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Take over margins."""
        margins, left_out = state["margins"], int(state["left_out"])
        nothing = torch.zeros(left_out, dtype=margins.dtype, device=margins.device)
        self._dtype, self._device = margins.dtype, margins.device
        self._parts = [margins, nothing]
        self._usable = [torch.ones_like(margins, dtype=torch.bool), torch.zeros_like(nothing, dtype=torch.bool)]
