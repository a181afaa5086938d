"""Slices and curves of the models' landscapes, as numbers."""

from .._support.public import explain_calls
from .codes import CodeDiagram, code_diagram
from .curves import bound_curve, decay_curve
from .feature_slice import FeatureSlice, WideSlice
from .objective import ObjectivePlane, ObjectiveSlice, objective_plane, objective_slice
from .phase import PhaseDiagram, phase_diagram

psi = decay_curve
xi = bound_curve

__all__ = [
    "CodeDiagram",
    "FeatureSlice",
    "ObjectivePlane",
    "ObjectiveSlice",
    "PhaseDiagram",
    "WideSlice",
    "bound_curve",
    "code_diagram",
    "decay_curve",
    "objective_plane",
    "objective_slice",
    "phase_diagram",
    "psi",
    "xi",
]

explain_calls(__name__)
