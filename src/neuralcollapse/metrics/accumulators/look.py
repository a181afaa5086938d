"""A second look at the samples, from their class means.

Each chunk is centred by its own class means first and multiplied afterwards: D = h - m_y has the size of the
spread, so the products keep the digits that products of the features themselves lose near collapse. One product
with the span of the means gives nc1 and the nearest class mean; one with the classifier gives its decisions and
the cosine margins.
"""

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..._support.machine import has_float64

if TYPE_CHECKING:
    from ..definitions._geometry import Geometry

__all__ = ["Chunk", "Look"]

BLOCK = 4096


class Look:
    """What samples are compared with, in the working precision and on the device of the features.

    Nothing is kept that no accumulator asked for (``needs``), and nothing where a class has no samples.
    """

    def __init__(self, geometry: "Geometry", needs: frozenset[str], dtype: torch.dtype, device: torch.device):
        self.dtype = dtype
        self.home = device if has_float64(device) else torch.device("cpu")
        """Where sums in float64 are kept."""
        self._geometry = geometry
        blocks = [(rows + geometry.global_mean).to(dtype) for rows in geometry.centred.split(BLOCK)]
        self.centre: Float[Tensor, "K d"] = torch.cat(blocks).to(device)
        complete = bool((geometry.counts > 0).all()) and geometry.has_means
        weight = geometry.weight if complete else None
        self.decides = weight is not None and "decisions" in needs
        self.has_margins = weight is not None and "margins" in needs
        self.spans: Float[Tensor, "d r"] | None = None
        self.scale = 1.0
        self.coordinates: Float[Tensor, "K r"] | None = None
        if complete and "projection" in needs:
            spectrum = geometry.full_spectrum
            self.scale = float(spectrum.values[0])
            self.spans = (spectrum.directions / self.scale).to(dtype).to(device).contiguous()
        if self.decides:
            self._nearest(geometry, device)
        if self.decides or self.has_margins:
            assert weight is not None
            self._classifier(weight, geometry, device)

    def _nearest(self, geometry: "Geometry", device: torch.device) -> None:
        """What the squared distances to the class means are made of: |m_k|^2/2 - <h, m_k>."""
        self.half_squares = (geometry.centred.square().sum(1) / 2).to(self.dtype).to(device)
        if self.spans is not None and 2 * self.spans.shape[1] <= geometry.dim:
            # Few directions: their coordinates are there already.
            spectrum = geometry.full_spectrum
            products = geometry.centred @ spectrum.directions
            shifted = self.centre.to("cpu").to(torch.float64) - geometry.global_mean
            self.coordinates = (shifted @ (spectrum.directions / self.scale)).to(self.dtype).to(device)
            self.towards: Float[Tensor, "_ K"] = (self.scale * products.T).to(self.dtype).to(device).contiguous()
        else:
            self.towards = geometry.centred.to(self.dtype).T.to(device)

    def _classifier(self, weight: Tensor, geometry: "Geometry", device: torch.device) -> None:
        centred = weight - weight.mean(0)
        lengths = torch.linalg.vector_norm(centred, dim=1)
        logits = centred @ geometry.global_mean
        offsets = logits if geometry.bias is None else logits + geometry.bias
        centred /= lengths.clamp(min=torch.finfo(torch.float64).tiny)[:, None]
        self.rows: Float[Tensor, "d K"] = centred.to(self.dtype).T.contiguous().to(device)
        self.row_norms = lengths.to(self.dtype).to(device)
        self.logit_offsets = offsets.to(self.dtype).to(device)
        # The global mean in two words: what the first leaves over is of the size of the spread.
        high = geometry.global_mean.to(self.dtype)
        self.origin = high.to(device)
        self.origin_rest = (geometry.global_mean - high.to(torch.float64)).to(self.dtype).to(device)
        size = float(torch.linalg.vector_norm(geometry.centred, dim=1).max())
        self.negligible = 4 * torch.finfo(self.dtype).eps * size

    def errors(self, start: int) -> Float[Tensor, "k d"]:
        """Exact class means minus centres, of a block of classes: the centres are rounded to the precision."""
        geometry, rows = self._geometry, slice(start, start + BLOCK)
        # The centred means carry more digits than their sum with the global mean.
        return geometry.centred[rows] - (self.centre[rows].to("cpu").to(torch.float64) - geometry.global_mean)

    def error_of(self, label: int) -> Float[Tensor, " d"]:
        """The exact mean of a class minus its centre."""
        geometry = self._geometry
        return geometry.centred[label] - (self.centre[label].to("cpu").to(torch.float64) - geometry.global_mean)

    @cached_property
    def _centre_errors(self) -> Float[Tensor, " K"]:
        blocks = range(0, self.centre.shape[0], BLOCK)
        return torch.cat([self.errors(start).square().sum(1) for start in blocks]).to(self.home)

    def centre_errors(self) -> Float[Tensor, " K"]:
        """Squared distances of the centres from the exact class means: corrects sums of squares about them."""
        return self._centre_errors

    def matters(self, seen: Int[Tensor, " K"], spread: float) -> bool:
        """Whether the rounding of the centres shows in sums whose squared distances add up to ``spread``."""
        return float((seen * self._centre_errors).sum()) > 1e-12 * spread

    def span_errors(self, seen: Int[Tensor, " K"], spread: float) -> Float[Tensor, " r"]:
        """What the rounding of the centres adds to the sums of squares along the directions."""
        assert self.spans is not None
        total = torch.zeros(self.spans.shape[1], dtype=torch.float64)
        if self.matters(seen, spread):
            exact, counts = self._geometry.full_spectrum.directions / self.scale, seen.to("cpu", torch.float64)
            for start in range(0, counts.shape[0], BLOCK):
                total += counts[start : start + BLOCK] @ (self.errors(start) @ exact).square()
        return total.to(self.home)

    def exact_scatter(self, total: Float[Tensor, "d d"], seen: Int[Tensor, " K"], spread: float) -> Tensor:
        """The scatter about the exact class means, from that about the centres."""
        if self.matters(seen, spread):
            counts = seen.to("cpu", torch.float64)
            for start in range(0, counts.shape[0], BLOCK):
                rest = self.errors(start)
                total = total - (rest.T @ (counts[start : start + BLOCK, None] * rest)).to(total.device)
        return total


