"""Numerical rank of the features of a class."""

from ._geometry import Geometry, NotApplicableError
from ._registry import define


@define(
    "numerical_rank",
    property="NC1 variability",
    definition="mean over classes of |H_k|_*^2 / |H_k|_F^2 (nuclear and Frobenius norms of class k)",
    paper="mse (Zhou et al. 2022)",
    lowest=1.0,
    at_collapse=1.0,
    at_random="somewhat below min(n, d)",
    needs=("ranks",),
    core=False,
)
def numerical_rank(geometry: Geometry) -> float:
    """One when every class is a single direction; the features are not centred."""
    geometry.require_means()
    if int(geometry.counts.max()) < 2:
        raise NotApplicableError("every class has a single sample, so every class has rank one")
    ranks = geometry.samples.ranks
    if ranks is None:
        raise geometry.lacking("ranks")
    zero = (ranks == 0).nonzero()
    if zero.shape[0]:
        raise NotApplicableError(f"all features of class {int(zero[0])} are zero, so its rank is not defined")
    return float(ranks.mean())
