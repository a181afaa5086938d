"""The unconstrained feature models: values, derivatives, closed-form optima, certificates."""

from ._problem import Problem, ProblemLinearization, problems
from .certificate import Certificate
from .contrastive import ContrastiveUFM
from .normalized import NormalizedUFM
from .optima.normalized import critical_temperature
from .optimum import Optimum
from .point import Point, load_point, save_point
from .regularized import RegularizedUFM

__all__ = [
    "Certificate",
    "ContrastiveUFM",
    "NormalizedUFM",
    "Optimum",
    "Point",
    "Problem",
    "ProblemLinearization",
    "RegularizedUFM",
    "critical_temperature",
    "load_point",
    "problems",
    "save_point",
]
