"""NC2 and NC3 for any number of classes: uniform directions, distances from the others' hull, rows along the means.

These need no simplex ETF, so they also speak where K > d+1 (language models). There the directions at collapse form a
softmax code, the unit vectors with the largest distance of one from the convex hull of the others;
``frames.known_code_distance(K, d)`` has that distance where it is known (K/(K-1) for K <= d+1, 1 up to K = 2d).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ...frames import one_vs_rest
from ._geometry import Geometry, NotApplicableError
from ._pairs import PairSum, Rows, Tile
from ._registry import define
from .angles import check_directions, unit_rows

PAPER_NC2 = "Liu et al. 2023; Wu and Papyan 2024"
PAPER_NC3 = "Wu and Papyan 2024"


class LogDistances(PairSum):
    """Sums over pairs k != j of -log |u_k - u_j|, u_k the unit centred means, and of their squares."""

    def __init__(self, geometry: Geometry, vectors: Rows):
        geometry.require_directions()
        check_directions(geometry, vectors.lengths)
        self._errors = (geometry.mean_errors / vectors.size / vectors.lengths).square()
        self._pairs = vectors.count * (vectors.count - 1)
        # Deviations from the value at the mean cosine: where all agree, the variance does not come from a cancellation.
        self._usual = -0.5 * math.log(max(2 - 2 * vectors.mean_cosine, 1e-300))
        self._first = self._second = 0.0
        self._same: tuple[int, int] | None = None

    def add(self, tile: Tile) -> None:
        """Add the logarithms of a tile."""
        squares = tile.unit_distances
        if self._same is None:
            self._same = tile.within(squares, self._errors)
        values = tile.without_own(squares.log().mul_(-0.5).sub_(self._usual), 0.0)
        self._first += tile.orders * float(values.sum())
        self._second += tile.orders * float(torch.linalg.vector_norm(values)) ** 2

    def moments(self, geometry: Geometry) -> tuple[float, float]:
        """Mean and standard deviation over pairs."""
        if self._same is not None:
            k, j = map(geometry.number_of, self._same)
            raise NotApplicableError(f"the centred means of classes {k} and {j} have the same direction")
        mean = self._first / self._pairs
        return self._usual + mean, math.sqrt(max(self._second / self._pairs - mean**2, 0.0))


@define(
    "uniformity_means",
    property="NC2 geometry",
    definition="mean over k != j of -log|u_k - u_j|, u_k the unit centred class means",
    paper=PAPER_NC2,
    lowest=-math.log(2),
    at_collapse=lambda num_classes: -0.5 * math.log(2 * num_classes / (num_classes - 1)),
    at_random="about -log(2)/2 for normal features in many dimensions",
    pairs=(LogDistances,),
)
def uniformity_means(geometry: Geometry) -> float:
    """The least possible for K <= d+1 is that of the simplex; for more classes it is higher and not known."""
    return geometry.pair_sum(LogDistances).moments(geometry)[0]


@define(
    "uniformity_means_variation",
    property="NC2 geometry",
    definition="std over |mean| of -log|u_k - u_j| over k != j, u_k the unit centred class means",
    paper="Wu and Papyan 2024 (GNC2)",
    at_random="about 1/(sqrt(d) log 2) for normal features in many dimensions",
    pairs=(LogDistances,),
)
def uniformity_means_variation(geometry: Geometry) -> float:
    """Zero when all directions are equally far from one another."""
    mean, deviation = geometry.pair_sum(LogDistances).moments(geometry)
    if mean == 0.0:
        raise NotApplicableError("the mean of -log distance is zero, so it has no coefficient of variation")
    return deviation / abs(mean)


def _row_cosines(geometry: Geometry) -> Float[Tensor, " K"]:
    """1 - cos(w_k, m_k - h_G), as |unit difference|^2/2: exact near zero."""
    weight, means = unit_rows(geometry, geometry.require_weight()), unit_rows(geometry, geometry.require_directions())
    return (weight - means).square().sum(1) / 2


@define(
    "nc3_cosine",
    property="NC3 self-duality",
    definition="mean over k of 1 - cos(w_k, m_k - h_G)",
    paper=PAPER_NC3,
    highest=2.0,
    at_random="1: classifier and means have nothing in common",
    needs=("weight",),
    random_value=lambda num_classes, per_class, dim: 1.0,
)
def nc3_cosine(geometry: Geometry) -> float:
    """Zero when every row of the classifier points along its class mean, simplex or not, whatever the norms."""
    return float(_row_cosines(geometry).mean())


@define(
    "nc3_cosine_variation",
    property="NC3 self-duality",
    definition="std over |mean| of cos(w_k, m_k - h_G) over k",
    paper="Wu and Papyan 2024 (UNC3)",
    at_random="large: the mean cosine is close to zero",
    needs=("weight",),
)
def nc3_cosine_variation(geometry: Geometry) -> float:
    """Zero when all rows are equally well aligned with their class means."""
    apart = _row_cosines(geometry)
    mean = float(1 - apart.mean())
    if mean == 0.0:
        raise NotApplicableError("the mean cosine is zero, so it has no coefficient of variation")
    return float(apart.std(correction=0)) / abs(mean)


PAPER_HULL = "Jiang et al. 2023 (GNC2)"
HULL_DISTANCE = "min over k of the distance of x_k from the convex hull of the other x_j, x_k the unit {}"


@define(
    "one_vs_rest_weight",
    property="NC2 geometry",
    definition=HULL_DISTANCE.format("rows of W"),
    paper=PAPER_HULL,
    better="higher",
    highest=2.0,
    at_collapse=lambda num_classes: num_classes / (num_classes - 1),
    at_random="about 1 for a normal classifier with d far above K, towards 0 for K far above d",
    needs=("weight",),
    core=False,
)
def one_vs_rest_weight(geometry: Geometry) -> float:
    """The certified distance; at collapse K/(K-1) for K <= d+1, less for more classes."""
    return one_vs_rest(unit_rows(geometry, geometry.require_weight())).smallest


@define(
    "one_vs_rest_means",
    property="NC2 geometry",
    definition=HULL_DISTANCE.format("centred class means"),
    paper=PAPER_HULL,
    better="higher",
    highest=2.0,
    at_collapse=lambda num_classes: num_classes / (num_classes - 1),
    at_random="about 1 for normal features with d far above K, towards 0 for K far above d",
    core=False,
)
def one_vs_rest_means(geometry: Geometry) -> float:
    """The same of the centred class means."""
    return one_vs_rest(unit_rows(geometry, geometry.require_directions())).smallest
