"""Cosine margin of single samples."""

from ._geometry import Geometry, NotApplicableError
from ._registry import define


@define(
    "cosine_margin",
    property="NC4 decisions",
    definition="mean over samples of cos(h - h_G, w_y - w_G) - max_{j != y} cos(h - h_G, w_j - w_G)",
    paper="mse (Zhou et al. 2022)",
    better="higher",
    lowest=-2.0,
    highest=2.0,
    at_collapse=lambda num_classes: num_classes / (num_classes - 1),
    at_random="negative: minus the expected maximum of K-1 random cosines",
    needs=("weight", "margins"),
)
def cosine_margin(geometry: Geometry) -> float:
    """Features centred by the global mean h_G, the classifier by the mean w_G of its rows.

    The report also carries quantiles and the sorted curve of all margins.
    """
    weight = geometry.require_weight()
    geometry.require_means()
    centred = weight - weight.mean(0)
    norms = (centred / weight.abs().max()).square().sum(1)
    small = (norms <= (1e-14) ** 2 * weight.shape[1]).nonzero()
    if small.shape[0]:
        raise NotApplicableError(
            f"the classifier's row {int(small[0])} equals the mean of its rows, so it has no angle"
        )
    margins = geometry.samples.margins
    if margins is None:
        raise geometry.lacking("margins")
    if margins.shape[0] == 0:
        raise NotApplicableError("every sample coincides with the global mean")
    return float(margins.mean(dtype=geometry.centred.dtype))