class Chunk:
    """Samples on the look's device with valid labels; what several accumulators need is computed once."""

    def __init__(
        self,
        look: Look,
        features: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        room: Float[Tensor, "n d"] | None = None,
    ):
        """``room`` is where the difference is to be written, if someone keeps it."""
        self._look, self._features = look, features.to(look.dtype)
        self._room = room
        self.labels = labels

    @cached_property
    def difference(self) -> Float[Tensor, "n d"]:
        """h - m_y."""
        if self._room is None:
            result = self._look.centre.index_select(0, self.labels)
        else:
            result = torch.index_select(self._look.centre, 0, self.labels, out=self._room)
        return torch.sub(self._features, result, out=result)

    @cached_property
    def projections(self) -> Float[Tensor, "n r"]:
        """Of the difference on the directions of the means."""
        assert self._look.spans is not None
        return self.difference @ self._look.spans

    @cached_property
    def centred(self) -> Float[Tensor, "n d"]:
        """h - h_G."""
        return (self._features - self._look.origin) - self._look.origin_rest

    @cached_property
    def products(self) -> Float[Tensor, "n K"]:
        """With the unit rows of the centred classifier."""
        return self.centred @ self._look.rows

    @cached_property
    def decided(self) -> Int[Tensor, " n"]:
        """What the classifier decides."""
        return torch.addcmul(self._look.logit_offsets, self.products, self._look.row_norms).argmax(1)

    @cached_property
    def nearest(self) -> Int[Tensor, " n"]:
        """The nearest class mean."""
        look, rows = self._look, None
        if look.coordinates is None:
            rows = self.centred
        else:
            rows = self.projections + look.coordinates.index_select(0, self.labels)
        return torch.addmm(look.half_squares, rows, look.towards, beta=-1).argmax(1)

    def margins(self) -> tuple[Float[Tensor, " n"], Tensor]:
        """Cosine margins, and where they exist: not at the global mean."""
        products = self.products
        own = products.gather(1, self.labels[:, None]).squeeze(1)
        if self._look.decides:
            _ = self.decided  # before the products change
        products.scatter_(1, self.labels[:, None], -torch.inf)
        lengths = torch.linalg.vector_norm(self.centred, dim=1)
        return (own - products.amax(1)) / lengths, lengths > self._look.negligible
