"""How far each class is from the convex hull of the others: NC2 where more classes than dimensions must fit.

At collapse with K > d+1 the directions form a softmax code, the unit vectors with the largest such distance;
``frames.known_code_distance(K, d)`` has that distance where it is known (K/(K-1) for K <= d+1, 1 up to K = 2d).
"""

from ...frames import one_vs_rest
from ._geometry import Geometry
from ._registry import define
from .angles import unit_rows

PAPER = "Jiang et al. 2023 (GNC2)"
DEFINITION = "min over k of the distance of x_k from the convex hull of the other x_j, x_k the unit {}"


@define(
    "one_vs_rest_weight",
    property="NC2 geometry",
    definition=DEFINITION.format("rows of W"),
    paper=PAPER,
    better="higher",
    highest=2.0,
    at_collapse=lambda num_classes: num_classes / (num_classes - 1),
    at_random="about 1 for a normal classifier with d far above K, towards 0 for K far above d",
    needs=("weight",),
    core=False,
)
def one_vs_rest_weight(geometry: Geometry) -> float:
    """The certified distance; at collapse K/(K-1) for K <= d+1, less for more classes."""
    return one_vs_rest(unit_rows(geometry.require_weight())).smallest


@define(
    "one_vs_rest_means",
    property="NC2 geometry",
    definition=DEFINITION.format("centred class means"),
    paper=PAPER,
    better="higher",
    highest=2.0,
    at_collapse=lambda num_classes: num_classes / (num_classes - 1),
    at_random="about 1 for normal features with d far above K, towards 0 for K far above d",
    core=False,
)
def one_vs_rest_means(geometry: Geometry) -> float:
    """The same of the centred class means."""
    return one_vs_rest(unit_rows(geometry.require_means())).smallest
